"""The body of a request to a chat server, and what is learned of a server from what it refuses.

What a client did not ask for is not sent, so that the server's own defaults count: a ``temperature`` or ``top_p`` of 1,
``parallel_tool_calls`` that are allowed, a limit of tokens that is only ours.
"""

from typing import Any, Final

from attrs import define

from ..base import Plan
from .tools import Offered
from .turn import REASONING_FIELDS

Body = dict[str, Any]
"""A JSON object that is being written."""

_DETAILS: Final = ("name", "description", "schema", "strict")


@define
class Dialect:
    """How a server wants to be spoken to. It is learned, and kept for all Responses."""

    limit: str = "max_tokens"
    """The name of the limit; newer models of OpenAI know the other one only."""
    usage: bool = True
    """Whether it may be asked for the usage."""
    reasoning: str | None = None
    """Where it puts reasoning."""

    def learn(self, refusal: str) -> bool:
        """What the words of a refusal teach; returns whether it is worth asking again."""
        if "max_completion_tokens" in refusal and self.limit == "max_tokens":
            self.limit = "max_completion_tokens"
            return True
        if "stream_options" in refusal and self.usage:
            self.usage = False
            return True
        missed = next((name for name in REASONING_FIELDS if name in refusal), None)
        if missed and self.reasoning is None:
            self.reasoning = missed
            return True
        return False


def body(
    model: str, plan: Plan, offered: Offered, messages: list[Body], dialect: Dialect, left: int | None, first: bool
) -> Body:
    """A request. ``left`` is how many tokens may be sampled; ``first``: that a call is forced is for the first turn only,
    since a Response that has to call a tool at each turn never ends."""
    wire: Body = {"model": model, "messages": messages, "stream": True}
    if dialect.usage:
        wire["stream_options"] = {"include_usage": True}
    if plan.asked_output_tokens is not None and left is not None:
        wire[dialect.limit] = left
    for name, value in (("temperature", plan.temperature), ("top_p", plan.top_p)):
        if value != 1.0:
            wire[name] = value
    return wire | _tools(plan, offered, first=first) | _answer(plan)


def _tools(plan: Plan, offered: Offered, *, first: bool) -> Body:
    if not offered.functions:
        return {}
    wire: Body = {"tools": offered.functions}
    choice = "auto" if offered.must_call and not first else offered.choice
    if choice not in (None, "auto"):
        wire["tool_choice"] = choice
    if not plan.parallel_tool_calls:
        wire["parallel_tool_calls"] = False
    return wire


def _answer(plan: Plan) -> Body:
    """What the answer is to be like."""
    wire: Body = {}
    wanted: dict[str, Any] = plan.text.get("format") or {}
    if wanted.get("type") == "json_object":
        wire["response_format"] = {"type": "json_object"}
    elif wanted.get("type") == "json_schema":
        schema = {name: wanted[name] for name in _DETAILS if wanted.get(name) is not None}
        wire["response_format"] = {"type": "json_schema", "json_schema": schema}
    if plan.text.get("verbosity"):
        wire["verbosity"] = plan.text["verbosity"]
    if plan.reasoning and plan.reasoning.get("effort"):
        wire["reasoning_effort"] = plan.reasoning["effort"]
    return wire


def structured(plan: Plan) -> bool:
    """Whether the answer must be JSON."""
    return (plan.text.get("format") or {}).get("type") in ("json_object", "json_schema")
