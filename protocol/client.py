"""The client's side of one rollout in the append shape, without I/O: frames in, notices and frames out.

Any event loop, in any language, can follow it. The owner of a socket does three things with a ``ClientState``:

- what ``create``, ``append``, ``finish`` and ``cancel`` return, it sends;
- each frame that arrives it gives to ``receive``, and acts on the notices that come back;
- on a new socket, after the old one went, it sends what ``reconnect`` returns, in that order.

Theory. A server numbers the events of a Response without gaps and keeps them, so the number of the last one (the
*cursor*) says all about what was seen: ``response.attach`` with the cursor brings the rest, what comes twice is
dropped by its number, and a hole raises ``ProtocolGap``. In the other direction what was sent and not acknowledged is
simply sent again: a result is write-once, so the same again is acknowledged as a duplicate, and an append with a user
message has an idempotency key. Thus nothing is lost and nothing is done twice, wherever the socket was cut:

    call      unknown ──output_item.done──> open ──append──> sent ──append.accepted──> acknowledged
                                              │                ^ │
                                              RunCall, once    └─┘ again after each reconnect

A call is to be run once it is open, also before ``response.done``, and is announced once in its life. While events are
replayed, calls wait with their announcement until the replay is over: an acknowledgement may be among what follows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from .items import OUTPUT_TYPE_OF

Frame = dict[str, Any]
"""A message as JSON values."""

APPEND_CODES: Final = frozenset(
    {
        "tool_call_not_found",
        "tool_output_conflict",
        "tool_output_type_mismatch",
        "echo_mismatch",
        "response_not_active",
    }
)
"""The codes of ``protocol.errors`` that refuse an append. Appends are answered in order, so the oldest one is meant."""

SETTLED_CODES: Final = frozenset({"tool_output_conflict", "response_not_active"})
"""Those after which there is nothing left to do about the append, and the rollout goes on: the call has another result
already, or the Response is ending and its terminal event is on its way."""


class ProtocolGap(Exception):
    """An event is missing: numbers ``expected`` to ``got - 1`` never came. A new socket and ``reconnect`` bring
    them."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"event {expected} is missing: the next one has number {got}")
        self.expected = expected
        self.got = got


# ---- notices


@frozen
class RunCall:
    """Run this call now, and append its result when it ends. Said once for each call, also over reconnects."""

    item: Frame


@frozen
class Text:
    """A piece of the model's answer."""

    delta: str


@frozen
class Parked:
    """The model waits for ``required_input``: stubs that name the open calls, or the user's next message."""

    required_input: tuple[Frame, ...]


@frozen
class AskUser:
    """The model has answered and waits for the user (``hold: "conversation"``): append a message, or finish."""


@frozen
class Acknowledged:
    """The server owns the results of these calls; none for an append of user messages only."""

    call_ids: tuple[str, ...]
    duplicate: bool


@frozen
class Ended:
    """The Response as its terminal event has it. Nothing follows."""

    response: Frame


@frozen
class Refused:
    """An ``error`` frame. ``settled``: there is nothing to do about it. ``call_ids``: whose results were refused, if
    known."""

    error: Frame
    settled: bool = False
    call_ids: tuple[str, ...] = ()


Notice = RunCall | Text | Parked | AskUser | Acknowledged | Ended | Refused


@frozen
class _Sent:
    """An append that is not acknowledged yet."""

    call_ids: tuple[str, ...]
    input: tuple[Frame, ...]
    extra: Frame = field(factory=dict)


