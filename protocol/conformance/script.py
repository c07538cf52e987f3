"""What the ``scripted`` model says: its programs, interpreted without a server, as far as the machine generates them.

The machine steers a server by programs that it puts into user messages, and foretells here what must come back. It knows
``say`` (with ``{{output}}``), ``reason``, ``call``, ``calls``, ``wait``, ``if`` with ``contains``, ``repeat``, ``stop`` and
``fail``.

A ``Script`` is a place in a program. It is immutable: ``turn`` says what is sampled until the model stops, ``read`` where it
then goes on when it has read outputs and messages. A message without a program is answered once the program is over.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

Step = Mapping[str, Any]
TEMPLATE: Final = re.compile(r"\{\{output(?:_of:([^{}]+))?\}\}")
QUOTED_CHARS: Final = 2_000
ECHOED_CHARS: Final = 200
HOSTED: Final = "file_search"
"""The name of calls that the server answers itself, where it can."""


@frozen
class Expected:
    """An item that must come: ``text`` is its text, or a call's arguments; None if it can't be foretold."""

    type: str
    text: str | None
    name: str | None = None


@frozen
class Turn:
    """What is sampled until the model stops, and why it stops: ``tool_calls``, ``end``, ``fail``, or a reason."""

    items: tuple[Expected, ...]
    reason: str
    after: "Script"


@frozen
class Script:
    """A place in a program, and the outputs that it has seen, oldest first."""

    rest: tuple[Step, ...]
    outputs: tuple[tuple[str, str], ...] = ()
    told: bool = True
    """Whether the program is the user's, and not an answer to a plain message."""

    def turn(self) -> Turn:
        """What comes next."""
        items: list[Expected] = []
        rest, calls = self.rest, False
        while rest:
            step, rest = rest[0], rest[1:]
            if _calls(step):
                items += [_call(call) for call in _calls(step)]
                calls = True
            elif "if" in step or "repeat" in step:
                rest = (*_inner(step, self.outputs), *rest)
            elif (said := self._said(step)) is not None:
                items.append(said)
            elif "fail" in step:
                return self._stop(items, "fail", (step, *rest))
            elif "stop" in step:  # it stands there, and at a failure, until a message moves it on
                reason = "tool_calls" if calls and step["stop"] == "end" else step["stop"]
                return self._stop(items, reason, (step, *rest))
            if calls and step.get("wait", bool(_calls(step))):
                return self._stop(items, "tool_calls", rest)
        return self._stop(items, "tool_calls" if calls else "end", rest)

    def past(self, count: int) -> "Script | None":
        """Where it is when it was cut behind ``count`` items of this turn. None if calls were made that it had not yet waited
        for: when it sees their results depends on what comes next."""
        rest, made, loose = self.rest, 0, False
        while rest and made < count:
            step, rest = rest[0], rest[1:]
            if calls := _calls(step):
                left = calls[count - made :]
                made += len(calls) - len(left)
                loose |= step.get("wait") is False
                rest = ({"calls": left, **({"wait": False} if loose else {})}, *rest) if left else rest
            elif "if" in step or "repeat" in step:
                rest = (*_inner(step, self.outputs), *rest)
            elif self._said(step) is not None:
                made += 1
        return None if loose else evolve(self, rest=rest)

    def read(self, outputs: Iterable[tuple[str, str]], messages: Iterable[str]) -> "Script":
        """Where it goes on after ``outputs`` (the tool's name and the text of each) and ``messages``."""
        script = evolve(self, outputs=(*self.outputs, *outputs))
        for message in messages:
            script = script._hear(message)
        return script

    def _hear(self, message: str) -> "Script":
        steps = steps_of(message)
        if steps is not None:
            return Script(steps)
        rest = self._next_point()
        if self.told and rest and ("stop" in rest[0] or "fail" in rest[0]):
            return evolve(self, rest=rest[1:])
        if self.told and rest:
            return self
        asked = message.strip()
        asked = asked if len(asked) <= ECHOED_CHARS else f"{asked[:ECHOED_CHARS]}…"
        return Script(({"say": f"You said: {asked}" if asked else "You said nothing that I can read."},), told=False)

    def _next_point(self) -> tuple[Step, ...]:
        """The rest, from where something else than reasoning is to be done."""
        rest = self.rest
        while rest:
            step = rest[0]
            if "if" in step or "repeat" in step:
                rest = (*_inner(step, self.outputs), *rest[1:])
            elif _calls(step) or "stop" in step or "fail" in step or ("say" in step and self._said(step) is not None):
                break
            else:
                rest = rest[1:]
        return rest

    def _stop(self, items: list[Expected], reason: str, rest: tuple[Step, ...]) -> Turn:
        return Turn(tuple(items), reason, evolve(self, rest=rest))

    def _said(self, step: Step) -> Expected | None:
        for key, kind in (("say", "message"), ("reason", "reasoning")):
            if key in step:
                speech = step[key]
                if isinstance(speech, dict):
                    return Expected(kind, None) if speech["tokens"] else None
                text = TEMPLATE.sub(lambda match: self._output_of(match[1])[:QUOTED_CHARS], speech)
                return Expected(kind, text) if text else None
        return None

    def _output_of(self, name: str | None) -> str:
        found = [text for of, text in self.outputs if name in (None, of)]
        return found[-1] if found else ""


