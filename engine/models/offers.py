"""The tools that a request offers, as far as a scripted model cares: which are custom, and which is a shell."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from attrs import frozen

from protocol import codec
from protocol.errors import ProtocolError
from protocol.items import OtherItem
from protocol.requests import Tool

from .program import Call, CallKind

_SHELL_NAMES: Final = ("exec_command", "shell", "bash", "run_shell_command", "shell_command", "execute_bash", "run_command")
"""The shells of known agents, the likeliest first."""

_SHELL_LIKE: Final = re.compile(r"shell|bash|terminal|exec", re.IGNORECASE)
_COMMAND_KEYS: Final = ("cmd", "command", "commands", "script")
_NOTHING: Final[dict[str, Any]] = {"string": "", "boolean": False, "array": [], "object": {}, "integer": 1, "number": 1}


@frozen
class Shell:
    """A tool that runs commands."""

    name: str
    write: Callable[[str], str]
    """From a command to the call's arguments."""

    def call(self, command: str) -> Call:
        """The call that runs ``command``."""
        return Call(self.name, self.write(command))


class Offers:
    """What the request offers; ``additional_tools`` items in the context add to it."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._by_name: dict[str, Tool] = {}
        self.add(tools)

    def add(self, tools: Iterable[Tool]) -> None:
        """Offer more."""
        self._by_name.update((tool.name, tool) for tool in tools if tool.name and tool.type in ("function", "custom"))

    def add_item(self, item: OtherItem) -> None:
        """Offer what an ``additional_tools`` item lists; what can't be read is not ours to judge."""
        listed = item.extra.get("tools")
        for wire in listed if isinstance(listed, list) else ():
            try:
                self.add([codec.from_wire(wire, Tool)])
            except ProtocolError:
                continue

    def kind_of(self, name: str) -> CallKind:
        """The kind of a call of ``name``; a tool that is not offered is taken for a function."""
        tool = self._by_name.get(name)
        return "custom_tool_call" if tool is not None and tool.type == "custom" else "function_call"

    def shell(self) -> Shell | None:
        """The tool that runs commands, if there is one."""
        likely = [name for name in _SHELL_NAMES if name in self._by_name]
        for name in [*likely, *(name for name in self._by_name if _SHELL_LIKE.search(name))]:
            write = _writer(self._by_name[name], is_known=name in _SHELL_NAMES)
            if write is not None:
                return Shell(name, write)
        return None


def _writer(tool: Tool, is_known: bool) -> Callable[[str], str] | None:
    if tool.type == "custom":
        return lambda command: command
    schema = tool.parameters or {}
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        key = "cmd" if tool.name == "exec_command" else "command"
        return (lambda command: _json({key: command})) if is_known else None
    for key in _COMMAND_KEYS:
        types = _types(properties.get(key))
        if "string" in types:
            return lambda command: _json({**_others(schema, key), key: command})
        if "array" in types:
            return lambda command: _json({**_others(schema, key), key: ["bash", "-lc", command]})
    return None


def _types(schema: Any) -> tuple[str, ...]:
    kind = schema.get("type") if isinstance(schema, dict) else None
    kinds = kind if isinstance(kind, list) else [kind]
    return tuple(one for one in kinds if isinstance(one, str))


def _others(schema: Any, but: str) -> dict[str, Any]:
    """Something for each other argument that is required: strict tools require all."""
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str) and name != but] if isinstance(required, list) else []
    return {name: _filler(schema["properties"].get(name)) for name in names}


def _filler(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return None
    if "default" in schema:
        return schema["default"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    types = _types(schema)
    return None if "null" in types or not types else _NOTHING.get(types[0])


def _json(value: Any) -> str:
    return codec.encode(value).decode()
