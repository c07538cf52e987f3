"""A context as the messages of a chat.

Neighbours of one role are one message, and so is a turn of the model: its reasoning, its text and its calls; many chat
templates insist on roles that alternate. The instructions and what the developer says at the beginning are the system
message; what a developer says later stays where it is. The answers to the calls of a turn stand directly behind it; what
came between waits. Images in a tool's output follow in a user message, since a tool message is text.

Reasoning is told again only to a server that sends it, under the name that it uses itself: some insist on having it back,
and the templates of models leave out what they do not want.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from protocol.codec import encode, to_wire
from protocol.items import (
    CALL_CLASSES,
    OUTPUT_CLASSES,
    ApplyPatchCallOutput,
    FileSearchCall,
    InputFile,
    InputImage,
    Item,
    Message,
    OtherItem,
    OutputOfCall,
    Part,
    Reasoning,
    Refusal,
    ShellCallOutput,
    answered_call_id,
    text_of,
)
from tools.hosted.file_search import results_text

from ..base import ModelError
from ..functions import function_of
from .calls import json_object

ChatMessage = dict[str, Any]
"""A message, or a part of one, as a JSON object."""

BETWEEN: Final = "\n\n"
"""Between texts that were two messages and are one."""


class Transcript:
    """The messages so far."""

    def __init__(self, instructions: str | None, items: Iterable[Item] = ()) -> None:
        self._messages: list[ChatMessage] = []
        self._thoughts: dict[int, str] = {}
        """The reasoning of the messages, by their places."""
        self._calling: ChatMessage | None = None
        """The model's message whose calls are not all answered."""
        self._open: set[str] = set()
        self._late: list[tuple[str, str]] = []
        """Answers of the server's own tools: they stand in the items before other calls of their turn."""
        self._held: list[ChatMessage] = []
        """What was said while calls were open."""
        if instructions:
            self._say("system", instructions)
        for item in items:
            self.add(item)
        self.settle()

    def add(self, item: Item) -> None:
        """What comes next; raises ``ModelError`` for what no chat server takes. At the end of a batch ``settle``."""
        if isinstance(item, FileSearchCall):
            self.call(item.id, *function_of(item, _dumps))
            self._late.append((item.id, results_text(item)))
        elif isinstance(item, CALL_CLASSES):
            if item.status != "incomplete":  # it was cut short, and never answered
                self.call(item.call_id, *function_of(item, _dumps))
        elif isinstance(item, OUTPUT_CLASSES):
            self._answer_late()
            self._output(item)
        else:
            self._answer_late()
            self._other(item)

    def told(self, reasoning_field: str | None) -> list[ChatMessage]:
        """The messages, with reasoning as ``reasoning_field``, if there is such."""
        messages = list(self._messages)
        for place, thoughts in self._thoughts.items() if reasoning_field else ():
            messages[place] = {**messages[place], str(reasoning_field): thoughts}
        return messages

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """A call of the model, in its turn."""
        message = self._calling or self._turn()
        message["content"] = message["content"] or None
        if json_object(arguments) is None:  # servers read them, and fail if they can't
            arguments = _dumps({"malformed": arguments})
        calls = message.setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}})
        self._calling = message
        self._open.add(call_id)

    def think(self, thoughts: str) -> None:
        """Reasoning of the model."""
        if thoughts:
            place = self._messages.index(self._calling) if self._calling else self._place()
            before = self._thoughts.get(place)
            self._thoughts[place] = f"{before}{BETWEEN}{thoughts}" if before else thoughts

    def say(self, text: str) -> None:
        """What the model has said."""
        if text:
            message = self._calling or self._turn()
            message["content"] = _joined(message["content"], text)

    def settle(self) -> None:
        """The items at hand are over: what has to be answered is."""
        self._answer_late()

    # ---- items

    def _other(self, item: Item) -> None:
        if isinstance(item, Reasoning):
            self.think(BETWEEN.join(part.text for part in item.content or item.summary))
        elif isinstance(item, Message):
            if item.role == "assistant":
                self.say(text_of(item.content))
            else:
                self._say("user" if item.role == "user" else "system", _content(item.content))
        elif isinstance(item, OtherItem) and item.type == "compaction":
            excerpt = item.extra.get("encrypted_content")
            if isinstance(excerpt, str):
                self._say("system", excerpt)
        # Other items are of tools that other servers have run; what came of them the model has said.

    def _say(self, role: str, content: str | list[ChatMessage]) -> None:
        if not content:
            return
        if self._open:
            self._held.append({"role": role, "content": content})
        else:
            self._put(role, content)

    def _put(self, role: str, content: str | list[ChatMessage]) -> None:
        last = self._messages[-1] if self._messages else {}
        if last.get("role") == role:
            last["content"] = _joined(last["content"], content)
        else:
            self._messages.append({"role": role, "content": content})

    def _place(self) -> int:
        """The place of the message of the turn at hand: the last one."""
        if not self._messages or self._messages[-1]["role"] != "assistant":
            self._messages.append({"role": "assistant", "content": ""})
        return len(self._messages) - 1

    def _turn(self) -> ChatMessage:
        return self._messages[self._place()]

    def _output(self, item: OutputOfCall) -> None:
        call_id = answered_call_id(item) or ""
        parts = item.output if isinstance(item.output, tuple) and not isinstance(item, ShellCallOutput) else ()
        pictures = [part for part in parts if isinstance(part, InputImage | InputFile)]
        if pictures:
            told: ChatMessage = {"type": "text", "text": f"What the call {call_id} has returned:"}
            self._held.append({"role": "user", "content": [told, *map(_part, pictures)]})
        self._answer(call_id, _output_text(item))

    def _answer(self, call_id: str, text: str) -> None:
        if call_id not in self._open:
            return
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        self._open.discard(call_id)
        if not self._open:
            self._calling = None
            held, self._held = self._held, []
            for message in held:
                self._put(message["role"], message["content"])

    def _answer_late(self) -> None:
        late, self._late = self._late, []
        for call_id, text in late:
            self._answer(call_id, text)


