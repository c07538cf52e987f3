"""What the local tools share: checked arguments, failures as text, and for each kind of call its kind of answer.

A tool says its parameters as a JSON Schema (an object with strings, integers, numbers and booleans) and does its
``work`` on arguments that were checked against it. Bad arguments, missing files, time limits and errors of the system
are answers that the model reads; any other exception is a bug, and is raised.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import trio

from protocol.codec import parse
from protocol.errors import ProtocolError
from protocol.fields import Json
from protocol.items import (
    ApplyPatchCall,
    ApplyPatchCallOutput,
    CallItem,
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    LocalShellCall,
    LocalShellCallOutput,
    OutputOfCall,
    ShellCallOutput,
    ShellOutcome,
    ShellOutputChunk,
)
from protocol.limits import QUOTED_CHARS
from tools.spec import Outcome, ToolSpec

from .workspace import Failure, Workspace, printable

FAILED_EXIT_CODE: Final = 1
"""Stands for the exit code of a native shell call that was refused before anything ran."""


class LocalTool(ABC):
    """A tool that works in a folder, in the agent's own process."""

    free_text: ClassVar[str | None] = None
    """The parameter that the input of a custom tool call fills; None: such calls are refused."""

    def __init__(self, workspace: Workspace, spec: ToolSpec) -> None:
        self.workspace = workspace
        self._spec = spec

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return self._spec

    @abstractmethod
    async def work(self, arguments: Mapping[str, Any]) -> str:
        """Do it. ``arguments`` fit the schema, and hold every parameter: its value, its default, or None.

        Raises ``Failure`` or ``OSError`` for what the model is to read. Cancellation leaves no process or thread.
        """

    async def run(self, arguments: Json) -> str:
        """The simple form: arguments in, text out; a failure's text begins with ``error: ``.

        Always a checkpoint. Cancellation leaves no process or thread behind.
        """
        return (await self._attempt(arguments))[0]

    async def call(self, call: CallItem) -> Outcome:
        """Answer ``call`` with an output of its kind. Cancellation leaves no process or thread of it behind."""
        if isinstance(call, FunctionCall):
            text, failed = await self._attempt(call.arguments)
        elif isinstance(call, CustomToolCall) and self.free_text is not None:
            text, failed = await self._attempt({self.free_text: call.input})
        else:
            return Outcome(item=await self._attempt_native(call))
        return Outcome(item=answer(call, text, failed))

    async def answer_native(self, call: CallItem) -> OutputOfCall:
        """Answer a call of a kind of its own; may raise ``Failure`` and ``OSError`` as ``work`` does."""
        raise Failure(f"{self.spec.name} does not answer a {call.type}; it takes a function_call with JSON arguments")

    async def _attempt(self, arguments: Json | str) -> tuple[str, bool]:
        """The text, and whether it is that of a failure. A string is JSON, as the model wrote it."""
        await trio.lowlevel.checkpoint()
        try:
            values = _parsed(arguments) if isinstance(arguments, str) else arguments
            return await self.work(checked(self.spec.parameters, values)), False
        except (Failure, OSError) as failure:
            return failure_text(failure), True

    async def _attempt_native(self, call: CallItem) -> OutputOfCall:
        await trio.lowlevel.checkpoint()
        try:
            return await self.answer_native(call)
        except (Failure, OSError) as failure:
            return answer(call, failure_text(failure), failed=True)


# ---- answers


def failure_text(failure: Failure | OSError) -> str:
    """What the model reads of a failure."""
    if isinstance(failure, Failure):
        return f"error: {failure}"
    named = isinstance(failure.filename, str | bytes | os.PathLike)
    where = f"{printable(os.path.basename(os.fsdecode(failure.filename)))}: " if named else ""
    return f"error: {where}{(failure.strerror or str(failure)).lower()}"


def answer(call: CallItem, text: str, failed: bool) -> OutputOfCall:
    """The output item of ``call``'s kind that says ``text``."""
    if isinstance(call, FunctionCall):
        return FunctionCallOutput(call_id=call.call_id, output=text)
    if isinstance(call, CustomToolCall):
        return CustomToolCallOutput(call_id=call.call_id, output=text)
    if isinstance(call, ApplyPatchCall):
        return ApplyPatchCallOutput(call_id=call.call_id, status="failed" if failed else "completed", output=text)
    if isinstance(call, LocalShellCall):
        return LocalShellCallOutput(call_id=call.call_id, output=text, status="completed")
    outcome = ShellOutcome(type="exit", exit_code=FAILED_EXIT_CODE if failed else 0)
    stdout, stderr = ("", text) if failed else (text, "")
    return ShellCallOutput(
        call_id=call.call_id,
        output=(ShellOutputChunk(stdout=stdout, stderr=stderr, outcome=outcome),),
        max_output_length=call.action.max_output_length,
    )


# ---- arguments


def parameters(*, required: tuple[str, ...], **properties: Json) -> Json:
    """The JSON Schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _parsed(text: str) -> Any:
    """Models leave the text empty when a tool needs no arguments."""
    try:
        return parse(text) if text.strip() else {}
    except ProtocolError as error:
        raise Failure(f"the arguments are {error.message}") from None


def checked(schema: Json, arguments: Any) -> dict[str, Any]:
    """The arguments and their defaults, for which null stands too. Raises ``Failure``, which tells all mistakes."""
    properties: Mapping[str, Json] = schema["properties"]
    if not isinstance(arguments, Mapping):
        raise Failure(f"the arguments must be an object with {', '.join(properties)}; got {_shown(arguments)}")
    given = {name: value for name, value in arguments.items() if value is not None}
    wrong = [f"{_quoted(name)}: unknown; allowed: {', '.join(properties)}" for name in given if name not in properties]
    wrong += [f"{name}: missing ({properties[name]['type']})" for name in schema["required"] if name not in given]
    wrong += [
        f"{name}: expected {problem}, got {_shown(value)}"
        for name, value in given.items()
        if name in properties and (problem := _mismatch(properties[name], value))
    ]
    if wrong:
        raise Failure(f"bad arguments: {'; '.join(wrong)}")
    return {name: given.get(name, about.get("default")) for name, about in properties.items()}


_ARTICLE: Final = {"string": "a string", "integer": "an integer", "number": "a number", "boolean": "true or false"}


def _mismatch(schema: Json, value: Any) -> str | None:
    """What was expected, when ``value`` is something else."""
    kind = schema["type"]
    fits = {
        "string": isinstance(value, str),
        "integer": type(value) is int,
        "number": type(value) in (int, float) and math.isfinite(value),
        "boolean": isinstance(value, bool),
    }[kind]
    if not fits:
        return _ARTICLE[kind]
    if kind == "string":
        return None if _is_unicode(value) else "valid Unicode (no lone surrogates)"
    if "minimum" in schema and value < schema["minimum"]:
        return f"at least {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        return f"at most {schema['maximum']}"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _quoted(value: Any) -> str:
    text = ascii(value) if isinstance(value, str) and not _is_unicode(value) else repr(value)
    return text if len(text) <= QUOTED_CHARS else text[:QUOTED_CHARS] + "…"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _quoted(value)
