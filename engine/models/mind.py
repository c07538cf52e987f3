"""The mind of the ``scripted`` model: how far a program has come, judged by the context alone.

Theory. Like a real model, it knows nothing but the items before it, and what it samples itself is one more item. It keeps a
place in the program and moves it for each item that it sees: an assistant's message is the next thing to say, a call is the
next call of that name. So the same program goes the same way in one long Response, in a chain of Responses, and with the
whole history sent anew: in each case the same items are seen in the same order, and each costs what it costs, not what the
history is long.

Two things could spoil that, and don't:

- *When outputs are seen.* A client may list an output anywhere behind its call. The program sees outputs only where it has
  waited for them, all of a turn at once, in the order of the calls (``engine.models.memory``).
- *What is missing.* Clients drop reasoning, and a Response may be cut. Reasoning is passed over, an item that was cut counts
  as made, and a call without an output does not hold the program up once there is something new to go on with. An item
  that the program can't have made (within the next ``LOOKAHEAD`` points) is someone else's, and ignored.
"""

from collections.abc import Callable
from typing import Final

from protocol.items import (
    CALL_CLASSES,
    OUTPUT_CLASSES,
    OUTPUT_TYPE_OF,
    CallItem,
    CustomToolCall,
    FileSearchCall,
    FunctionCall,
    Item,
    Message,
    OtherItem,
    Reasoning,
    answered_call_id,
    text_of,
)

from .base import CallBegin, CallKind, ModelError, Plan, Stop
from .lookaround import echo, look_around
from .memory import Memory
from .offers import Offers
from .outputs import has_failed, text_of_output
from .pacing import RandomWords, TextWords, Utterance, Words
from .place import Place, Point, advance, beginning, settle
from .program import CODE_OF_FAULT, Call, End, Fail, Program, ProgramError, Reason, Say, Speech, Wait, find_program

LOOKAHEAD: Final = 64
"""How many points an item may lie ahead, because what is between was dropped from the history."""

LOOKAHEAD_STEPS: Final = 1_000
"""And how many steps without a point, between two of them."""

_NO_PROGRAM: Final = Program(())


