"""Items: what a Response's context is made of, and their content parts.

One frozen class a type, as the Responses API has them. Fields that we don't know are kept (``extra``), so that an item is
stored and given back as it was sent (law L14). ``call_id`` links a call to its output; ``id`` is the item's own.
"""

from typing import ClassVar, Final, Literal

from attrs import frozen

from .fields import Json, optional, unknown_fields

Status = Literal["in_progress", "completed", "incomplete"]
Role = Literal["user", "assistant", "system", "developer"]


# ---- content parts


@frozen(kw_only=True)
class InputText:
    type: ClassVar[str] = "input_text"
    text: str
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class InputImage:
    """An image by URL (also a ``data:`` URL) or by the id of an uploaded file."""

    type: ClassVar[str] = "input_image"
    image_url: str | None = optional()
    file_id: str | None = optional()
    detail: Literal["low", "high", "auto", "original"] | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class InputFile:
    type: ClassVar[str] = "input_file"
    file_data: str | None = optional()
    file_id: str | None = optional()
    file_url: str | None = optional()
    filename: str | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class OutputText:
    type: ClassVar[str] = "output_text"
    text: str
    annotations: tuple[Json, ...] = ()
    logprobs: tuple[Json, ...] | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class Refusal:
    type: ClassVar[str] = "refusal"
    refusal: str
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class SummaryText:
    type: ClassVar[str] = "summary_text"
    text: str
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class ReasoningText:
    type: ClassVar[str] = "reasoning_text"
    text: str
    extra: Json = unknown_fields()


Part = InputText | InputImage | InputFile | OutputText | Refusal | SummaryText | ReasoningText
PARTS: Final[dict[str, type[Part]]] = {
    cls.type: cls for cls in (InputText, InputImage, InputFile, OutputText, Refusal, SummaryText, ReasoningText)
}


# ---- messages and reasoning


@frozen(kw_only=True)
class Message:
    """A message of a user, of the assistant, or of the developer. On input ``type`` may be left out."""

    type: ClassVar[str] = "message"
    role: Role
    content: str | tuple[Part, ...]
    id: str | None = optional()
    status: Status | None = optional()
    phase: Literal["commentary", "final_answer"] | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class Reasoning:
    type: ClassVar[str] = "reasoning"
    summary: tuple[SummaryText, ...] = ()
    content: tuple[ReasoningText, ...] | None = optional()
    encrypted_content: str | None = optional()
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


# ---- calls of client tools, and their outputs


@frozen(kw_only=True)
class FunctionCall:
    """``arguments`` is JSON text, byte for byte as the model sampled it."""

    type: ClassVar[str] = "function_call"
    call_id: str
    name: str
    arguments: str
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class FunctionCallOutput:
    type: ClassVar[str] = "function_call_output"
    call_id: str
    output: str | tuple[Part, ...]
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class CustomToolCall:
    """A call whose input is free text, perhaps bound by a grammar."""

    type: ClassVar[str] = "custom_tool_call"
    call_id: str
    name: str
    input: str
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class CustomToolCallOutput:
    type: ClassVar[str] = "custom_tool_call_output"
    call_id: str
    output: str | tuple[Part, ...]
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class ShellAction:
    commands: tuple[str, ...]
    timeout_ms: int | None = optional()
    max_output_length: int | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class ShellCall:
    type: ClassVar[str] = "shell_call"
    call_id: str
    action: ShellAction
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class ShellOutcome:
    """How one command ended: ``exit`` with its code, or ``timeout``."""

    type: Literal["exit", "timeout"]
    exit_code: int | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class ShellOutputChunk:
    stdout: str
    stderr: str
    outcome: ShellOutcome
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class ShellCallOutput:
    type: ClassVar[str] = "shell_call_output"
    call_id: str
    output: tuple[ShellOutputChunk, ...]
    max_output_length: int | None = optional()
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class LocalShellAction:
    command: tuple[str, ...]
    env: Json
    type: Literal["exec"] = "exec"
    timeout_ms: int | None = optional()
    user: str | None = optional()
    working_directory: str | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class LocalShellCall:
    type: ClassVar[str] = "local_shell_call"
    call_id: str
    action: LocalShellAction
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class LocalShellCallOutput:
    """The API's own schema has the call's id under ``id`` and no ``call_id``; either is taken."""

    type: ClassVar[str] = "local_shell_call_output"
    output: str
    call_id: str | None = optional()
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class PatchOperation:
    type: Literal["create_file", "update_file", "delete_file"]
    path: str
    diff: str | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class ApplyPatchCall:
    type: ClassVar[str] = "apply_patch_call"
    call_id: str
    operation: PatchOperation
    id: str | None = optional()
    status: Status | None = optional()
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class ApplyPatchCallOutput:
    type: ClassVar[str] = "apply_patch_call_output"
    call_id: str
    status: Literal["completed", "failed"]
    output: str | None = optional()
    id: str | None = optional()
    extra: Json = unknown_fields()


