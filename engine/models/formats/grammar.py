"""What ``tool_choice``, ``parallel_tool_calls`` and ``text.format`` make of a turn, as a grammar in GBNF.

- ``tool_choice`` is required, a tool, or ``allowed_tools`` with the mode required: a turn is calls of those tools; one call, if
  ``parallel_tool_calls`` is false.
- ``text.format`` is ``json_schema`` or ``json_object``: a turn is the JSON; or calls, if tools may be called.
- Neither: it is free.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from protocol.fields import Json

from ...stages.validate import callable_tools
from ..base import Plan
from .calls import Function, dumps, functions
from .gbnf import Grammar, literal
from .syntax import Syntax

PARALLEL_CALLS: Final = 16
"""A small model that has to make calls finds no end of them by itself."""


def is_bound(plan: Plan) -> bool:
    """Whether a turn has a grammar."""
    return _format(plan).get("type", "text") != "text" or (bool(_offered(plan)) and _forces(plan.tool_choice))


def grammar_of(plan: Plan, syntax: Syntax) -> str | None:
    """The grammar of a turn; None if it is free."""
    if not is_bound(plan):
        return None
    offered, wanted = _offered(plan), _format(plan)
    forced = bool(offered) and _forces(plan.tool_choice)
    grammar = Grammar()
    ways = [_calls(grammar, offered, syntax, plan.parallel_tool_calls)] if offered else []
    if not forced:
        whole = wanted.get("type") == "json_object"
        ways.insert(0, grammar.any("object") if whole else grammar.schema(wanted.get("schema")))
    return grammar.text(" | ".join(ways))


def _format(plan: Plan) -> Mapping[str, Any]:
    return plan.text.get("format") or {}


def _offered(plan: Plan) -> list[Function]:
    """What may be called."""
    allowed = callable_tools(plan.tool_choice)
    return [one for name, one in functions(plan.tools).items() if allowed is None or name in allowed]


def _forces(choice: Any) -> bool:
    """Whether a call has to be made."""
    if isinstance(choice, str):
        return choice == "required"
    return bool(choice.get("type") != "allowed_tools" or choice.get("mode") == "required")


def _calls(grammar: Grammar, offered: Sequence[Function], syntax: Syntax, parallel: bool) -> str:
    call = grammar.add(" | ".join(_call(grammar, one, syntax) for one in offered))
    return f"{call} ({literal(syntax.between)} {call}){{0,{PARALLEL_CALLS - 1}}}" if parallel else call


def _call(grammar: Grammar, function: Function, syntax: Syntax) -> str:
    head = syntax.head.replace("NAME", dumps(function.name))
    arguments = grammar.schema(_of_object(function.parameters))
    return f"{literal(head)} {arguments} {literal(syntax.tail)}"


def _of_object(parameters: Json) -> Json:
    """A tool's parameters; arguments are an object, whether they say so or not."""
    described = {"type", "$ref", "anyOf", "oneOf", "allOf"} & parameters.keys()
    return parameters if described else {**parameters, "type": "object"}
