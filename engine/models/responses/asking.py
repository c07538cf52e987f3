"""What is asked of the other server: a create body, from a plan and from what was said."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from protocol.codec import to_wire
from protocol.items import (
    ApplyPatchCall,
    ApplyPatchCallOutput,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    Reasoning,
    ShellCall,
    ShellCallOutput,
)

from ..base import ModelError, Plan

Frame = Mapping[str, Any]
"""A JSON object."""

UNLIMITED_TOKENS: Final = 1_000_000
"""No model puts out so many at once: it is a cap of this server's own, which many servers would refuse."""
NO_ID: Final = frozenset(
    cls.type
    for cls in (
        Message,
        FunctionCall,
        FunctionCallOutput,
        CustomToolCall,
        CustomToolCallOutput,
        ShellCall,
        ShellCallOutput,
        ApplyPatchCall,
        ApplyPatchCallOutput,
    )
)
"""Items whose ``id`` may be left out. It would name what the other server has not stored."""
NOT_CARRIED: Final = frozenset({"file_search"})
"""Tools that this server runs itself, and the other one would run too."""


def settings(plan: Plan, model: str) -> dict[str, Any]:
    """The fields that each turn repeats; raises ``ModelError``. What was not asked for is left to the other server."""
    refused = sorted(tool.type for tool in plan.tools if tool.type in NOT_CARRIED)
    if refused:
        message = f"a relay's model can't use {', '.join(refused)}: it runs on this server, and the model on another"
        raise ModelError(message, code="invalid_prompt", fault="request")
    body: dict[str, Any] = {"model": model, "store": False}
    if plan.instructions:
        body["instructions"] = plan.instructions
    if plan.tools:
        body["tools"] = [to_wire(tool) for tool in plan.tools]
    if not plan.parallel_tool_calls:
        body["parallel_tool_calls"] = False
    if plan.reasoning is not None:
        body["reasoning"] = plan.reasoning
        body["include"] = ["reasoning.encrypted_content"]  # the only form in which it can be sent again
    if plan.text:
        body["text"] = plan.text
    body |= {name: value for name in ("temperature", "top_p") if (value := getattr(plan, name)) != 1.0}
    return body


def tool_choice(plan: Plan, *, called: bool) -> str | Frame:
    """What was asked for; but a call that was forced has been made (``called``), and then the model is free to answer."""
    choice = plan.tool_choice
    if not called or choice in ("auto", "none"):
        return choice
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        return {**choice, "mode": "auto"}
    return "auto"


def as_input(items: Iterable[Item]) -> list[Frame]:
    """Items as input of the other server. Their ids are this server's, so they are left out where they may be."""
    asked = []
    for item in items:
        wire = to_wire(item)
        if isinstance(item, Reasoning):
            if item.encrypted_content is None:
                continue
            wire.pop("id", None)
        asked.append(_without_id(wire))
    return asked


def said_again(output: Sequence[Frame]) -> list[Frame]:
    """What the other server put out, to be sent back to it when it has forgotten: reasoning only where it is sealed."""
    return [_without_id(item) for item in output if item.get("type") != Reasoning.type or item.get("encrypted_content")]


def _without_id(item: Frame) -> Frame:
    return {name: value for name, value in item.items() if name != "id"} if item.get("type") in NO_ID else item
