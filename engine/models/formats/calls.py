"""Tools and calls as the formats have them: all tools are functions, and all calls JSON objects.

| tool | as a function | its call's arguments |
|---|---|---|
| ``function`` | itself | as they were sampled, byte for byte |
| ``custom`` | with one string, ``input`` | ``{"input": "…"}`` |
| ``shell``, ``local_shell``, ``apply_patch`` | by that name | the call's ``action`` or ``operation`` |
| ``file_search`` | by that name | ``{"queries": […]}`` |

Tools of other types are not told to the model: it could only make calls that nobody here can answer. A call is one only if
its tool was offered and its arguments are an object; those of a tool that is known by its type must also be of its form.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from attrs import frozen

from protocol.codec import from_wire, parse
from protocol.errors import ProtocolError
from protocol.fields import Json
from protocol.items import (
    LocalShellAction,
    PatchOperation,
    ShellAction,
)
from protocol.requests import Tool

from ..base import CallKind

_TEXT: Final[Json] = {"type": "string"}
_TEXTS: Final[Json] = {"type": "array", "items": _TEXT, "minItems": 1}


def _object(required: Json, **optional: Json) -> Json:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


@frozen
class Function:
    """A tool as the model knows it."""

    name: str
    kind: CallKind
    description: str
    parameters: Json

    def as_json(self) -> Json:
        """As chat templates list it."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


_INPUT: Final = _object({"input": _TEXT})
_KNOWN: Final = {
    known.name: known
    for known in (
        Function(
            "shell", "shell_call", "Runs commands in a shell.", _object({"commands": _TEXTS}, timeout_ms={"type": "integer"})
        ),
        Function(
            "local_shell",
            "local_shell_call",
            "Runs a program with its arguments.",
            _object(
                {
                    "type": {"const": "exec"},
                    "command": _TEXTS,
                    "env": {"type": "object", "additionalProperties": _TEXT},
                },
                working_directory=_TEXT,
                timeout_ms={"type": "integer"},
            ),
        ),
        Function(
            "apply_patch",
            "apply_patch_call",
            "Creates, updates or deletes a file; diff is in the V4A format, and left out to delete.",
            _object({"type": {"enum": ["create_file", "update_file", "delete_file"]}, "path": _TEXT}, diff=_TEXT),
        ),
        Function(
            "file_search",
            "function_call",
            "Searches the project's files by words, names or identifiers.",
            _object({"queries": {**_TEXTS, "maxItems": 16}}),
        ),
    )
}
"""Tools that are known by their type."""

_FORMS: Final[dict[str, type[Any]]] = {
    "shell_call": ShellAction,
    "local_shell_call": LocalShellAction,
    "apply_patch_call": PatchOperation,
}


def functions(tools: Iterable[Tool]) -> dict[str, Function]:
    """What can be called, by name, in the order of ``tools``."""
    found: dict[str, Function] = {}
    for tool in tools:
        if tool.type == "function" and tool.name:
            parameters = tool.parameters or {"type": "object", "properties": {}}
            found[tool.name] = Function(tool.name, "function_call", tool.description or "", parameters)
        elif tool.type == "custom" and tool.name:
            found[tool.name] = Function(tool.name, "custom_tool_call", _described(tool), _INPUT)
        elif tool.type in _KNOWN:
            found[tool.type] = _KNOWN[tool.type]
    return found


def _described(tool: Tool) -> str:
    """A custom tool's description, with the grammar of its input, if it has one."""
    form = tool.extra.get("format")
    grammar = form.get("definition") if isinstance(form, Mapping) else None
    parts = [tool.description, f"The input follows this grammar:\n{grammar}" if grammar else None]
    return "\n\n".join(part for part in parts if part)


# ---- writing


def dumps(value: Any) -> str:
    """JSON as chat templates write it: with a space behind each comma and colon, and letters as they are."""
    return json.dumps(value, ensure_ascii=False)


# ---- reading


