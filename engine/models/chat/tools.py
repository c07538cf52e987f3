"""The tools of a plan as functions, since chat servers know no other kind; and which of them is to be called.

A custom tool is a function with one string, ``input``. A tool that is known by its type (``shell``) is a function of that
name, whose parameters are what its call asks. Tools that neither we nor the client run here (``web_search`` of OpenAI, for
one) are left out, and named in the Response's report; a ``tool_choice`` that names one of them is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from protocol.fields import Json
from protocol.requests import Tool
from tools.hosted.file_search import SPEC as FILE_SEARCH

from ..base import CallKind, ModelError, Plan
from ..functions import CUSTOM_INPUT

_TEXT: Final[Json] = {"type": "string"}
_TEXTS: Final[Json] = {"type": "array", "items": _TEXT}
_WHOLE: Final[Json] = {"type": "integer"}


def _object(required: Sequence[str], **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_BY_TYPE: Final[dict[str, tuple[CallKind, str, Json]]] = {
    "shell": (
        "shell_call",
        "Runs shell commands, side by side, and returns what they print.",
        _object(["commands"], commands=_TEXTS, timeout_ms=_WHOLE, max_output_length=_WHOLE),
    ),
    "local_shell": (
        "local_shell_call",
        "Runs one command, given as the list of its words, and returns what it prints.",
        _object(["command"], command=_TEXTS, working_directory=_TEXT, timeout_ms=_WHOLE),
    ),
    "apply_patch": (
        "apply_patch_call",
        "Creates, updates or deletes one file. diff is in the V4A form of apply_patch; a file is deleted without one.",
        _object(
            ["type", "path"],
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_TEXT,
            diff=_TEXT,
        ),
    ),
}
"""Tools that have no name but their type: what their calls are, what the model reads, what they ask."""


@frozen
class Offered:
    """What a plan offers, in the words of a chat server."""

    functions: tuple[Json, ...]
    choice: str | None
    """``tool_choice``; None where there is nothing to choose."""
    kinds: Mapping[str, CallKind]
    """The kind of item that a call of each function is."""
    left_out: tuple[str, ...]
    """Types of tools that the upstream is not told of."""

    @property
    def must_call(self) -> bool:
        """Whether an answer without a call is none."""
        return self.choice == "required"

    @classmethod
    def of(cls, plan: Plan) -> "Offered":
        """Raises ``ModelError`` for a ``tool_choice`` that can't be kept to."""
        known = {name: (kind, wire) for tool in plan.tools if (name := _name(tool)) for kind, wire in [_function(tool, name)]}
        left_out = tuple(sorted({tool.type for tool in plan.tools if not _name(tool)}))
        allowed, choice = _choice(plan.tool_choice, set(known))
        return cls(
            functions=tuple(wire for name, (_, wire) in known.items() if name in allowed),
            choice=choice if allowed else None,
            kinds={name: kind for name, (kind, _) in known.items()},
            left_out=left_out,
        )


def _name(tool: Tool) -> str | None:
    """What the function is called that stands for a tool; None if there is none."""
    if tool.type in ("function", "custom"):
        return tool.name
    return tool.type if tool.type in _BY_TYPE or tool.type == FILE_SEARCH.type else None


def _function(tool: Tool, name: str) -> tuple[CallKind, Json]:
    if tool.type == "function":
        strict = {} if tool.strict is None else {"strict": tool.strict}
        return "function_call", _wire(name, tool.description, tool.parameters or _object([]), **strict)
    if tool.type == "custom":
        return "custom_tool_call", _wire(name, _described(tool), _object([CUSTOM_INPUT], **{CUSTOM_INPUT: _TEXT}))
    if tool.type == FILE_SEARCH.type:
        return "function_call", _wire(name, FILE_SEARCH.description, FILE_SEARCH.parameters)
    kind, description, parameters = _BY_TYPE[tool.type]
    return kind, _wire(name, description, parameters)


def _wire(name: str, description: str | None, parameters: Json, **more: Any) -> Json:
    described = {"description": description} if description else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": parameters, **more}}


def _described(tool: Tool) -> str:
    """A custom tool's description, with its grammar: no chat server can be bound to it, but the model can read it."""
    form = tool.extra.get("format")
    words = [tool.description or ""]
    if isinstance(form, dict) and form.get("definition"):
        words.append(f"The input is text of this grammar ({form.get('syntax', 'grammar')}):\n{form['definition']}")
    return "\n\n".join(word for word in words if word)


def _choice(choice: str | Json, known: set[str]) -> tuple[set[str], str]:
    """The functions that may be called, and how they are to be chosen from. One that is named is required, and the only one:
    that is understood by servers that do not understand names."""
    if isinstance(choice, str):
        if choice == "required" and not known:
            raise _refused("required, but there is no tool here that the model could call")
        return known, choice
    if choice.get("type") == "allowed_tools":
        tools = choice.get("tools")
        allowed = {_chosen(one, known) for one in (tools if isinstance(tools, list) else [])}
        return allowed, "required" if choice.get("mode") == "required" else "auto"
    return {_chosen(choice, known)}, "required"


def _chosen(choice: Any, known: set[str]) -> str:
    name = (choice.get("name") or choice.get("type")) if isinstance(choice, dict) else None
    if name not in known:
        raise _refused(f"names {name!r}, which is no tool of this request that can be offered here")
    return str(name)


def _refused(why: str) -> ModelError:
    return ModelError(f"tool_choice: {why}", code="invalid_prompt", fault="request")
