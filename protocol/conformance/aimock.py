"""The adapter for aimock (npm ``@copilotkit/aimock``), a mock that answers by fixtures.

A fixture says which answer belongs to which request. For the programs below they are made by ``fixtures``, one for each turn:
the first is known by the program in the last user message, and each later one by the result that the request ends with, since
call ids are the fixtures' own. So the mock does these programs to the letter, and no others::

    python -m protocol.conformance.aimock > fixtures.json
    npx @copilotkit/aimock --fixtures fixtures.json --port 4010

Programs have text, reasoning and functions. aimock has no custom tools, and its answers can't quote a result.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from .adapters import CannotSteer, Program, Programs
from .script import Expected, Script, beginning, message_of
from .transport import Frame

PROGRAMS: Final[Sequence[Program]] = (
    ({"say": "Hello."},),
    ({"say": "Still here."},),
    ({"say": "Fine."},),
    ({"say": "Whole."},),
    ({"say": "a" + "🎹🎻🎺🥁" * 8}, {"say": 'naïve café ☕, a "quoted" \\ word\nand a line'}),
    ({"reason": "I see."}, {"say": "Done."}),
    ({"call": {"name": "read", "arguments": '{"path":"é/🎹.txt"}'}}, {"say": "Done."}),
    ({"say": "Let me see."}, {"call": {"name": "shell", "arguments": '{"cmd": "ls"}'}}, {"say": "Done."}),
    (
        {"calls": [{"name": "t0", "arguments": "{}"}, {"name": "t1", "arguments": '{"n": 1.0}'}]},
        {"say": "Both are there."},
    ),
    (
        {"reason": "First this, then that."},
        {"call": {"name": "read", "arguments": "{}"}},
        {"say": "And now that."},
        {"calls": [{"name": "write", "arguments": '{"path": "a"}'}, {"name": "write", "arguments": '{"path": "b"}'}]},
        {"call": {"name": "t0", "arguments": "not json"}},
        {"say": "Done."},
    ),
    ({"say": "As far as I get."}, {"stop": "max_output_tokens"}),
)
"""What aimock is steered by."""


class Aimock(Programs):
    """aimock, started with ``fixtures``."""

    programs = PROGRAMS

    def __init__(self, model: str = "gpt-5") -> None:
        super().__init__(model)

    def opening(self, steps: Program, *, tokens_per_second: float | None = None) -> Frame:  # noqa: ARG002
        """The program alone: its speed is the mock's affair, and would be another text."""
        if tuple(steps) not in PROGRAMS:
            raise CannotSteer("there are no fixtures for this program")
        return super().opening(steps)


def fixtures(programs: Sequence[Program] = PROGRAMS) -> Frame:
    """The fixtures by which aimock does ``programs``; raises ``ValueError`` for what it can't do."""
    turns = [turn for number, steps in enumerate(programs) for turn in _turns(steps, f"call_p{number}")]
    return {"fixtures": [{"match": match, "response": response} for match, response in turns]}


def _turns(steps: Program, prefix: str) -> Iterator[tuple[Frame, Frame]]:
    """For each turn what the request is known by, and the answer."""
    text = message_of(steps)
    script: Script = beginning(text)
    matches: list[Frame] = [{"userMessage": text, "hasToolResult": False}]
    while True:
        turn = script.turn()
        ids = iter(f"{prefix}_{number}" for number in range(len(script.outputs), 1_000))
        blocks = [_block(item, ids) for item in turn.items if item.type != "reasoning"]
        answer = _answer(blocks, [str(item.text) for item in turn.items if item.type == "reasoning"], turn.reason)
        yield from ((match, answer) for match in matches)
        calls = [block for block in blocks if block["type"] == "toolCall"]
        if not calls:
            return
        matches = [{"toolCallId": call["id"]} for call in calls]
        script = turn.after.read([(call["name"], "") for call in calls], [])


def _block(item: Expected, ids: Iterator[str]) -> Frame:
    if item.text is None or item.type not in ("message", "function_call"):
        raise ValueError(f"aimock can't be told to make this: {item}")
    if item.type == "message":
        return {"type": "text", "text": item.text}
    return {"type": "toolCall", "name": item.name, "arguments": item.text, "id": next(ids)}


def _answer(blocks: list[Frame], reasoning: list[str], reason: str) -> Frame:
    answer: dict[str, Any] = {"blocks": blocks}
    if len(reasoning) > 1 or not blocks:
        raise ValueError("an answer of aimock has at most one piece of reasoning, and something behind it")
    if reasoning:
        answer["reasoning"] = reasoning[0]
    if reason not in ("tool_calls", "end"):
        answer["finishReason"] = {"max_output_tokens": "length", "content_filter": "content_filter"}[reason]
    return answer


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fixtures(), indent=1))