# ---- calls of hosted tools: one item is the call and its result


@frozen(kw_only=True)
class FileSearchCall:
    """``results`` is null until the search is done; each has file_id, filename, score, text and attributes."""

    type: ClassVar[str] = "file_search_call"
    id: str
    queries: tuple[str, ...]
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"]
    results: tuple[Json, ...] | None = None
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class ItemReference:
    """Stands for an item that the server holds. On input, ``type`` may be left out where there is nothing but ``id``."""

    type: ClassVar[str] = "item_reference"
    id: str
    extra: Json = unknown_fields()


@frozen(kw_only=True)
class OtherItem:
    """An item of a type that the API has and we only carry: hosted calls of other servers, compactions, tool lists."""

    type: str
    id: str | None = optional()
    extra: Json = unknown_fields()


OTHER_ITEM_TYPES: Final = frozenset(
    {
        "web_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "computer_call",
        "computer_call_output",
        "mcp_list_tools",
        "mcp_call",
        "mcp_approval_request",
        "mcp_approval_response",
        "tool_search_call",
        "tool_search_output",
        "compaction",
        "compaction_trigger",
        "additional_tools",
        "configuration_update",
        "program",
        "program_output",
    }
)

CallItem = FunctionCall | CustomToolCall | ShellCall | LocalShellCall | ApplyPatchCall
OutputOfCall = FunctionCallOutput | CustomToolCallOutput | ShellCallOutput | LocalShellCallOutput | ApplyPatchCallOutput
Item = Message | Reasoning | CallItem | OutputOfCall | FileSearchCall | ItemReference | OtherItem

ITEMS: Final[dict[str, type[Item]]] = {
    cls.type: cls
    for cls in (
        Message,
        Reasoning,
        FunctionCall,
        FunctionCallOutput,
        CustomToolCall,
        CustomToolCallOutput,
        ShellCall,
        ShellCallOutput,
        LocalShellCall,
        LocalShellCallOutput,
        ApplyPatchCall,
        ApplyPatchCallOutput,
        FileSearchCall,
        ItemReference,
    )
}
"""The class of each item type that we read into; ``OtherItem`` takes the rest of ``OTHER_ITEM_TYPES``."""

OUTPUT_TYPE_OF: Final[dict[str, str]] = {
    FunctionCall.type: FunctionCallOutput.type,
    CustomToolCall.type: CustomToolCallOutput.type,
    ShellCall.type: ShellCallOutput.type,
    LocalShellCall.type: LocalShellCallOutput.type,
    ApplyPatchCall.type: ApplyPatchCallOutput.type,
}
"""The kind of output that answers each kind of call."""

CALL_CLASSES: Final = (FunctionCall, CustomToolCall, ShellCall, LocalShellCall, ApplyPatchCall)
OUTPUT_CLASSES: Final = (
    FunctionCallOutput,
    CustomToolCallOutput,
    ShellCallOutput,
    LocalShellCallOutput,
    ApplyPatchCallOutput,
)


def answered_call_id(output: OutputOfCall) -> str | None:
    """The id of the call that ``output`` answers."""
    return output.call_id or output.id if isinstance(output, LocalShellCallOutput) else output.call_id


def text_of(content: str | tuple[Part, ...] | None) -> str:
    """The text of a message's content or of a tool's output; parts that are not text contribute nothing."""
    if isinstance(content, str):
        return content
    return "".join(
        part.refusal if isinstance(part, Refusal) else part.text
        for part in content or ()
        if not isinstance(part, InputImage | InputFile)
    )
