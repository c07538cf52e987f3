"""From a sampler's chunks to items and events: the grammar of the stream (law L4), spoken.

One item is open at a time. Text opens a message, a reasoning piece a reasoning item, ``CallBegin`` a call; whatever begins
closes what was open. An open item knows which events announce, stream and finish it. Calls of hosted tools are collected
silently: their item is announced when it is whole, and finished by the loop when the tool has run. So are calls of the
client's tools that are known by their type (``shell``): what they ask is an object, of which a part says nothing.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, Protocol

from attrs import define, evolve

from protocol import events as ev
from protocol.codec import from_wire, parse
from protocol.errors import ProtocolError
from protocol.ids import Entropy, new_id
from protocol.items import (
    ApplyPatchCall,
    CallItem,
    CustomToolCall,
    FunctionCall,
    Item,
    LocalShellCall,
    Message,
    OtherItem,
    OutputText,
    Reasoning,
    ShellCall,
    SummaryText,
)
from protocol.lifecycle import ITEM, ItemStatus
from tools.spec import HostedItem, HostedTool

from .log import DeltaText
from .models import base
from .parking import Slots


class Emitter(Protocol):
    """Where events go."""

    def emit(self, event: ev.Event) -> None: ...

    def emit_deltas(self, text: DeltaText, pieces: Sequence[str]) -> None: ...


@define(eq=False)
class HostedCall:
    """A hosted call that was sampled: the loop runs it and calls ``Output.finish_hosted``."""

    output_index: int
    item: HostedItem
    tool: HostedTool


SampledCall = CallItem | HostedCall


class _Open(Protocol):
    def add(self, pieces: Sequence[str]) -> None: ...

    def finish(self, status: ItemStatus) -> None: ...


class Output:
    """The output items of one Response, as they grow."""

    def __init__(
        self,
        emitter: Emitter,
        entropy: Entropy,
        hosted: Mapping[str, HostedTool],
        slots: Slots,
        *,
        seals_reasoning: bool = False,
    ) -> None:
        self._emitter = emitter
        self._entropy = entropy
        self._hosted = hosted
        self._slots = slots
        self._seals_reasoning = seals_reasoning
        self._open: _Open | None = None
        self.items: list[Item] = []
        """Whole items, and for those that are not, how they were announced."""
        self.turn: list[SampledCall] = []
        """The calls of this turn, in call order."""
        self.calls = 0
        self.tokens = 0
        self.reasoning_tokens = 0

    @property
    def busy(self) -> bool:
        """Whether an item is open."""
        return self._open is not None

    def whole(self) -> list[Item]:
        """The items that are whole."""
        return [item for item in self.items if getattr(item, "status", None) not in ("in_progress", "searching")]

    def begin_turn(self) -> None:
        """The calls that come from here on are another batch."""
        self.turn = []

    def feed(self, chunk: base.Chunk) -> None:
        """Take one chunk (but a ``Stop``) of the sampler."""
        kind = type(chunk)
        if kind is base.Text:
            self._add(chunk, _OpenMessage)  # type: ignore[arg-type]
        elif kind is base.CallPieces:
            self._add(chunk, None)  # type: ignore[arg-type]
        elif kind is base.CallBegin:
            self._begin_call(chunk)  # type: ignore[arg-type]
        elif kind is base.Reasoning:
            self._add(chunk, _OpenReasoning)  # type: ignore[arg-type]
            self.reasoning_tokens += chunk.tokens  # type: ignore[union-attr]
        elif kind is base.Counted:
            self.tokens += chunk.tokens  # type: ignore[union-attr]
            self.reasoning_tokens += chunk.reasoning  # type: ignore[union-attr]
        elif kind is base.MessageEnd:
            self._end(chunk)  # type: ignore[arg-type]
        elif kind is base.Carried:
            self._carry(chunk.item)  # type: ignore[union-attr]
        else:
            self.close()

    def close(self, *, cut: bool = False) -> None:
        """The open item, if any, is whole; or ``cut`` short."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.finish(ITEM.next(ItemStatus.IN_PROGRESS, "cut" if cut else "complete"))

    def finish_hosted(self, call: HostedCall, item: HostedItem) -> None:
        """The hosted tool has run: ``item`` is the call with its result."""
        if item.status == "completed":
            self.progress(call, "completed")
        self.items[call.output_index] = call.item = item
        self._emitter.emit(ev.ItemDone(call.output_index, item))

    def progress(self, call: HostedCall, stage: str) -> None:
        """Announce how far a hosted tool is."""
        self._emitter.emit(ev.HostedProgress(f"response.{call.item.type}.{stage}", call.item.id, call.output_index))

    def _add(
        self, chunk: base.Text | base.Reasoning | base.CallPieces, cls: "type[_OpenMessage | _OpenReasoning] | None"
    ) -> None:
        if cls is not None and not isinstance(self._open, cls):
            self.close()
            self._open = opened = cls(self._emitter, self.items, self._entropy)
            if isinstance(opened, _OpenReasoning):
                opened.sealed = self._seals_reasoning
        if self._open is None:
            raise base.ModelError("the model sampled arguments outside of a call")
        self._open.add(chunk.pieces)
        self.tokens += chunk.tokens

    def _end(self, chunk: base.MessageEnd) -> None:
        opened, sealed = self._open, chunk.encrypted_content
        if isinstance(opened, _OpenMessage):
            opened.phase = chunk.phase
        elif isinstance(opened, _OpenReasoning):
            opened.encrypted = sealed
        self.close()
        if sealed is not None and not isinstance(opened, _OpenReasoning):
            begun = Reasoning(id=new_id("reasoning", self._entropy), status="in_progress")
            self._at_once(begun, evolve(begun, status="completed", encrypted_content=sealed))

    def _carry(self, item: OtherItem) -> None:
        self.close()
        if item.id is None or any(item.id == getattr(other, "id", None) for other in self.items):
            item = evolve(item, id=new_id(item.type, self._entropy))
        self._at_once(item, item)

    def _at_once(self, begun: Item, done: Item) -> None:
        """An item that is whole: announced as ``begun``, and finished as ``done``."""
        index = len(self.items)
        self.items.append(done)
        self._emitter.emit(ev.ItemAdded(index, begun))
        self._emitter.emit(ev.ItemDone(index, done))

    def _begin_call(self, chunk: base.CallBegin) -> None:
        self.close()
        self.calls += 1
        tool = self._hosted.get(chunk.name)
        if tool is not None:
            self._open = _OpenSilent(partial(self._begin_hosted, tool))
            return
        call_id = chunk.call_id or new_id("call", self._entropy)
        if call_id in self._slots:
            raise base.ModelError(f"the model used the call id {call_id!r} twice in one Response")
        if chunk.kind in _ASKED_IN:
            self._open = _OpenSilent(partial(self._add_typed_call, chunk.kind, call_id))
            return
        cls = _OpenFunctionCall if chunk.kind == "function_call" else _OpenCustomCall
        self._open = cls(self._emitter, self.items, self._entropy, call_id, chunk.name, self._announce_call)

    def _announce_call(self, call: CallItem) -> None:
        self._slots.open(call)
        self.turn.append(call)

    def _add_typed_call(self, kind: str, call_id: str, arguments: str) -> None:
        """A call of a client's tool that is known by its type is whole: announce its item, and finish it."""
        item_id = new_id(kind, self._entropy)
        call = _typed_call(kind, item_id, call_id, arguments)
        index = len(self.items)
        self.items.append(call)
        self._emitter.emit(ev.ItemAdded(index, evolve(call, status="in_progress")))
        self._announce_call(call)
        self._emitter.emit(ev.ItemDone(index, call))

    def _begin_hosted(self, tool: HostedTool, arguments: str) -> None:
        """A hosted call is whole: announce its item."""
        item = tool.begin(new_id(tool.item_type, self._entropy), arguments)
        call = HostedCall(len(self.items), item, tool)
        self.items.append(item)
        self._emitter.emit(ev.ItemAdded(call.output_index, item))
        self.progress(call, "in_progress")
        self.turn.append(call)


