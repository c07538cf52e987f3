"""An agent for fastresponses that does the kit's programs: its engine, its store and its transports are what is tested.

``PYTHONPATH=. fastresponses serve tests/conformance/peers/fastresponses_adapter.py:adapter --port 8090``
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from uuid import uuid4

from fastresponses import AdapterError, AgentAdapter, AgentRun, Incomplete, ItemDone, ReasoningDelta, TextDelta, UsageDelta
from fastresponses.models import CustomItem, FunctionCallItem, ResponsesRequest

from protocol.conformance.script import Expected, Script

Item = dict[str, Any]
CHARS = 5
"""Of a token, and so of a delta."""
LONG = "word " * 400
"""What is said where only a number of tokens is asked for."""


class Programs(AgentAdapter):  # type: ignore[misc]  # fastresponses is not there when types are checked
    """Does the program in the last message that holds one."""

    name = "sostenuto"
    default_model = "scripted"

    async def run(self, run: AgentRun) -> AsyncIterator[Any]:
        """The next turn of the program that the context holds."""
        context = [item.model_dump() for item in run.context_items]
        check(context)
        turn, left = script_of(context).turn(), run.request.max_output_tokens or sys.maxsize
        pause = 1 / pace if (pace := pace_of(context)) else 0.0
        made = 0
        for event, tokens in (one for item in _allowed(turn.items, run.request) for one in _events(item)):
            made += tokens
            if made > left:
                break
            await asyncio.sleep(pause * tokens)
            yield event
        given = len(json.dumps([run.request.instructions, *context])) // CHARS
        yield UsageDelta(input_tokens=given, output_tokens=min(made, left), total_tokens=given + min(made, left))
        if made > left:
            yield Incomplete("max_output_tokens")
        elif turn.reason == "fail":
            raise AdapterError("as asked")
        elif turn.reason not in ("tool_calls", "end"):
            yield Incomplete(turn.reason)


def check(context: list[Item]) -> None:
    """What the adapters that come with fastresponses check, too; raises ``AdapterError``."""
    waiting: set[str] = set()
    for item in context:
        if "output" not in item:
            waiting |= {item["call_id"]} if "call_id" in item else set()
        elif item["call_id"] in waiting:
            waiting.remove(item["call_id"])
        else:
            message = f"No tool call with call_id '{item['call_id']}' is awaiting output in this conversation."
            raise AdapterError(message, type="invalid_request", code="invalid_value", param="input")


def _allowed(items: Sequence[Expected], request: ResponsesRequest) -> list[Expected]:
    """``items`` without calls that the request doesn't want."""
    most = 0 if request.tool_choice == "none" else 1 if request.parallel_tool_calls is False else sys.maxsize
    kept: list[Expected] = []
    for item in items:
        if item.name is None or sum(one.name is not None for one in kept) < most:
            kept.append(item)
    return kept


def _events(item: Expected) -> Iterator[tuple[Any, int]]:
    """The adapter's events, and how many tokens each is. A call is one event, as in the adapters that come with it."""
    text = LONG if item.text is None else item.text
    call_id = f"call_{uuid4().hex}"
    if item.type == "function_call":
        call = FunctionCallItem(id=f"fc_{uuid4().hex}", call_id=call_id, name=item.name, arguments=text, status="completed")
        yield ItemDone(call), 1 + len(text) // CHARS
    elif item.type == "custom_tool_call":
        custom = CustomItem(type=item.type, id=f"ctc_{uuid4().hex}", call_id=call_id, name=item.name, input=text)
        yield ItemDone(custom), 1 + len(text) // CHARS
    else:
        made = TextDelta if item.type == "message" else ReasoningDelta
        yield from ((made(text[at : at + CHARS]), 1) for at in range(0, len(text), CHARS))


def pace_of(context: list[Item]) -> float | None:
    """Tokens a second, if the last program says."""
    programs = [text for item in context if item.get("role") == "user" and (text := _text(item["content"])).startswith("{")]
    return json.loads(programs[-1]).get("tokens_per_second") if programs else None


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
