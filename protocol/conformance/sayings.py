"""What the kit's clients say: items that they put into requests."""

from collections.abc import Mapping
from typing import Any

from ..items import OUTPUT_TYPE_OF
from .transport import Frame

Call = Mapping[str, Any]


def result_of(call: Call) -> Frame:
    """The result of ``call``: each call has one, always the same, and no two the same."""
    number = int(str(call["call_id"]).encode().hex(), 16) % 9973
    name = call["name"]
    texts = [f"{name} returned {number}", f'{{"exit": 0, "of": "{name}", "n": {number}}}', f"ok ✓ {name} 🎹 {number}"]
    text: Any = texts[number % 3]
    if number % 5 == 0:
        text = [{"type": "input_text", "text": text}, {"type": "input_text", "text": " and more"}]
    return {"type": OUTPUT_TYPE_OF[call["type"]], "call_id": call["call_id"], "output": text}


def bare(call: Call) -> Frame:
    """``call`` as some clients send it again."""
    return {key: value for key, value in call.items() if key not in ("id", "status")}


def user(text: str) -> Frame:
    """A user message."""
    return {"type": "message", "role": "user", "content": text}