class ClientState:
    """One rollout. ``idempotency_key`` is unique to it; the keys of its appends are derived from it.

    All attributes are for reading: ``response_id``, ``cursor``, ``status`` and ``usage`` as last heard, ``items``
    (done, by output index), ``open_calls`` (by call id, until acknowledged), ``required_input`` while parked,
    ``parks`` (how often), and ``response`` once it has ended.
    """

    def __init__(self, idempotency_key: str) -> None:
        self.idempotency_key = idempotency_key
        self.response_id: str | None = None
        self.cursor = -1
        self.status: str | None = None
        self.usage: Frame | None = None
        self.items: dict[int, Frame] = {}
        self.open_calls: dict[str, Frame] = {}
        self.required_input: tuple[Frame, ...] = ()
        self.parks = 0
        self.response: Frame | None = None
        self._create: Frame | None = None
        self._lane: Frame = {}
        self._sent: list[_Sent] = []
        self._keys = 0
        self._announced: set[str] = set()
        self._replay_ends = -1
        self._pieces: list[str] = []
        self._ending: set[str] = set()

    @property
    def ended(self) -> bool:
        """Whether the terminal event was received."""
        return self.response is not None

    @property
    def parked(self) -> bool:
        """Whether the Response waits for ``required_input``."""
        return bool(self.required_input)

    @property
    def text(self) -> str:
        """All that the model has said so far."""
        return "".join(self._pieces)

    @property
    def unacknowledged(self) -> tuple[str, ...]:
        """The calls whose results were sent and not acknowledged, in the order of sending."""
        return tuple(call_id for sent in self._sent for call_id in sent.call_ids)

    @property
    def quiet(self) -> bool:
        """Whether nothing that was sent still waits for an answer, so that the socket is free for another rollout."""
        return self.ended and not self._sent and not self._ending

    # ---- what to send

    def create(self, body: Mapping[str, Any]) -> Frame:
        """The frame that begins the rollout. ``body`` is a create body; a key of its own replaces ours."""
        frame = {"type": "response.create", "idempotency_key": self.idempotency_key, **body}
        self.idempotency_key = frame["idempotency_key"]
        self._lane = {"stream_id": body["stream_id"]} if body.get("stream_id") else {}
        self._create = frame
        return frame

    def attach(self, response_id: str, starting_after: int = -1) -> Frame:
        """The frame that joins a Response which someone else began, instead of ``create``.

        From -1 on, the default, all of it is replayed, and the calls that are still open at the end are announced.
        """
        self.response_id = response_id
        self.cursor = starting_after
        return self.reconnect()[0]

    def append(self, items: Sequence[Mapping[str, Any]]) -> Frame:
        """The frame with results of calls, or user messages.

        A frame is refused whole. So send one result in each when someone else may answer calls of the same Response
        too.
        """
        outputs = [item for item in items if item["type"] in _OUTPUT_TYPES]
        extra: Frame = {}
        if len(outputs) < len(items):
            self._keys += 1
            extra["idempotency_key"] = f"{self.idempotency_key}-{self._keys}"
        call_ids = tuple(str(item.get("call_id") or item.get("id")) for item in outputs)
        sent = _Sent(call_ids, tuple(map(dict, items)), extra)
        self._sent.append(sent)
        return self._append_frame(sent)

    def finish(self) -> Frame:
        """The frame that ends a Response which waits for the user, as completed."""
        self._ending.add("response.finish")
        return self._addressed("response.finish")

    def cancel(self) -> Frame:
        """The frame that ends a Response where it is."""
        self._ending.add("response.cancel")
        return self._addressed("response.cancel")

    def reconnect(self) -> list[Frame]:
        """What to say first on a new socket: attach (or create again), then all that was not acknowledged."""
        if self.ended:
            return []
        frames: list[Frame] = []
        if self.response_id is not None:
            frames.append({**self._addressed("response.attach"), "starting_after": self.cursor})
        elif self._create is not None:
            frames.append(self._create)
        frames += map(self._append_frame, self._sent)
        frames += map(self._addressed, sorted(self._ending, reverse=True))
        return frames

    def _append_frame(self, sent: _Sent) -> Frame:
        return {**self._addressed("response.append"), "input": list(sent.input), **sent.extra}

    def _addressed(self, kind: str) -> Frame:
        known = {} if self.response_id is None else {"response_id": self.response_id}
        return {"type": kind, **known, **self._lane}

    # ---- what was received

    def receive(self, frame: Mapping[str, Any]) -> list[Notice]:
        """Digest a frame of the server; raises ``ProtocolGap``, having changed nothing.

        Events that were seen before, and those of types that we don't know, give no notice.
        """
        if self.ended:
            return []
        number = frame.get("sequence_number")
        kind = frame["type"]
        if kind == "error":
            return self._refused(frame)
        if number is not None:
            if number <= self.cursor:
                return []
            if number > self.cursor + 1:
                raise ProtocolGap(self.cursor + 1, number)
            self.cursor = number
        handler = _HANDLERS.get(kind)
        notices = handler(self, frame) if handler else []
        return notices + self._announce()

    def _announce(self) -> list[Notice]:
        """The calls that are to be run and were not announced; none while the past is being replayed."""
        if self.cursor < self._replay_ends or self.ended:
            return []
        fresh = [item for call_id, item in self.open_calls.items() if call_id not in self._announced]
        self._announced.update(self.open_calls)
        return [RunCall(item) for item in fresh]

    def _snapshot(self, frame: Mapping[str, Any]) -> list[Notice]:
        response = frame["response"]
        self.response_id = response["id"]
        self.status = response["status"]
        self.usage = response.get("usage") or self.usage
        return []

    def _attached(self, frame: Mapping[str, Any]) -> list[Notice]:
        self._replay_ends = frame["last_sequence_number"]
        return []

    def _item_added(self, _: Mapping[str, Any]) -> list[Notice]:
        self.required_input = ()
        return []

    def _item_done(self, frame: Mapping[str, Any]) -> list[Notice]:
        item = frame["item"]
        self.items[frame["output_index"]] = item
        if item["type"] in OUTPUT_TYPE_OF and (item.get("status") or "completed") == "completed":
            self.open_calls[item["call_id"]] = item
        return []

    def _text(self, frame: Mapping[str, Any]) -> list[Notice]:
        self._pieces.append(frame["delta"])
        return [Text(frame["delta"])]

    def _parked(self, frame: Mapping[str, Any]) -> list[Notice]:
        self._snapshot(frame)
        self.required_input = tuple(frame["required_input"])
        self.parks += 1
        asks = any(stub.get("role") == "user" for stub in self.required_input)
        return [Parked(self.required_input), *([AskUser()] if asks else [])]

    def _accepted(self, frame: Mapping[str, Any]) -> list[Notice]:
        call_ids = tuple(frame["append"]["call_ids"])
        duplicate = bool(frame["append"]["duplicate"])
        for call_id in call_ids:
            self.open_calls.pop(call_id, None)
        for sent in self._sent:
            # Without call ids only the first acknowledgement tells: a duplicate's may be of an earlier message.
            if set(sent.call_ids) == set(call_ids) and (call_ids or not duplicate):
                self._sent.remove(sent)
                break
        if not frame["pending"] and not duplicate:
            self.required_input = ()
        return [Acknowledged(call_ids, duplicate)]

    def _refused(self, frame: Mapping[str, Any]) -> list[Notice]:
        """An error of another Response is not ours to hear; one without a ``response_id`` is the connection's, and
        is."""
        if self.response_id is not None and frame.get("response_id") not in (None, self.response_id):
            return []
        code = frame.get("code") or (frame.get("error") or {}).get("code")
        call_ids: tuple[str, ...] = ()
        if code in APPEND_CODES and self._sent:
            call_ids = self._sent.pop(self._place_of(frame.get("append"))).call_ids
            if code == "tool_output_conflict" and len(call_ids) == 1:
                self.open_calls.pop(call_ids[0], None)
        return [Refused(dict(frame), code in SETTLED_CODES, call_ids)]

    def _place_of(self, append: Mapping[str, Any] | None) -> int:
        """Which append was refused: the server says; of one that does not, the oldest is meant."""
        wanted = set((append or {}).get("call_ids", ()))
        matching = (place for place, sent in enumerate(self._sent) if wanted and set(sent.call_ids) == wanted)
        return next(matching, 0)

    def _ended(self, frame: Mapping[str, Any]) -> list[Notice]:
        self._snapshot(frame)
        self.required_input = ()
        self.response = frame["response"]
        self.items = dict(enumerate(self.response["output"]))
        return [Ended(self.response)]


