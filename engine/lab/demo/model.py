"""A model whose mind is a generator: it yields a turn, and is sent what its calls returned.

Theory. The generator reads like somebody at work: look, wait for what is seen, think, do the next thing. It is a coroutine
that parks at a tool call, like the Response around it. It must be deterministic: the same answers make the same turns. Then
its place follows from the context alone: a sampler that is opened with a history sends the answers that it finds there, turn
by turn, and stands where the history ends. So the same mind works in one long Response, in a chain of Responses, and with
the whole history sent anew.

The model names its calls itself (``call_1``, ``call_2``, …), which tells each answer's call, and makes runs comparable to the
token. Hosted calls have no such name; their results are taken in their order.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from attrs import frozen

from protocol.codec import encode
from protocol.items import CALL_CLASSES, OUTPUT_CLASSES, FileSearchCall, Item, Message, answered_call_id, text_of
from tools.hosted.file_search import results_text

from ...models.base import CallBegin, ModelError, Plan, Stop
from ...models.outputs import has_failed, text_of_output
from ...models.pacing import PacedSampler, TextWords, Utterance, observe_all

HOSTED: Final = frozenset({"file_search"})


@frozen
class Ask:
    """A call that is to be made."""

    name: str
    arguments: Mapping[str, Any]


@frozen
class Answer:
    """What a call returned, as text. ``failed`` is whether it said that it failed."""

    text: str
    failed: bool = False


NO_ANSWER: Final = Answer("error: no result came back", failed=True)


@frozen
class Turn:
    """What is sampled until the next stop: a thought (reasoning), a message, calls. Without calls it ends the Response."""

    thought: str = ""
    said: str = ""
    calls: tuple[Ask, ...] = ()


Mind = Generator[Turn, tuple[Answer, ...], None]
"""Yields turns, and is sent the answers to each turn's calls, in their order."""


class MindModel:
    """Runs ``mind``, made from the user's first message. ``tokens_per_second`` None is as fast as can be."""

    def __init__(self, name: str, mind: Callable[[str], Mind], tokens_per_second: float | None = None) -> None:
        self._name = name
        self._mind = mind
        self._rate = tokens_per_second

    @property
    def name(self) -> str:
        """What requests call it."""
        return self._name

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[PacedSampler]:
        """A sampler that stands where the context says."""
        source = _Source(self._mind, self._rate)
        await observe_all(source, plan.prompt.items)
        yield PacedSampler(source, plan.max_output_tokens)


@frozen
class _Line:
    """Something to say, or the call ``call_id`` to make, whose arguments are ``text``."""

    kind: Literal["reasoning", "message", "call"]
    text: str
    call_id: str = ""
    ask: Ask | None = None


class _Source:
    """A ``Source`` for ``engine.models.pacing``."""

    def __init__(self, mind: Callable[[str], Mind], rate: float | None) -> None:
        self._make = mind
        self._rate = rate
        self._mind: Mind | None = None
        self._made: set[str] = set()
        self._answers: dict[str, Answer] = {}
        self._named = 0  # calls that were given a name
        self._hosted = 0  # hosted calls that were asked for
        self._searched = 0  # hosted results that were seen
        self._calls: list[_Line] = []
        self._lines: deque[_Line] = deque()

    @property
    def rate(self) -> float | None:
        return self._rate

    # ---- what it sees

    def observe(self, item: Item) -> None:
        if isinstance(item, Message) and item.role == "user" and self._mind is None:
            self._mind = self._make(text_of(item.content))
            self._take(next(self._mind, Turn()))
        elif isinstance(item, CALL_CLASSES):
            self._made.add(item.call_id)
        elif isinstance(item, OUTPUT_CLASSES):
            text = text_of_output(item)
            self._answers[answered_call_id(item) or ""] = Answer(text, has_failed(item, text))
        elif isinstance(item, FileSearchCall) and item.status in ("completed", "failed"):
            self._searched += 1
            name = f"search_{self._searched}"
            self._made.add(name)
            self._answers[name] = Answer(results_text(item), item.status == "failed")

    def resume(self) -> None:
        """Go on in the mind, as far as the calls that it made have been answered."""
        while self._mind is not None and self._calls and all(call.call_id in self._made for call in self._calls):
            answers = tuple(self._answers.get(call.call_id, NO_ANSWER) for call in self._calls)
            try:
                turn = self._mind.send(answers)
            except StopIteration:
                turn = Turn()
            self._take(turn)

    def _take(self, turn: Turn) -> None:
        self._calls = [self._call(ask) for ask in turn.calls]
        said = [_Line("reasoning", turn.thought), _Line("message", turn.said)]
        self._lines = deque([*(line for line in said if line.text), *self._calls])

    def _call(self, ask: Ask) -> _Line:
        if ask.name in HOSTED:
            self._hosted += 1
            call_id = f"search_{self._hosted}"
        else:
            self._named += 1
            call_id = f"call_{self._named}"
        return _Line("call", encode(ask.arguments).decode(), call_id, ask)

    # ---- what it says

    def next(self) -> Utterance | Stop | ModelError:
        if not self._lines:
            return Stop("tool_calls" if self._calls else "end")
        line = self._lines[0]
        words = TextWords(line.text)
        if line.ask is None:
            return Utterance(line.kind, words)
        name = line.ask.name
        return Utterance("call", words, CallBegin(name, call_id=None if name in HOSTED else line.call_id))

    def begun(self) -> None:
        line = self._lines.popleft()
        if line.ask is not None:
            self._made.add(line.call_id)