class Mind:
    """A ``Source``, for ``engine.models.pacing``: it observes items, and says what comes next."""

    def __init__(self, plan: Plan, default_rate: float | None) -> None:
        self.error: ProgramError | None = None
        """What is wrong with the last program that came."""
        self._default_rate = default_rate
        self._serial = not plan.parallel_tool_calls
        self._may_call = plan.tool_choice != "none"
        self._offers = Offers(plan.tools)
        self._was_told = False  # there was a program of the user's, once
        self._is_told = False  # it is the one that runs
        self._memory = Memory()
        self._program = _NO_PROGRAM
        self._place = beginning(_NO_PROGRAM)
        self._point: Point | None = None

    @property
    def rate(self) -> float | None:
        """The program's pace, or the model's."""
        return self._program.tokens_per_second or self._default_rate

    # ---- what it sees

    def observe(self, item: Item) -> None:
        """One more item of the context."""
        if isinstance(item, Message):
            self._observe_message(item)
        elif isinstance(item, Reasoning):
            self._reasoned()
        elif isinstance(item, CALL_CLASSES):
            self._called(_name_of(item), item.call_id, OUTPUT_TYPE_OF[item.type], _is_whole(item))
        elif isinstance(item, OUTPUT_CLASSES):
            text = text_of_output(item)
            self._memory.answered(answered_call_id(item), item.type, text, has_failed(item, text))
        elif isinstance(item, FileSearchCall):
            self._observe_search(item)
        elif isinstance(item, OtherItem) and item.type == "additional_tools":
            self._offers.add_item(item)

    def resume(self) -> None:
        """Sampling goes on: outputs that are still missing are not waited for.

        If outputs are there which the program has not seen, the turn of their calls had come to its wait; reasoning before
        it was dropped.
        """
        self._memory.give_up()
        self._settle()
        if self._memory.holds_back:
            place, point = self._past_the_silent(waits_too=False)
            if point is None or isinstance(point, Wait):
                self._place = place

    def _observe_message(self, message: Message) -> None:
        if message.role == "user":
            self._asked(message)
        elif message.role == "assistant" and text_of(message.content):
            self._find(lambda point: isinstance(point, Say))

    def _observe_search(self, item: FileSearchCall) -> None:
        name = item.type.removesuffix("_call")
        if self._memory.is_sampled(name) or self._find(lambda point: isinstance(point, Call) and point.name == name):
            text = text_of_output(item)
            self._memory.hosted(name, text, has_failed(item, text))

    def _asked(self, message: Message) -> None:
        try:
            program = find_program(_texts(message))
        except ProgramError as error:
            self._was_told, self.error = True, error
            return
        if program is not None:
            self.error = None
            self._was_told = True
            self._start(program, is_told=True)
        elif self.error is None and (not self._is_told or self._has_ended()):
            text = text_of(message.content)
            self._start(echo(text) if self._was_told else look_around(text, self._offers), is_told=False)

    def _has_ended(self) -> bool:
        """Whether the program has nothing more to do. One that has stopped, or failed, goes on when the user speaks."""
        self._settle()
        place, point = self._past_the_silent(waits_too=not self._memory.is_awaiting)
        if isinstance(point, End | Fail):
            self._memory.release()
            self._place = advance(place, self._serial)
        return point is None and not self._memory.is_awaiting

    def _start(self, program: Program, is_told: bool) -> None:
        self._is_told = is_told
        self._memory = Memory()
        self._program = program
        self._place = beginning(program)

    # ---- where it is

    def _settle(self) -> None:
        """Go on to the next point. A wait for which everything is there is passed."""
        while True:
            self._place, self._point = settle(self._place, self._memory.outputs, self._serial)
            if not isinstance(self._point, Wait) or self._memory.is_awaiting:
                return
            self._memory.release()
            self._place = advance(self._place, self._serial)

    def _past_the_silent(self, waits_too: bool) -> tuple[Place, Point | None]:
        """The next point that leaves an item in every history: not reasoning, nor a call where none may be made."""
        place, point, outputs = self._place, self._point, self._memory.outputs
        while (
            isinstance(point, Reason)
            or (isinstance(point, Call) and not self._may_call)
            or (isinstance(point, Wait) and waits_too)
        ):
            if isinstance(point, Wait):
                outputs = self._memory.preview()
            place, point = settle(advance(place, self._serial), outputs, self._serial)
        return place, point

    def _find(self, is_wanted: Callable[[Point], bool]) -> bool:
        """Move behind the next point that is wanted, if one is near. What lies before it was dropped from the history."""
        self._settle()
        place, point = self._place, self._point
        outputs, has_waited = self._memory.outputs, False
        for _ in range(LOOKAHEAD):
            if point is None:
                return False
            if is_wanted(point):
                if has_waited:
                    self._memory.release()
                self._place = advance(place, self._serial)
                return True
            if isinstance(point, Wait) and not has_waited:
                outputs, has_waited = self._memory.preview(), True
            place, point = settle(advance(place, self._serial), outputs, self._serial, LOOKAHEAD_STEPS)
        return False

    def _reasoned(self) -> None:
        self._settle()
        if isinstance(self._point, Reason):
            self._place = advance(self._place, self._serial)

    def _called(self, name: str, call_id: str | None, output_type: str, is_whole: bool) -> None:
        if self._find(lambda point: isinstance(point, Call) and point.name == name):
            self._memory.made(name, call_id, output_type, is_whole)

    # ---- what it says

    def next(self) -> Utterance | Stop | ModelError:
        """What comes next."""
        if self.error is not None:
            return malformed(self.error)
        self._settle()
        while isinstance(self._point, Call) and not self._may_call:
            self._place = advance(self._place, self._serial)
            self._settle()
        point = self._point
        if point is None:
            return Stop("tool_calls" if self._memory.is_awaiting else "end")
        if isinstance(point, Wait):
            return Stop("tool_calls")
        if isinstance(point, End):
            return Stop(point.reason)
        if isinstance(point, Fail):
            return ModelError(point.message, code=point.code, fault=point.fault, retry_after=point.retry_after)
        return self._utterance(point)

    def begun(self) -> None:
        """What ``next`` gave is sampled: one more item of the context."""
        point = self._point
        if isinstance(point, Say):
            self._find(lambda candidate: candidate is point)
        elif isinstance(point, Reason):
            self._reasoned()
        elif isinstance(point, Call):
            self._called(point.name, None, OUTPUT_TYPE_OF[self._kind(point)], is_whole=True)

    def _utterance(self, point: Say | Reason | Call) -> Utterance:
        if isinstance(point, Call):
            arguments = point.arguments if isinstance(point.arguments, str) else point.arguments(self._memory.outputs)
            return Utterance("call", TextWords(arguments), CallBegin(point.name, self._kind(point)))
        return Utterance("message" if isinstance(point, Say) else "reasoning", self._words(point.speech))

    def _words(self, speech: Speech) -> Words:
        if speech.tokens is not None:
            return RandomWords(speech.tokens, f"{self._program.seed}/{self._place.passed}")
        return TextWords(speech.words(self._memory.outputs))

    def _kind(self, call: Call) -> CallKind:
        return call.kind or self._offers.kind_of(call.name)


def malformed(error: ProgramError) -> ModelError:
    """What the client is told of a program that can't be read."""
    return ModelError(f"the program can't be read: {error}", code=CODE_OF_FAULT["request"], fault="request")


def _texts(message: Message) -> list[str]:
    """Where a program may be: in a part of its own (the last counts), or in all of the text."""
    if isinstance(message.content, str):
        return [message.content]
    parts = [text_of((part,)) for part in reversed(message.content)]
    return [*parts, text_of(message.content)] if len(parts) > 1 else parts


def _name_of(call: CallItem) -> str:
    return call.name if isinstance(call, FunctionCall | CustomToolCall) else call.type.removesuffix("_call")


def _is_whole(call: CallItem) -> bool:
    return call.status != "incomplete"