_OUTPUT_TYPES: Final = frozenset(OUTPUT_TYPE_OF.values())
_HANDLERS: Final[dict[str, Callable[[ClientState, Mapping[str, Any]], list[Notice]]]] = {
    "response.created": ClientState._snapshot,
    "response.in_progress": ClientState._snapshot,
    "response.attach.accepted": ClientState._attached,
    "response.output_item.added": ClientState._item_added,
    "response.output_item.done": ClientState._item_done,
    "response.output_text.delta": ClientState._text,
    "response.done": ClientState._parked,
    "response.append.accepted": ClientState._accepted,
    "response.completed": ClientState._ended,
    "response.incomplete": ClientState._ended,
    "response.failed": ClientState._ended,
}


def output_for(item: Mapping[str, Any], output: str | list[Frame], *, failed: bool = False) -> Frame:
    """The output item that answers the call ``item``. Content parts are taken by function and custom calls only;

    the others get their text. ``failed`` tells of a tool that did not do its work, where the output has a place for it.
    """
    kind = item["type"]
    answer: Frame = {"type": OUTPUT_TYPE_OF[kind], "call_id": item["call_id"]}
    if kind in ("function_call", "custom_tool_call"):
        return {**answer, "output": output}
    text = output if isinstance(output, str) else "".join(part.get("text", "") for part in output)
    if kind == "apply_patch_call":
        return {**answer, "status": "failed" if failed else "completed", "output": text}
    if kind == "shell_call":
        chunk = {"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": int(failed)}}
        return {**answer, "output": [chunk]}
    return {**answer, "output": text}
