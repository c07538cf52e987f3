"""The tools of an agent that is a client: how they are described, found and run, and how their results are said.

A tool is an async function, or a ``tools.spec.Tool``. Whatever it raises is for the model to read, and none of ours.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any, Final, cast, get_origin

from protocol.client import Frame, output_for
from protocol.codec import encode, item_from_wire, parse, to_wire
from protocol.items import CallItem
from tools.spec import Tool

Output = str | list[Frame]
"""What a tool gives: text, or content parts."""
ToolFunction = Callable[..., Awaitable[Output]]
"""Takes the arguments as one dictionary, when it has a single parameter for it (``arguments``, or annotated ``dict``
or not at all); else as keywords."""
Tools = Mapping[str, ToolFunction | Tool] | Iterable[Tool]


class Toolbox:
    """The tools of a run, found by the name that a call has, or, for those without names, by the type of the call."""

    def __init__(self, tools: Tools, definitions: Sequence[Mapping[str, Any]]) -> None:
        named: dict[str, ToolFunction | Tool] = {}
        named |= tools if isinstance(tools, Mapping) else {tool.spec.name: tool for tool in tools}
        self._tools = dict(named)
        for tool in named.values():
            if not callable(tool) and tool.spec.type not in ("function", "custom"):
                self._tools[tool.spec.type] = tool
        given = {definition.get("name", definition["type"]) for definition in definitions}
        self.definitions = [dict(definition) for definition in definitions]
        self.definitions += [_describe(name, tool) for name, tool in named.items() if name not in given]

    async def answer(self, call: Frame) -> Frame:
        """Run ``call``; the output item that answers it, which JSON can say. Cancellation is the tool's own matter."""
        try:
            name = call.get("name") or call["type"].removesuffix("_call")
            if name not in self._tools:
                raise LookupError(f"no such tool: {name}")
            tool = self._tools[name]
            if callable(tool):
                item = output_for(call, await _call_function(tool, call))
            else:
                item = to_wire((await tool.call(cast(CallItem, item_from_wire(call)))).item)
            encode(item)
        except Exception as error:
            while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
            text = f"error: {type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
            return output_for(call, text, failed=True)
        return item


async def _call_function(function: ToolFunction, call: Frame) -> Output:
    arguments = _arguments(call)
    output = await (function(arguments) if _takes_dict(_parameters(function)) else function(**arguments))
    if not isinstance(output, str | list):
        raise TypeError(f"a tool gives a string or a list of content parts, not {type(output).__name__}")
    return output


def _arguments(call: Frame) -> dict[str, Any]:
    if call["type"] != "function_call":
        return {"input": call["input"]} if "input" in call else call.get("action") or call["operation"]
    arguments = parse(call["arguments"] or "{}")
    if not isinstance(arguments, dict):
        raise TypeError("the arguments are not a JSON object")
    return arguments


def _parameters(function: ToolFunction) -> list[Parameter]:
    try:
        return list(inspect.signature(function, eval_str=True).parameters.values())
    except NameError:
        return list(inspect.signature(function).parameters.values())


def _takes_dict(parameters: list[Parameter]) -> bool:
    if len(parameters) != 1 or parameters[0].kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        return False
    kind = parameters[0].annotation
    kinds = (dict, Mapping, Parameter.empty, Any)
    return parameters[0].name == "arguments" or kind in kinds or get_origin(kind) in (dict, Mapping)


_JSON_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


def _describe(name: str, tool: ToolFunction | Tool) -> dict[str, Any]:
    """A tool's own definition; for a function the least that can be said of it."""
    if not callable(tool):
        return tool.spec.to_wire()
    parameters = _parameters(tool)
    if _takes_dict(parameters):
        parameters = []
    types = {parameter.name: get_origin(parameter.annotation) or parameter.annotation for parameter in parameters}
    schema = {
        "type": "object",
        "properties": {name: {"type": _JSON_TYPES[t]} if t in _JSON_TYPES else {} for name, t in types.items()},
        "required": [parameter.name for parameter in parameters if parameter.default is Parameter.empty],
    }
    return {"type": "function", "name": name, "description": inspect.getdoc(tool) or "", "parameters": schema}
