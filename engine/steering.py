"""Steering, in the create shape: what a user says while a Response samples, and the Response that goes on with it.

A steer that is accepted waits. The Response that it was sent to ends at its next item (``incomplete``, reason ``steered``) or
by itself; then a successor begins with its input. If it ended on calls of the client's, the client's next create has to answer
them first: the steer says that it is pending, and its input is put before that create's own.
"""

from collections.abc import Sequence
from typing import Final

from attrs import evolve, frozen

from protocol import events as ev
from protocol.codec import encode_event, lane_suffix, seal, to_wire
from protocol.items import Item, Message
from protocol.requests import CreateRequest, SteerRequest

from .outbox import Outbox
from .rollout import Rollout
from .stages.pipeline import input_items

PENDING_MOST: Final = 32
"""Steers that wait for one Response; as one other server has it, nobody documents a number."""


@frozen
class Steer:
    """One that was accepted."""

    id: str
    input: tuple[Item, ...]


class Refused(Exception):
    """A steer that is refused. ``code`` is one of those that the Responses API documents."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.error = ev.SteerError(code, message)


class Steering:
    """The steers of one socket."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: dict[str, list[Steer]] = {}
        """By the id of the Response that they were sent to, while it is live."""
        self._pending: dict[str, list[Steer]] = {}
        """By its id, when it has ended on calls of the client's."""

    def accept(self, request: SteerRequest, rollout: Rollout | None, steer_id: str) -> None:
        """Queue a steer, and say so; raises ``Refused``."""
        items = _user_messages(request)
        waiting = self._waiting.get(request.previous_response_id, [])
        if rollout is None:
            raise Refused("response_not_found", f"Response with id '{request.previous_response_id}' not found.")
        if not rollout.live:
            raise Refused("response_already_completed", "the Response has ended; create another one that continues it")
        if rollout.shape != "create":
            raise Refused("steering_not_supported", "this Response takes user messages: append one")
        if rollout.request.conversation is not None:
            raise Refused("steering_not_supported", "a Response of a conversation can't be steered")
        if len(waiting) >= PENDING_MOST:
            raise Refused("too_many_pending_steers", f"{PENDING_MOST} steers wait already")
        self._waiting[rollout.id] = [*waiting, Steer(steer_id, items)]
        rollout.steer(ev.SteerInfo(steer_id, rollout.id))

    def refuse(self, request: SteerRequest, error: ev.SteerError, stream_id: str | None) -> None:
        """Tell why a steer is refused."""
        rejected = ev.SteerRejected(to_wire(request.input), request.previous_response_id)
        self._say(ev.SteerFailed(rejected, error), 0, stream_id)

    def successor(self, rollout: Rollout, stream_id: str | None) -> CreateRequest | None:
        """What goes on with the steers of ``rollout``, which has ended; None if there are none, or they have to wait."""
        steers = self._waiting.get(rollout.id)
        if not steers:
            return None
        previous = rollout.as_previous()
        number = rollout.log.next
        if previous is None:
            self._fail(self._waiting.pop(rollout.id), rollout.id, number, stream_id)
            return None
        if previous.history.open:
            self._pending[rollout.id] = self._waiting.pop(rollout.id)
            stubs = rollout.unanswered
            for offset, steer in enumerate(steers):
                info = ev.SteerInfo(steer.id, rollout.id)
                self._say(ev.SteerPending(info, stubs), number + offset, stream_id)
            return None
        items = _joined(self._waiting.pop(rollout.id))
        return evolve(rollout.request, previous_response_id=rollout.id, input=items, idempotency_key=None, generate=None)

    def prepended(self, request: CreateRequest) -> CreateRequest:
        """A client's create, with the steers that wait for it before its own input. They wait on until it has ``begun``."""
        steers = self._pending.get(request.previous_response_id or "")
        return evolve(request, input=(*_joined(steers), *input_items(request))) if steers else request

    def begun(self, request: CreateRequest) -> None:
        """A create was not refused: what waited for it is in its Response."""
        self._pending.pop(request.previous_response_id or "", None)

    def _fail(self, steers: Sequence[Steer], response_id: str, number: int, stream_id: str | None) -> None:
        error = ev.SteerError("successor_creation_failed", "the Response ended so that nothing can continue it")
        for offset, steer in enumerate(steers):
            rejected = ev.SteerRejected(to_wire(steer.input), response_id, id=steer.id)
            self._say(ev.SteerFailed(rejected, error), number + offset, stream_id)

    def _say(self, event: ev.Event, number: int, stream_id: str | None) -> None:
        self._outbox.tell_in_turn(seal(encode_event(event), number, lane_suffix(stream_id)), stream_id)


def _joined(steers: Sequence[Steer]) -> tuple[Item, ...]:
    return tuple(item for steer in steers for item in steer.input)


def _user_messages(request: SteerRequest) -> tuple[Item, ...]:
    if isinstance(request.input, str):
        return (Message(role="user", content=request.input),)
    if not request.input or not all(isinstance(item, Message) and item.role == "user" for item in request.input):
        raise Refused("invalid_input", "a steer is a text, or a list of messages of the user")
    return request.input
