"""Frames that tests send, and what they look for in those that come."""

from collections.abc import Iterable, Mapping
from typing import Any

from protocol.client import output_for
from protocol.conformance.script import Step, message_of
from protocol.items import OUTPUT_TYPE_OF

Frame = dict[str, Any]


def create(*steps: Step, model: str = "scripted", tokens_per_second: float | None = None, **fields: Any) -> Frame:
    """A ``response.create``: of the scripted model with a program of ``steps``, if there are any."""
    body = {"input": message_of(steps, tokens_per_second) if steps else "hello"}
    return {"type": "response.create", "model": model, "continuation": "append", **body, **fields}


def append(*items: Mapping[str, Any], **fields: Any) -> Frame:
    """A ``response.append`` of ``items``."""
    return {"type": "response.append", "input": list(items), **fields}


def result(call: Mapping[str, Any], text: str = "ok") -> Frame:
    """The output item that answers ``call``."""
    return output_for(call, text)


def user(text: str) -> Frame:
    """A user message."""
    return {"type": "message", "role": "user", "content": text}


def calls_in(frames: Iterable[Mapping[str, Any]]) -> list[Frame]:
    """The client's calls that were announced as done, in order."""
    done = (frame["item"] for frame in frames if frame["type"] == "response.output_item.done")
    return [item for item in done if item["type"] in OUTPUT_TYPE_OF and item["status"] == "completed"]


def numbered(frames: Iterable[Mapping[str, Any]]) -> list[Frame]:
    """The events of a log, without their lane."""
    return [
        {key: value for key, value in frame.items() if key != "stream_id"} for frame in frames if "sequence_number" in frame
    ]
