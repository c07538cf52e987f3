"""One client's socket: what each of its frames asks, and who is told what.

Every frame is handled in one plain function, from its bytes to its effect: nothing waits, so nothing can be cut in half, and
the reader always reads. A frame that is wrong is answered with an error frame, changes nothing, and disturbs no other lane
(law L13).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import trio
from attrs import frozen

from protocol import events as ev
from protocol.codec import client_message, encode, parse
from protocol.errors import ErrorEvent, ProtocolError
from protocol.ids import new_id
from protocol.items import Item
from protocol.limits import APPEND_ITEMS, SOFT_FRAME_BYTES
from protocol.requests import (
    AppendRequest,
    AttachRequest,
    CancelRequest,
    Continuation,
    CreateRequest,
    FinishRequest,
    SteerRequest,
)

from .core import Engine
from .lane import Lanes, check_stream_id
from .log import check_cursor
from .outbox import Outbox, Subscription
from .references import NOTHING, names_items
from .rollout import Rollout
from .stages.pipeline import Previous
from .steering import Refused, Steering

EVENT_DEPTH: Final = 8
"""How much deeper than a request the events and the stored context are that repeat parts of it."""


@frozen
class Attachment:
    """A Response that this socket is attached to."""

    rollout: Rollout
    epoch: int
    subscription: Subscription
    stream_id: str | None


@frozen
class _Latest:
    response_id: str
    previous: Previous


class _Creation:
    """A create of a socket, while it is of account. A Response outlives its socket, and must not keep all that it knew."""

    __slots__ = ("_request", "session")

    def __init__(self, session: "Session", request: CreateRequest) -> None:
        self.session: Session | None = session
        self._request = request

    def refused(self, error: ProtocolError) -> None:
        if session := self._last():
            session.refused(self._request, error)

    def created(self, rollout: Rollout) -> None:
        if self.session is not None:
            self.session.created(self._request, rollout)

    def joined(self, rollout: Rollout) -> None:
        if self.session is not None:
            self.session.joined(self._request, rollout)

    def ended(self, rollout: Rollout) -> None:
        if session := self._last():
            session.ended(self._request, rollout)

    def _last(self) -> "Session | None":
        """The session, which has nothing more to hear."""
        session = self.session
        if session is not None:
            session.forget(self)
        return session


class Session:
    """What one socket knows. Its handshake has asked for ``continuation``, or None; ``timed``: to hear where the time went."""

    __slots__ = (
        "_attachments",
        "_continuation",
        "_creations",
        "_engine",
        "_lanes",
        "_latest",
        "_outbox",
        "_size",
        "_steering",
        "_tenant",
        "_timed",
        "asked_at",
    )

    def __init__(
        self,
        engine: Engine,
        tenant: str,
        outbox: Outbox,
        *,
        continuation: Continuation | None = None,
        timed: bool = False,
    ) -> None:
        self._engine = engine
        self._tenant = tenant
        self._outbox = outbox
        self._continuation = continuation
        self._timed = timed
        self._attachments: dict[str, Attachment] = {}
        self._lanes = Lanes[CreateRequest](self._start, queue_limit=engine.services.config.lane_queue)
        self._steering = Steering(outbox)
        self._latest: dict[str | None, _Latest] = {}
        """The connection's cache: of each lane the Response that ended last. It goes with the socket."""
        self._creations: set[_Creation] = set()
        self._size = 0
        self.asked_at = trio.current_time()
        """When the last frame came."""

    @property
    def busy(self) -> bool:
        """Whether a Response of this socket is live."""
        return any(attachment.rollout.live for attachment in self._attachments.values())

    def handle(self, message: str | bytes) -> None:
        """Take one frame. Whatever is wrong with it is answered; nothing is raised."""
        self.asked_at = trio.current_time()
        frame: Any = None
        try:
            frame = self._read(message)
            request = client_message(frame)
            check_stream_id(request.stream_id)
            _HANDLERS[type(request)](self, request)
        except ProtocolError as error:
            self._refuse(error, frame)
        except Exception as error:
            self._engine.services.on_bug(error)
            self._refuse(ProtocolError("server_error", "the server failed; this is its fault"), frame)

    def expire(self) -> bool:
        """The socket is as old as it may be: tell the client to open another one, unless it holds what outlives sockets."""
        if any(one.rollout.live and one.rollout.shape == "append" for one in self._attachments.values()):
            return False
        minutes = round(self._engine.services.config.connection_seconds / 60)
        message = (
            f"Responses websocket connection limit reached ({minutes} minutes). Create a new websocket connection to continue."
        )
        self._tell(ProtocolError("websocket_connection_limit_reached", message))
        return True

    def close(self) -> None:
        """The socket is gone. Responses of the append shape live on, each for ``detach_seconds``; others are cancelled."""
        for creation in self._creations:
            creation.session = None
        self._creations.clear()
        self._lanes.clear()
        self._latest.clear()
        for attachment in self._attachments.values():
            attachment.rollout.detach(attachment.subscription)
        self._attachments.clear()

    def forget(self, creation: _Creation) -> None:
        """There is nothing more to hear of ``creation``."""
        self._creations.discard(creation)

    # ---- what frames ask

    def _read(self, message: str | bytes) -> Any:
        if isinstance(message, bytes):
            raise ProtocolError("invalid_frame", "frames are JSON text; this one was binary")
        self._size = len(message) if message.isascii() else len(message.encode("utf-8", "surrogatepass"))
        if self._size > SOFT_FRAME_BYTES:
            raise ProtocolError("message_too_large", f"a frame has at most {SOFT_FRAME_BYTES} bytes, this one has {self._size}")
        return parse(message, spare_depth=EVENT_DEPTH)

    def _create(self, request: CreateRequest) -> None:
        self._lanes.submit(request.stream_id, request)

    def _append(self, request: AppendRequest) -> None:
        rollout, epoch = self._target(request.response_id, request.stream_id)
        accepted = rollout.append(request, epoch=epoch, size=self._size)
        if epoch is None:
            self._answer(ev.AppendAnswer(rollout.id, accepted.append, accepted.pending, stream_id=request.stream_id))

    def _cancel(self, request: CancelRequest) -> None:
        rollout, epoch = self._target(request.response_id, request.stream_id)
        rollout.cancel(epoch=epoch)
        if epoch is None:
            self._answer(ev.EndAnswer("response.cancel.accepted", rollout.id, stream_id=request.stream_id))

    def _finish(self, request: FinishRequest) -> None:
        rollout, epoch = self._target(request.response_id, request.stream_id)
        rollout.finish(epoch=epoch)
        if epoch is None:
            self._answer(ev.EndAnswer("response.finish.accepted", rollout.id, stream_id=request.stream_id))

    def _answer(self, answer: ev.AppendAnswer | ev.EndAnswer | ev.AttachAccepted) -> None:
        """Tell what is in no log: whoever is not attached hears nothing else."""
        self._outbox.tell(encode(answer))

    def _attach(self, request: AttachRequest) -> None:
        rollout = self._engine.find(self._tenant, request.response_id)
        check_cursor(request.starting_after, rollout.log.last)
        self._join(rollout, request.starting_after, request.stream_id)

    def _steer(self, request: SteerRequest) -> None:
        held = self._attachments.get(request.previous_response_id)
        steer_id = new_id("steer", self._engine.services.entropy)
        try:
            self._steering.accept(request, held.rollout if held else None, steer_id)
        except Refused as refused:
            self._steering.refuse(request, refused.error, held.stream_id if held else request.stream_id)

    def _join(self, rollout: Rollout, cursor: int, stream_id: str | None) -> None:
        self._prune()
        subscription = self._subscription(rollout, stream_id, cursor)
        epoch = rollout.attach(subscription)
        self._answer(ev.AttachAccepted(rollout.id, epoch, cursor, rollout.log.last, stream_id=stream_id))
        self._attachments[rollout.id] = Attachment(rollout, epoch, subscription, stream_id)
        subscription.start()

    def _subscription(self, rollout: Rollout, stream_id: str | None, cursor: int = -1) -> Subscription:
        return Subscription(rollout.log, self._outbox, stream_id=stream_id, cursor=cursor, timed=self._timed)

    def _target(self, response_id: str | None, stream_id: str | None) -> tuple[Rollout, int | None]:
        """The Response that a frame means, and the epoch at which this socket attached to it, if it ever did."""
        if response_id is not None:
            held = self._attachments.get(response_id)
            return self._engine.find(self._tenant, response_id), held.epoch if held else None
        on_lane = [one for one in self._attachments.values() if one.stream_id == stream_id and one.rollout.live]
        if not on_lane:
            raise ProtocolError("response_not_active", "no Response is live on this lane", "response_id")
        if len(on_lane) > 1:
            ids = ", ".join(one.rollout.id for one in on_lane)
            message = f"response_id: {len(on_lane)} Responses are live on this lane, say which: {ids}"
            raise ProtocolError("response_ambiguous", message, "response_id")
        return on_lane[0].rollout, on_lane[0].epoch

    # ---- Responses of this socket's lanes

    def _start(self, request: CreateRequest) -> None:
        request = self._steering.prepended(request)
        shape = request.continuation or self._continuation or self._engine.services.config.continuation
        creation = _Creation(self, request)
        self._creations.add(creation)
        try:
            previous = self._cached(request.previous_response_id)
            remembered = self._remembered() if names_items(request) else NOTHING
            self._engine.create(request, self._tenant, creation, shape=shape, previous=previous, remembered=remembered)
        except ProtocolError as error:
            creation.refused(error)

    def refused(self, request: CreateRequest, error: ProtocolError) -> None:
        """A create was refused: its lane goes on."""
        self._evict(request.stream_id, request.previous_response_id)
        self._tell(error, stream_id=request.stream_id)
        self._lanes.done(request.stream_id)

    def created(self, request: CreateRequest, rollout: Rollout) -> None:
        """A create's Response begins: this socket is the client that it answers to."""
        self._prune()
        subscription = self._subscription(rollout, request.stream_id)
        epoch = rollout.attach(subscription)
        self._attachments[rollout.id] = Attachment(rollout, epoch, subscription, request.stream_id)

    def joined(self, request: CreateRequest, rollout: Rollout) -> None:
        """A create was made before: this socket is now the client that its Response answers to."""
        self._join(rollout, -1, request.stream_id)

    def ended(self, request: CreateRequest, rollout: Rollout) -> None:
        """A Response of this socket's lanes has ended: it can be continued, and its lane goes on."""
        lane = request.stream_id
        previous = rollout.as_previous()
        if previous is not None:
            self._latest[lane] = _Latest(rollout.id, previous)
        else:
            self._evict(lane, request.previous_response_id)
        successor = self._steering.successor(rollout, lane)
        if successor is not None:
            self._lanes.put_first(lane, successor)
        self._lanes.done(lane)

    def _cached(self, response_id: str | None) -> Previous | None:
        """The Response to continue, if it is the latest of a lane of this socket."""
        for latest in self._latest.values():
            if latest.response_id == response_id:
                return latest.previous
        return None

    def _remembered(self) -> Mapping[str, Item]:
        """What a create can name that is not stored: the items, by id, of each lane's latest Response with ``store: false``."""
        unstored = [one.previous for one in self._latest.values() if not one.previous.stored]
        return {item.id: item for one in unstored for item in one.history.items[one.began :] if item.id}

    def _evict(self, lane: str | None, response_id: str | None) -> None:
        """A continuation has failed: its lane forgets the Response that it named. A fork leaves the other lane's alone."""
        latest = self._latest.get(lane)
        if latest is not None and latest.response_id == response_id:
            del self._latest[lane]

    def _prune(self) -> None:
        ended = [one for one in self._attachments.values() if not one.rollout.live and one.subscription.caught_up]
        for attachment in ended:
            del self._attachments[attachment.rollout.id]

    def _tell(self, error: ProtocolError, response_id: str | None = None, stream_id: str | None = None) -> None:
        self._outbox.tell(encode(ErrorEvent(error, response_id, stream_id).to_wire()))

    def _refuse(self, error: ProtocolError, frame: Any) -> None:
        """Answer a frame with ``error``, and say which frame is meant, as far as it could be read."""
        fields = frame if isinstance(frame, dict) else {}
        names = (fields.get("response_id"), fields.get("stream_id"))
        response_id, stream_id = (name if isinstance(name, str) else None for name in names)
        append = _append_info(fields) if fields.get("type") == AppendRequest.type else None
        self._outbox.tell(encode(ErrorEvent(error, response_id, stream_id, append).to_wire()))


def _append_info(fields: dict[str, Any]) -> dict[str, Any]:
    items = fields.get("input")
    outputs = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    call_ids = [item["call_id"] for item in outputs[:APPEND_ITEMS] if isinstance(item.get("call_id"), str)]
    return {"call_ids": call_ids, "idempotency_key": fields.get("idempotency_key")}


_HANDLERS: Final[dict[type, Callable[[Session, Any], None]]] = {
    CreateRequest: Session._create,
    AppendRequest: Session._append,
    CancelRequest: Session._cancel,
    FinishRequest: Session._finish,
    AttachRequest: Session._attach,
    SteerRequest: Session._steer,
}
