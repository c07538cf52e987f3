"""What clients append to a live Response, from the frame to the slots: checked whole, then applied whole (law L6).

An append holds results for open slots, user messages, and perhaps echoes of what the Response itself has put out (some
clients send a call again before its output); echoes that are true add nothing. The same append again, by its idempotency key
or because its results are already there, is acknowledged and adds nothing (law L5).
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import cast

from attrs import define, evolve, frozen

from protocol.codec import canonical, same_json, to_wire
from protocol.errors import ProtocolError
from protocol.events import AppendAccepted, AppendInfo
from protocol.items import (
    CALL_CLASSES,
    OUTPUT_CLASSES,
    FileSearchCall,
    FunctionCall,
    Item,
    ItemReference,
    Message,
    OtherItem,
    OutputOfCall,
    answered_call_id,
    text_of,
)
from protocol.limits import APPEND_ITEMS
from protocol.requests import AppendRequest

from .parking import Slots
from .stages.validate import check_range


@frozen
class _Sorted:
    outputs: tuple[tuple[str, OutputOfCall], ...]
    messages: tuple[Message, ...]


@define
class _Remembered:
    body: bytes
    accepted: AppendAccepted


class Inbox:
    """The appends of one Response."""

    def __init__(self, slots: Slots, echoable: Sequence[Item], new_id: Callable[[], str], *, remember: int) -> None:
        self._slots = slots
        self._echoable = echoable
        self._new_id = new_id
        self._remember = remember
        self._keys: OrderedDict[str, _Remembered] | None = None
        self._messages: list[Message] = []

    @property
    def has_messages(self) -> bool:
        """Whether user messages wait for the next boundary."""
        return bool(self._messages)

    def take_messages(self) -> tuple[Message, ...]:
        """The user messages that wait, in order of arrival."""
        taken = tuple(self._messages)
        self._messages.clear()
        return taken

    def apply(self, request: AppendRequest, screen: Callable[[Sequence[Item]], Sequence[Item]]) -> AppendAccepted:
        """Check all of ``request`` and do it; returns the acknowledgement, to be logged.

        ``screen`` classifies the new items: it returns them, perhaps redacted, or refuses them. Raises ``ProtocolError``,
        and then nothing has changed.
        """
        check_range("idempotency_key", request.idempotency_key)
        body = canonical(request.input) if request.idempotency_key else b""
        known = self._known(request.idempotency_key, body)
        if known is not None:
            append = evolve(known.append, duplicate=True)
            return AppendAccepted(append, self._slots.pending)
        parts = self._sort(request.input)
        fresh = self._slots.plan(parts.outputs)
        screened = screen([*fresh, *parts.messages])
        self._slots.fill(fresh, cast(Sequence[OutputOfCall], screened[: len(fresh)]))
        self._messages.extend(cast(Sequence[Message], screened[len(fresh) :]))
        accepted = self._accepted(parts, duplicate=not screened)
        if request.idempotency_key:
            self._keep(request.idempotency_key, _Remembered(body, accepted))
        return accepted

    def _accepted(self, parts: _Sorted, *, duplicate: bool) -> AppendAccepted:
        call_ids = tuple(dict.fromkeys([answered_call_id(output) or "" for _, output in parts.outputs]))
        return AppendAccepted(AppendInfo(self._new_id(), call_ids, duplicate), self._slots.pending)

    def _known(self, key: str | None, body: bytes) -> AppendAccepted | None:
        known = self._keys.get(key) if key and self._keys else None
        if known is not None and known.body != body:
            raise ProtocolError("idempotency_conflict", f"the key {key!r} came with another body before", "idempotency_key")
        return known.accepted if known else None

    def _keep(self, key: str, remembered: _Remembered) -> None:
        self._keys = self._keys if self._keys is not None else OrderedDict()
        self._keys[key] = remembered
        while len(self._keys) > self._remember:
            self._keys.popitem(last=False)

    def _sort(self, items: Sequence[Item]) -> _Sorted:
        if not items:
            raise ProtocolError("invalid_value", "input: empty; an append has at least one item", "input")
        if len(items) > APPEND_ITEMS:
            message = f"input: {len(items)} items; an append has at most {APPEND_ITEMS}"
            raise ProtocolError("invalid_value", message, "input")
        outputs, messages = [], []
        for index, item in enumerate(items):
            if isinstance(item, OUTPUT_CLASSES):
                outputs.append((f"input[{index}]", item))
            elif isinstance(item, Message) and item.role == "user":
                messages.append(item)
            else:
                self._check_echo(item, f"input[{index}]")
        return _Sorted(tuple(outputs), tuple(messages))

    def _check_echo(self, item: Item, path: str) -> None:
        call = self._slots.call(item.call_id) if isinstance(item, CALL_CLASSES) else None
        candidates = (call,) if call else self._echoable
        if isinstance(item, OtherItem) or not any(_echoes(item, own) for own in candidates):
            raise ProtocolError(
                "echo_mismatch",
                f"{path}: an append takes tool outputs and user messages; a {item.type} may only repeat "
                "what this Response has put out, and this one does not",
                path,
            )


def _echoes(item: Item, own: Item) -> bool:
    """Whether ``item`` says again what ``own`` said: ids and status aside, and arguments compared as JSON."""
    if isinstance(item, ItemReference):
        return item.id == own.id
    if type(item) is not type(own):
        return False
    if isinstance(item, FunctionCall) and isinstance(own, FunctionCall):
        same = item.call_id == own.call_id and item.name == own.name
        return same and same_json(item.arguments, own.arguments)
    if isinstance(item, Message) and isinstance(own, Message):
        return item.role == own.role and text_of(item.content) == text_of(own.content)
    if isinstance(item, FileSearchCall) and isinstance(own, FileSearchCall):
        return item.id == own.id
    return _bare(item) == _bare(own)


def _bare(item: Item) -> bytes:
    wire = to_wire(item)
    return canonical({key: value for key, value in wire.items() if key not in ("id", "status", "encrypted_content")})