class _OpenSilent:
    """A call that is being sampled, and of which nothing is streamed: ``whole`` takes its arguments."""

    def __init__(self, whole: Callable[[str], None]) -> None:
        self._whole = whole
        self._pieces: list[str] = []

    def add(self, pieces: Sequence[str]) -> None:
        self._pieces += pieces

    def finish(self, status: ItemStatus) -> None:
        if status is ItemStatus.COMPLETED:
            self._whole("".join(self._pieces))


_ASKED_IN: Final[dict[str, tuple[type[CallItem], str]]] = {
    ShellCall.type: (ShellCall, "action"),
    LocalShellCall.type: (LocalShellCall, "action"),
    ApplyPatchCall.type: (ApplyPatchCall, "operation"),
}
"""Kinds of calls that are known by their type: their class, and the field that says what they ask."""


def _typed_call(kind: str, item_id: str, call_id: str, arguments: str) -> CallItem:
    cls, asked = _ASKED_IN[kind]
    try:
        wire = {"type": kind, "id": item_id, "call_id": call_id, "status": "completed", asked: parse(arguments)}
        return from_wire(wire, cls)
    except ProtocolError as error:
        raise base.ModelError(f"the model sampled a {kind} that is none: {error.message}") from None


class _Streamed:
    """An item whose text is streamed."""

    kind: str
    delta: ev.DeltaType

    def __init__(self, emitter: Emitter, items: list[Item], entropy: Entropy) -> None:
        self._emitter = emitter
        self._items = items
        self.index = len(items)
        self.id = new_id(self.kind, entropy)

    def _announce(self, item: Item, *, content: int | None = None, summary: int | None = None) -> None:
        self._items.append(item)
        run = ev.DeltaRun(self.delta, self.id, self.index, content_index=content, summary_index=summary)
        self._text = DeltaText(run)
        self._emitter.emit(ev.ItemAdded(self.index, item))

    def add(self, pieces: Sequence[str]) -> None:
        self._emitter.emit_deltas(self._text, pieces)

    def _done(self, item: Item) -> None:
        self._items[self.index] = item
        self._emitter.emit(ev.ItemDone(self.index, item))


