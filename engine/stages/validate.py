"""Stage ``validate``: whether a create request can be served. Raises ``ProtocolError`` with the path of what is wrong.

The codec has checked the types of all fields already; here are ranges, and how fields fit each other and the context: each
tool output answers one call before it, with the right kind, once, and no call stays unanswered (nothing is repaired).
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from protocol import limits
from protocol.errors import ProtocolError
from protocol.fields import Json
from protocol.items import (
    CALL_CLASSES,
    OUTPUT_CLASSES,
    OUTPUT_TYPE_OF,
    CallItem,
    Item,
    answered_call_id,
)
from protocol.requests import CreateRequest, Tool

from .answer_format import check_format

INCLUDABLE: Final = frozenset(
    {
        "reasoning.encrypted_content",
        "file_search_call.results",
        "message.input_image.image_url",
        "web_search_call.results",
        "web_search_call.action.sources",
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
    }
)
"""What may be asked for with ``include``. Results of searches are always there; of the rest there is nothing to leave out."""

Check = Callable[[Any], bool]
RANGES: Final[dict[str, tuple[Check, str]]] = {
    "model": (lambda v: len(v) > 0, "not empty"),
    "max_output_tokens": (lambda v: v >= 1, "at least 1"),
    "max_tool_calls": (lambda v: v >= 1, "at least 1"),
    "temperature": (lambda v: 0 <= v <= 2, "from 0 to 2"),
    "top_p": (lambda v: 0 <= v <= 1, "from 0 to 1"),
    "top_logprobs": (lambda v: v == 0, "0: the models here give no log probabilities"),
    "presence_penalty": (lambda v: -2 <= v <= 2, "from -2 to 2"),
    "frequency_penalty": (lambda v: -2 <= v <= 2, "from -2 to 2"),
    "tools": (lambda v: len(v) <= limits.TOOLS, f"at most {limits.TOOLS} tools"),
    "input": (lambda v: isinstance(v, str) or len(v) <= limits.INPUT_ITEMS, f"at most {limits.INPUT_ITEMS} items"),
    "idempotency_key": (lambda v: 0 < len(v) <= limits.IDEMPOTENCY_KEY_CHARS, "from 1 to 256 characters"),
    "include": (lambda v: set(v) <= INCLUDABLE, f"any of {', '.join(sorted(INCLUDABLE))}"),
    "service_tier": (lambda v: v in ("auto", "default"), "auto or default: there is one tier here"),
    "metadata": (lambda v: _metadata_fits(v), "at most 16 pairs, keys of 64 and string values of 512 characters"),
    "tool_choice": (lambda v: isinstance(v, dict) or v in ("none", "auto", "required"), "none, auto, required, or a tool"),
}
"""What a field must be, and how an error says so."""
_ranged: Final = attrgetter(*RANGES)

NO_BACKGROUND: Final = (lambda v: v is True, "over a WebSocket a Response is not a background one")
ONLY_APPEND: Final = "it belongs to the append shape, which this Response is not of"
ONLY_SOCKETS: Final = "it belongs to WebSockets"
UNSUPPORTED: Final[dict[str, dict[str, tuple[Check, str]]]] = {
    "append": {
        "background": NO_BACKGROUND,
        "conversation": (lambda v: v is not None, 'use hold: "conversation", or previous_response_id'),
        "generate": (lambda v: v is False, "a warm-up has no use where the Response stays live"),
    },
    "create": {
        "background": NO_BACKGROUND,
        "hold": (lambda v: v == "conversation", ONLY_APPEND),
    },
    "http": {
        "generate": (lambda v: v is False, ONLY_SOCKETS),
        "stream_id": (lambda v: v is not None, ONLY_SOCKETS),
        "hold": (lambda v: v == "conversation", ONLY_APPEND),
    },
}
"""By shape, fields that say something which is not served, and why, or what to do instead."""


def check_request(request: CreateRequest, shape: str) -> None:
    """Check the fields by themselves."""
    for name, value in zip(RANGES, _ranged(request), strict=True):
        if value is not None:
            check_range(name, value)
    for name, (asks, why) in UNSUPPORTED[shape].items():
        if asks(getattr(request, name)):
            raise ProtocolError("unsupported_parameter", f"{name}: not supported here; {why}", name)
    if request.conversation is not None and request.previous_response_id is not None:
        message = "previous_response_id: not together with conversation; each says what comes before"
        raise ProtocolError("invalid_value", message, "previous_response_id")
    check_tools(request.tools)
    check_format(request.text)


def check_range(name: str, value: Any) -> None:
    """Check one field of ``RANGES``, of whatever request or frame it is; None is not given."""
    fits, allowed = RANGES[name]
    if value is not None and not fits(value):
        raise ProtocolError("invalid_value", f"{name}: must be {allowed}", name)


def check_tools(tools: Sequence[Tool]) -> None:
    """Function and custom tools have names, and no two the same."""
    seen: dict[str, int] = {}
    for index, tool in enumerate(tools):
        if tool.type not in ("function", "custom"):
            continue
        if not tool.name:
            raise ProtocolError("missing_required_parameter", f"tools[{index}].name: missing", f"tools[{index}].name")
        if tool.name in seen:
            message = f"tools[{index}].name: {tool.name!r} is also the name of tools[{seen[tool.name]}]"
            raise ProtocolError("invalid_value", message, f"tools[{index}].name")
        seen[tool.name] = index


def check_pairing(waiting: Mapping[str, CallItem], new: Sequence[Item]) -> None:
    """Check that every call in ``new``, and each that waits from before, is answered once, behind it, by the right kind.

    ``waiting`` are the open calls of the context that ``new`` (the request's input) continues, by id.
    """
    waits = dict(waiting)
    answered: set[str] = set()
    for index, item in enumerate(new):
        path = f"input[{index}]"
        if isinstance(item, CALL_CLASSES):
            if item.status == "incomplete":
                continue  # cut short: it was never run
            if item.call_id in waits:
                raise _pairing("tool_output_missing", path, f"call {item.call_id!r} is still waiting for its output")
            waits[item.call_id] = item
        elif isinstance(item, OUTPUT_CLASSES):
            _close_pair(item, path, waits, answered)
    if waits:
        raise _pairing("tool_output_missing", "input", f"no tool output for the calls {', '.join(waits)}")


def _close_pair(item: Any, path: str, waiting: dict[str, CallItem], answered: set[str]) -> None:
    call_id = answered_call_id(item) or ""
    call = waiting.pop(call_id, None)
    if call is None:
        code = "tool_output_conflict" if call_id in answered else "tool_call_not_found"
        known = ", ".join(waiting) or "none"
        raise _pairing(code, path, f"no call {call_id!r} waits for an output; calls that wait: {known}")
    if OUTPUT_TYPE_OF[call.type] != item.type:
        expected = OUTPUT_TYPE_OF[call.type]
        raise _pairing("tool_output_type_mismatch", path, f"call {call_id!r} takes a {expected}, got a {item.type}")
    answered.add(call_id)


def _pairing(code: str, path: str, message: str) -> ProtocolError:
    return ProtocolError(code, f"{path}: {message}", path)


def _metadata_fits(metadata: dict[str, Any]) -> bool:
    return len(metadata) <= limits.METADATA_PAIRS and all(
        len(key) <= limits.METADATA_KEY_CHARS and isinstance(value, str) and len(value) <= limits.METADATA_VALUE_CHARS
        for key, value in metadata.items()
    )


def callable_tools(choice: str | Json) -> frozenset[str] | None:
    """The names of the tools that may be called, by ``tool_choice``; None for all. A hard limit, whatever the model does."""
    if choice == "none":
        return frozenset()
    if isinstance(choice, str):
        return None
    tools = choice.get("tools", ()) if choice.get("type") == "allowed_tools" else (choice,)
    return frozenset(tool.get("name") or tool.get("type", "") for tool in tools if isinstance(tool, dict))
