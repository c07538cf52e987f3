"""What is said in a rollout, the same on every side: a task, then for ever a word, a call of a tool, and its output of 2 KB."""

import json
from typing import Any, Final

MODEL: Final = "gpt-5"
"""A name that all of them take."""
TASK: Final = "Look around."
TEXT: Final = "Now"
TOOL_NAME: Final = "look"
ARGUMENTS: Final = '{"at":"README"}'
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "name": TOOL_NAME,
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
OUTPUT: Final = ("README.md  src/engine.py  tests/test_engine.py  pyproject.toml\n" * 40)[:2048]
"""A tool's output of 2 KB."""


def encoded(value: Any) -> bytes:
    """``value`` as JSON, without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()