def matches(expected: Expected, item: Mapping[str, Any], *, cut: bool = False) -> bool:
    """Whether ``item`` is what the script samples; of one that was ``cut``, as much as there is."""
    if item["type"] != expected.type or (expected.name is not None and item.get("name") != expected.name):
        return False
    text = said_by(item)
    if expected.text is None or text is None:
        return True
    return expected.text.startswith(text) if cut else expected.text == text


def said_by(item: Mapping[str, Any]) -> str | None:
    """What was sampled for an item."""
    for name in ("arguments", "input"):
        if name in item:
            return str(item[name])
    parts = item.get("content") if item["type"] == "message" else item.get("summary")
    return "".join(part["text"] for part in parts) if parts is not None else None


def text_of(output: str | Sequence[Mapping[str, Any]]) -> str:
    """The text of a result: a string, or text parts."""
    return output if isinstance(output, str) else "".join(part.get("text", "") for part in output)


def beginning(message: str) -> Script:
    """The script of a create request whose input is ``message``, which holds a program."""
    steps = steps_of(message)
    assert steps is not None
    return Script(steps)


def message_of(steps: Sequence[Step], tokens_per_second: float | None = None) -> str:
    """A message that holds a program."""
    pace = {} if tokens_per_second is None else {"tokens_per_second": tokens_per_second}
    return json.dumps({"program": list(steps), **pace}, ensure_ascii=False)


def steps_of(message: str) -> tuple[Step, ...] | None:
    """The program that ``message`` holds, if it is all of it."""
    if not message.startswith("{"):
        return None
    return tuple(json.loads(message)["program"])


def calls_in(steps: Iterable[Step]) -> list[Step]:
    """All calls in ``steps``, in whatever branch."""
    found: list[Step] = []
    for step in steps:
        found += [
            *_calls(step),
            *calls_in(step.get("then", ())),
            *calls_in(step.get("else", ())),
            *calls_in(step.get("steps", ())),
        ]
    return found


def _calls(step: Step) -> Sequence[Step]:
    return step["calls"] if "calls" in step else [step["call"]] if "call" in step else []


def _call(call: Step) -> Expected:
    arguments = call.get("arguments", {})
    text = arguments if isinstance(arguments, str) else None  # how a server writes an object as JSON is its own affair
    if call["name"] == HOSTED:
        return Expected("file_search_call", None, None)
    return Expected(call.get("kind", "function_call"), text, call["name"])


def _inner(step: Step, outputs: Sequence[tuple[str, str]]) -> tuple[Step, ...]:
    if "repeat" in step:
        return tuple(step["steps"]) * int(step["repeat"])
    condition = step["if"]
    seen = [text for of, text in outputs if condition.get("output_of", of) == of]
    holds = bool(seen) and condition["contains"] in seen[-1]
    return tuple(step["then"] if holds else step.get("else", ()))