def _dumps(value: Any) -> str:
    return encode(value).decode()


def _output_text(item: OutputOfCall) -> str:
    if isinstance(item, ShellCallOutput):
        return _dumps([to_wire(chunk) for chunk in item.output])
    if isinstance(item, ApplyPatchCallOutput):
        return f"{item.status}\n{item.output}" if item.output else item.status
    return text_of(item.output)


def _joined(first: Any, second: str | list[ChatMessage]) -> str | list[ChatMessage]:
    """Two contents as one."""
    if not first:
        return second
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}{BETWEEN}{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: str | list[ChatMessage]) -> list[ChatMessage]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _content(content: str | Sequence[Part]) -> str | list[ChatMessage]:
    """A content: a text, if it is nothing but text."""
    if isinstance(content, str):
        return content
    if not any(isinstance(part, InputImage | InputFile) for part in content):
        return "\n".join(part.refusal if isinstance(part, Refusal) else part.text for part in content)  # type: ignore[union-attr]
    return [_part(part) for part in content]


def _part(part: Part) -> ChatMessage:
    if isinstance(part, InputImage):
        if part.image_url is None:
            raise _refused("input_image.file_id", "send image_url, which may be a data: URL")
        detail = {"detail": part.detail} if part.detail in ("low", "high", "auto") else {}
        return {"type": "image_url", "image_url": {"url": part.image_url, **detail}}
    if isinstance(part, InputFile):
        if part.file_data is None:
            asked = "file_url" if part.file_url is not None else "file_id"
            raise _refused(f"input_file.{asked}", "send file_data")
        name = {"filename": part.filename} if part.filename else {}
        return {"type": "file", "file": {"file_data": part.file_data, **name}}
    return {"type": "text", "text": part.refusal if isinstance(part, Refusal) else part.text}


def _refused(field: str, instead: str) -> ModelError:
    return ModelError(f"{field}: a model behind chat takes none; {instead}", code="invalid_prompt", fault="request")