@frozen
class Found:
    """A call in a text."""

    function: Function
    arguments: tuple[int, int]
    """From where to where its arguments are."""
    content: str | None
    """What they say, if that is not their text: the input of a custom tool."""
    end: int
    """Where the call ends."""


def find_call(
    text: str, at: int, offered: Mapping[str, Function], arguments: str, plain: Callable[[str], str] = str
) -> Found | None:
    """The call at ``text[at:]``: ``{"name": …, ARGUMENTS: {…}}``, with the two in any order.

    ``arguments`` is how the format names them; ``plain`` makes of a part of ``text`` what it says. None if there is no call
    of a tool that is offered.
    """
    members = _members(text, at)
    if members is None or {*members[0]} - {"type"} != {"name", arguments}:
        return None
    places, end = members
    name, value = (_value(plain(text[slice(*places[key])])) for key in ("name", arguments))
    function = offered.get(name) if isinstance(name, str) else None
    if function is None or not isinstance(value, dict) or not _fits(function, value):
        return None
    return Found(function, places[arguments], value["input"] if function.kind == "custom_tool_call" else None, end)


def _fits(function: Function, value: Json) -> bool:
    """Whether arguments have the form that the kind of call needs; of a function any object has."""
    if function.kind == "custom_tool_call":
        return [*value] == ["input"] and isinstance(value["input"], str)
    try:
        return function.kind not in _FORMS or from_wire(value, _FORMS[function.kind]) is not None
    except ProtocolError:
        return False


def _value(text: str) -> Any:
    try:
        return parse(text)
    except ProtocolError:
        return None


_BLANK: Final = re.compile(r"[ \t\r\n]*")
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR: Final = re.compile(r"[-+.\w]+")
_NEXT: Final = re.compile(r'["\[\]{}]')


def _members(text: str, at: int) -> tuple[dict[str, tuple[int, int]], int] | None:
    """The members of the JSON object at ``text[at:]``, each with the place of its value; and where the object ends."""
    places: dict[str, tuple[int, int]] = {}
    at, mark = _skip(text, at), "{"
    while text[at : at + 1] == mark:
        key = _STRING.match(text, _skip(text, at + 1))
        colon = _skip(text, key.end()) if key else -1
        if key is None or text[colon : colon + 1] != ":" or key[0][1:-1] in places:
            return None
        start = _skip(text, colon + 1)
        end = _value_end(text, start)
        if end is None:
            return None
        places[key[0][1:-1]] = (start, end)
        at, mark = _skip(text, end), ","
    return (places, at + 1) if places and text[at : at + 1] == "}" else None


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def _value_end(text: str, at: int) -> int | None:
    """Where the JSON value ends that begins at ``text[at:]``, by its brackets; None if it does not."""
    depth = 0
    if text[at : at + 1] not in ("{", "["):
        match = (_STRING if text[at : at + 1] == '"' else _SCALAR).match(text, at)
        return match.end() if match else None
    while (mark := _NEXT.search(text, at)) is not None:
        at = mark.end()
        if mark[0] == '"':
            string = _STRING.match(text, mark.start())
            if string is None:
                return None
            at = string.end()
            continue
        depth += 1 if mark[0] in "[{" else -1
        if depth == 0:
            return at
    return None


def in_string(text: str) -> bool:
    """Whether JSON that breaks off where ``text`` ends does so within a string. A raw line break is in none."""
    at = 0
    while (mark := text.find('"', at)) >= 0:
        string = _STRING.match(text, mark)
        if string is None:
            return not re.search(r"[\x00-\x1f]", text[mark:])
        at = string.end()
    return False


def may_begin(text: str, arguments: str) -> bool:
    """Whether ``text`` can be the beginning of a call, as far as its first key says."""
    head = re.sub(r"[ \t\r\n]+", "", text[:200])
    return any(head.startswith(first[: len(head)]) for first in ('{"name":', '{"type":', f'{{"{arguments}":'))
