"""Calls of all kinds as calls of functions, for models and servers that know no others."""

from collections.abc import Callable
from typing import Any, Final

from protocol.codec import to_wire
from protocol.items import ApplyPatchCall, CallItem, CustomToolCall, FileSearchCall, FunctionCall

CUSTOM_INPUT: Final = "input"
"""The one parameter of a custom tool."""


def function_of(call: CallItem | FileSearchCall, dumps: Callable[[Any], str]) -> tuple[str, str]:
    """The name of the function that stands for a call, and its arguments in JSON, which ``dumps`` writes.

    Those of a function are as they were sampled. A tool that is known by its type is a function of that name.
    """
    if isinstance(call, FunctionCall):
        return call.name, call.arguments or "{}"
    if isinstance(call, CustomToolCall):
        return call.name, dumps({CUSTOM_INPUT: call.input})
    if isinstance(call, FileSearchCall):
        asked = {key: call.extra[key] for key in ("max_num_results",) if key in call.extra}
        return "file_search", dumps({"queries": list(call.queries), **asked})
    asks = call.operation if isinstance(call, ApplyPatchCall) else call.action
    return call.type.removesuffix("_call"), dumps(to_wire(asks))