class _OpenMessage(_Streamed):
    kind = "message"
    delta = "response.output_text.delta"
    phase: Literal["commentary", "final_answer"] | None = None

    def __init__(self, emitter: Emitter, items: list[Item], entropy: Entropy) -> None:
        super().__init__(emitter, items, entropy)
        self._announce(Message(id=self.id, role="assistant", status="in_progress", content=()), content=0)
        emitter.emit(ev.PartAdded(self.id, self.index, 0, OutputText(text="")))

    def finish(self, status: ItemStatus) -> None:
        text = self._text.finish()
        part = OutputText(text=text)
        self._emitter.emit(ev.TextDone(self.id, self.index, 0, text))
        self._emitter.emit(ev.PartDone(self.id, self.index, 0, part))
        self._done(Message(id=self.id, role="assistant", status=status.value, content=(part,), phase=self.phase))


class _OpenReasoning(_Streamed):
    kind = "reasoning"
    delta = "response.reasoning_summary_text.delta"
    sealed = False
    """Whether the client asked for it in an opaque form too, to send it back with. There is no secret in it here."""
    encrypted: str | None = None
    """The opaque form that the model gave."""

    def __init__(self, emitter: Emitter, items: list[Item], entropy: Entropy) -> None:
        super().__init__(emitter, items, entropy)
        self._item = Reasoning(id=self.id, status="in_progress")
        self._announce(self._item, summary=0)
        emitter.emit(ev.SummaryPartAdded(self.id, self.index, 0, SummaryText(text="")))

    def finish(self, status: ItemStatus) -> None:
        text = self._text.finish()
        part = SummaryText(text=text)
        self._emitter.emit(ev.SummaryTextDone(self.id, self.index, 0, text))
        self._emitter.emit(ev.SummaryPartDone(self.id, self.index, 0, part))
        sealed = self.encrypted
        if sealed is None and self.sealed:
            sealed = urlsafe_b64encode(text.encode()).decode()
        self._done(evolve(self._item, status=status.value, summary=(part,), encrypted_content=sealed))


class _OpenCall(_Streamed):
    def __init__(
        self,
        emitter: Emitter,
        items: list[Item],
        entropy: Entropy,
        call_id: str,
        name: str,
        on_call: Callable[[CallItem], None],
    ) -> None:
        super().__init__(emitter, items, entropy)
        self._on_call = on_call
        self._call_id = call_id
        self._name = name
        self._announce(self._item("", ItemStatus.IN_PROGRESS))

    def _item(self, text: str, status: ItemStatus) -> FunctionCall | CustomToolCall:
        raise NotImplementedError

    def _text_done(self, text: str) -> ev.Event:
        raise NotImplementedError

    def finish(self, status: ItemStatus) -> None:
        text = self._text.finish()
        self._emitter.emit(self._text_done(text))
        call = self._item(text, status)
        if status is ItemStatus.COMPLETED:
            self._on_call(call)  # the slot is there before its call is announced: a client may answer at once
        self._done(call)


class _OpenFunctionCall(_OpenCall):
    kind = "function_call"
    delta = "response.function_call_arguments.delta"

    def _item(self, text: str, status: ItemStatus) -> FunctionCall:
        return FunctionCall(id=self.id, call_id=self._call_id, name=self._name, arguments=text, status=status.value)

    def _text_done(self, text: str) -> ev.Event:
        return ev.ArgumentsDone(self.id, self.index, self._name, text)


class _OpenCustomCall(_OpenCall):
    kind = "custom_tool_call"
    delta = "response.custom_tool_call_input.delta"

    def _item(self, text: str, status: ItemStatus) -> CustomToolCall:
        return CustomToolCall(id=self.id, call_id=self._call_id, name=self._name, input=text, status=status.value)

    def _text_done(self, text: str) -> ev.Event:
        return ev.CustomInputDone(self.id, self.index, text)
