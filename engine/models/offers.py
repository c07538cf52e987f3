"""The tools that a request offers, as far as a scripted model cares: which are custom, a shell, or named in a message."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from attrs import frozen

from protocol import codec
from protocol.errors import ProtocolError
from protocol.items import OtherItem
from protocol.requests import Tool

from .base import CallKind
from .program import Call

_SHELL_NAMES: Final = ("exec_command", "shell", "bash", "run_shell_command", "shell_command", "execute_bash", "run_command")
"""The shells of known agents, the likeliest first."""

_BY_TYPE: Final[dict[str, CallKind]] = {
    "shell": "shell_call",
    "local_shell": "local_shell_call",
    "apply_patch": "apply_patch_call",
}
"""Tools that have no name but their type."""

_SHELL_LIKE: Final = re.compile(r"shell|bash|terminal|exec", re.IGNORECASE)
_COMMAND_KEYS: Final = ("cmd", "command", "commands", "script")
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
"""Shorter words say little: ``get``, ``the``."""

SCHEMA_DEPTH: Final = 8
"""How deep the objects in made-up arguments are filled in."""

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
        self._types: set[str] = set()
        self.add(tools)

    def add(self, tools: Iterable[Tool]) -> None:
        """Offer more."""
        for tool in tools:
            if tool.type in _BY_TYPE:
                self._types.add(tool.type)
            elif tool.name and tool.type in ("function", "custom"):
                self._by_name[tool.name] = tool

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
        if tool is None and name in self._types:
            return _BY_TYPE[name]
        return "custom_tool_call" if tool is not None and tool.type == "custom" else "function_call"

    def shell(self) -> Shell | None:
        """The tool that runs commands, if there is one."""
        likely = [name for name in _SHELL_NAMES if name in self._by_name]
        for name in [*likely, *(name for name in self._by_name if _SHELL_LIKE.search(name))]:
            write = _writer(self._by_name[name], is_known=name in _SHELL_NAMES)
            if write is not None:
                return Shell(name, write)
        return None

    def named_in(self, message: str) -> Call | None:
        """A call of the first function whose name has a word in common with ``message``; its arguments are made up."""
        said = _words(message)
        for name, tool in self._by_name.items():
            if tool.type == "function" and said & _words(name):
                return Call(name, _json(_required(tool.parameters or {}, SCHEMA_DEPTH)))
        return None


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))}


def _required(schema: Any, depth: int) -> dict[str, Any]:
    """Something for each property that ``schema`` requires."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list) or not depth:
        return {}
    return {name: _made_up(properties.get(name), name, depth - 1) for name in required if isinstance(name, str)}


def _made_up(schema: Any, name: str, depth: int) -> Any:
    """What ``_filler`` gives, but objects with what they require, and texts that are not empty: ``name``."""
    value = _filler(schema)
    if value == {}:
        return _required(schema, depth)
    return name if value == "" and "default" not in schema else value


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
