"""An agent for fastresponses that does the kit's programs: its engine, its store and its transports are what is tested.

``PYTHONPATH=. fastresponses serve tests/conformance/peers/fastresponses_adapter.py:adapter --port 8090``
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

from fastresponses import AdapterError, AgentAdapter, AgentRun, Incomplete, ItemDone, ReasoningDelta, TextDelta, UsageDelta
from fastresponses.models import CustomItem, FunctionCallItem

from protocol.conformance.script import Expected, Script

Item = dict[str, Any]
CHARS = 5
"""How long a delta is."""


class Programs(AgentAdapter):  # type: ignore[misc]  # fastresponses is not there when types are checked
    """Does the program in the last message that holds one."""

    name = "sostenuto"
    default_model = "scripted"

    async def run(self, run: AgentRun) -> AsyncIterator[Any]:
        """The next turn of the program that the context holds."""
        context = [item.model_dump() for item in run.context_items]
        turn = script_of(context).turn()
        for item in turn.items:
            for event in _events(item):
                yield event
        given, made = len(json.dumps(context)) // 4, sum(1 + len(item.text or "") // 4 for item in turn.items)
        yield UsageDelta(input_tokens=given, output_tokens=made, total_tokens=given + made)
        if turn.reason == "fail":
            raise AdapterError("as asked")
        if turn.reason not in ("tool_calls", "end"):
            yield Incomplete(turn.reason)


def _events(item: Expected) -> Iterator[Any]:
    text = "word " * 30 if item.text is None else item.text
    call_id = f"call_{uuid4().hex}"
    if item.type == "function_call":
        yield ItemDone(
            FunctionCallItem(id=f"fc_{uuid4().hex}", call_id=call_id, name=item.name, arguments=text, status="completed")
        )
    elif item.type == "custom_tool_call":
        yield ItemDone(CustomItem(type=item.type, id=f"ctc_{uuid4().hex}", call_id=call_id, name=item.name, input=text))
    else:
        made = TextDelta if item.type == "message" else ReasoningDelta
        yield from (made(text[at : at + CHARS]) for at in range(0, len(text), CHARS))


def script_of(context: list[Item]) -> Script:
    """Where the program stands after ``context``."""
    script = Script((), told=False)
    names: dict[str, str] = {}
    for given, made in _turns(context):
        texts = [_text(item["content"]) for item in given if item.get("role") == "user"]
        outputs = [(names.get(item["call_id"], ""), _text(item["output"])) for item in given if "output" in item]
        script = script.read(outputs, texts)
        names |= {item["call_id"]: item["name"] for item in made if "call_id" in item}
        script = script.turn().after if made else script
    return script


def _turns(context: list[Item]) -> Iterator[tuple[list[Item], list[Item]]]:
    """What came from outside, and what the model made of it, in turns."""
    given: list[Item] = []
    made: list[Item] = []
    for item in context:
        ours = item["type"].endswith("_call") or item["type"] == "reasoning" or item.get("role") == "assistant"
        if made and not ours:
            yield given, made
            given, made = [], []
        (made if ours else given).append(item)
    yield given, made


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


adapter = Programs()
