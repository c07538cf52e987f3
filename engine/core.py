"""The engine: every live Response, its nursery, and those that have ended a while ago.

Rollouts run here and not in the connection that created them, because a Response outlives its socket. One that does not, as
most over HTTP, lives *in place*, in the task of the request that created it: that saves a task and its switches.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Protocol

import trio
from attrs import evolve

from protocol.codec import canonical
from protocol.errors import ProtocolError
from protocol.items import Item
from protocol.lifecycle import Phase
from protocol.requests import CreateRequest

from .account import Shape
from .conversations import Conversations
from .history import History
from .logs import note
from .references import NOTHING, References
from .rollout import Rollout
from .services import Services
from .stages.pipeline import Previous
from .store import Stored


class Watch(Protocol):
    """Whoever created a Response, and wants to know of it. None of these may raise."""

    def refused(self, error: ProtocolError) -> None:
        """There is no Response."""

    def created(self, rollout: Rollout) -> None:
        """Before the first event."""

    def joined(self, rollout: Rollout) -> None:
        """Instead of it: the same create, by its idempotency key, has made this Response before."""

    def ended(self, rollout: Rollout) -> None:
        """After the terminal event."""


class _Party:
    """Those who made the same create: one, unless it was sent again with the same idempotency key."""

    def __init__(self, digest: bytes, watch: Watch) -> None:
        self.digest = digest
        self.rollout: Rollout | None = None
        self._watches = [watch]

    def join(self, watch: Watch) -> None:
        assert self.rollout is not None
        if self.rollout.phase is Phase.QUEUED:
            self._watches.append(watch)
            return
        watch.joined(self.rollout)
        if self.rollout.phase is Phase.ENDED:
            watch.ended(self.rollout)
        else:
            self._watches.append(watch)

    def created(self) -> None:
        assert self.rollout is not None
        for watch in self._watches:
            watch.created(self.rollout)

    def refused(self, error: ProtocolError) -> None:
        for watch in self._watches:
            watch.refused(error)

    def ended(self) -> None:
        assert self.rollout is not None
        for watch in self._watches:
            watch.ended(self.rollout)
        self._watches.clear()


class Engine:
    """All Responses of one server."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.references = References(services.store)
        self.conversations = Conversations(services, self.references)
        self.closing = False
        self.live: dict[str, Rollout] = {}
        """Responses that have begun and whose post-inference work is not done, by id."""
        self._starting: set[Rollout] = set()
        self._finished: OrderedDict[str, tuple[float, Rollout]] = OrderedDict()
        self._with_tokens: deque[Rollout] = deque()
        """Of these, those that still have their token ids, oldest first."""
        self._tokens = 0
        """How many those are."""
        self._keys: OrderedDict[tuple[str, str], _Party] = OrderedDict()
        self._nursery: trio.Nursery | None = None
        self._changed = trio.lowlevel.ParkingLot()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the nursery in which Responses live, until cancelled.

        Cancellation ends every Response with its terminal event and its row, within ``seal_seconds``.
        """
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await self._pulse()
            finally:
                with trio.move_on_after(self.services.config.seal_seconds, shield=True):
                    await self._end_those_in_place()

    async def shutdown(self) -> None:
        """Take no new Responses, let those that sample park or end, then end all, within ``grace`` and ``seal`` seconds."""
        self.closing = True
        config = self.services.config
        with trio.move_on_after(config.grace_seconds):
            # Polled: once in a server's life, this does not make each start and each park of a Response tell the engine.
            while self._starting or any(one.phase is Phase.SAMPLING for one in self.live.values()):  # noqa: ASYNC110
                await trio.sleep(0.02)
        for rollout in list(self.live.values()):
            rollout.stop("server_shutdown")
        with trio.move_on_after(config.seal_seconds):
            while self.live:
                await self._changed.park()
        note("engine.stopped", live=len(self.live))

    async def _end_those_in_place(self) -> None:
        """The nursery takes in what they leave to be done: hold it open for them."""
        for rollout in self._in_place:
            rollout.stop("server_shutdown")
        while self._in_place:
            await self._changed.park()

    @property
    def _in_place(self) -> list[Rollout]:
        return [rollout for rollout in self.live.values() if rollout.in_place]

    # ---- Responses

    def create(
        self,
        request: CreateRequest,
        tenant: str,
        watch: Watch,
        *,
        shape: Shape,
        previous: Previous | None = None,
        remembered: Mapping[str, Item] = NOTHING,
        in_place: bool = False,
    ) -> None:
        """Start a Response; raises ``ProtocolError`` if there is no room. What the stages refuse, ``watch`` is told.

        ``previous`` is the Response that it continues, if the caller has it; else it is looked for among the stored ones.
        ``remembered`` are items that the caller has for the request's references, by id.
        ``in_place``: it is its caller's own, who is to let it ``answer`` and then to ``settle`` it, if it is ``in_place`` when
        this returns. That is if it could begin at once; else it lives in the engine's nursery, as all others do.
        """
        if self._nursery is None or self.closing:
            raise ProtocolError("shutting_down", "the server is shutting down; try another, or again later")
        if len(self.live) + len(self._starting) >= self.services.config.responses:
            raise ProtocolError("queue_full", "the server has as many live Responses as it takes")

        keyed = self._keyed(request, tenant)
        if keyed is not None:
            keyed.join(watch)
            return
        party = _Party(_digest(request) if request.idempotency_key else b"", watch)

        def created(rollout: Rollout) -> None:
            self._starting.discard(rollout)
            self.live[rollout.id] = rollout
            party.created()

        def refused(error: ProtocolError) -> None:
            self._starting.discard(rollout)
            self._forget_key(rollout)
            party.refused(error)

        party.rollout = rollout = Rollout(
            self.services,
            request,
            tenant,
            shape=shape,
            load=partial(self._stored_previous, tenant),
            conversations=self.conversations,
            references=self.references,
            remembered=remembered,
            on_refused=refused,
            on_created=created,
            on_sealed=lambda _: party.ended(),
            on_ended=self._retire,
        )
        if request.idempotency_key:
            self._remember((tenant, request.idempotency_key), party)
        self._starting.add(rollout)
        rollout.in_place = in_place
        runs = rollout.start(previous or self._recent_previous(tenant, request.previous_response_id))
        rollout.in_place = in_place and rollout.live
        if runs and not rollout.in_place:
            self._nursery.start_soon(rollout.run)

    def settle(self, rollout: Rollout) -> None:
        """Do what is to be done after the end of a Response that has lived in place, while its caller goes on."""
        assert self._nursery is not None
        self._nursery.start_soon(rollout.settle)

    def find(self, tenant: str, response_id: str) -> Rollout:
        """A live Response, or one that ended a while ago; raises ``response_not_found``, for a stranger's too."""
        rollout = self._recent(tenant, response_id)
        if rollout is None:
            raise _unknown(response_id)
        return rollout

    def held(self, tenant: str, response_id: str) -> Rollout | None:
        """A Response that is live or has ended a while ago, if ``tenant`` has one of that id and may see it again."""
        rollout = self._recent(tenant, response_id)
        if rollout is not None and rollout.phase is Phase.ENDED and rollout.request.store is False:
            return None
        return rollout

    async def stored(self, tenant: str, response_id: str) -> Stored:
        """A Response from the store; raises ``response_not_found``."""
        stored = await self.services.store.get(tenant, response_id)
        if stored is None:
            raise _unknown(response_id)
        return stored

    async def delete(self, tenant: str, response_id: str) -> None:
        """Forget a Response, cancelled first if it is live; raises ``response_not_found``."""
        rollout = self.held(tenant, response_id)
        if rollout is not None:
            if rollout.live:
                rollout.cancel()
            while response_id in self.live:
                await self._changed.park()
            if self._finished.pop(response_id, None) and rollout in self._with_tokens:
                self._with_tokens.remove(rollout)
                self._forget_tokens_of(rollout)
            self._forget_key(rollout)
        for other in (*self.live.values(), *(one for _, one in self._finished.values())):
            if other.tenant == tenant:
                other.sever(response_id)
        if not await self.services.store.delete(tenant, response_id) and rollout is None:
            raise _unknown(response_id)

    async def previous(self, tenant: str, response_id: str) -> Previous:
        """A stored Response, to be continued; raises ``previous_response_not_found``, for a stranger's too."""
        return self._recent_previous(tenant, response_id) or await self._stored_previous(tenant, response_id)

    def _recent_previous(self, tenant: str, response_id: str | None) -> Previous | None:
        """A stored Response that ended a while ago: its history is at hand."""
        rollout = self._recent(tenant, response_id or "")
        return None if rollout is None or rollout.request.store is False or rollout.severed else rollout.as_previous()

    def _recent(self, tenant: str, response_id: str) -> Rollout | None:
        """A Response of ``tenant`` that is live, or has ended a while ago."""
        rollout = self.live.get(response_id) or self._finished.get(response_id, (0, None))[1]
        return rollout if rollout is not None and rollout.tenant == tenant else None

    async def _stored_previous(self, tenant: str, response_id: str) -> Previous:
        history = await self._read_back(tenant, response_id)
        if history is None:
            message = f"Previous response with id '{response_id}' not found."
            raise ProtocolError("previous_response_not_found", message, "previous_response_id")
        return Previous(history)

    async def _read_back(self, tenant: str, response_id: str) -> History | None:
        """The history of a Response from the store, or None if it, or one before it, is not there."""
        parts: list[Stored] = []
        wanted: str | None = response_id
        while wanted is not None:
            stored = await self.services.store.get(tenant, wanted)
            if stored is None or stored.response.status not in ("completed", "incomplete"):
                return None
            parts.append(stored)
            wanted = stored.previous_id
        history = History()
        for part in reversed(parts):
            begin = len(history.items)
            history.add(part.items)
            history.of.extend((part.response.id,))
            history.stops.extend(begin + stop for stop in part.stops)
        return history

    # ---- keeping house

    def _keyed(self, request: CreateRequest, tenant: str) -> _Party | None:
        key = request.idempotency_key
        party = self._keys.get((tenant, key)) if key else None
        if party is not None and party.rollout is not None and party.rollout.abandoned:
            return None  # the same create again is from the client that was gone: it wants an answer
        if party is not None and party.digest != _digest(request):
            message = f"idempotency_key: {key!r} came with another body before"
            raise ProtocolError("idempotency_conflict", message, "idempotency_key")
        return party

    def _remember(self, key: tuple[str, str], party: _Party) -> None:
        self._keys[key] = party
        while len(self._keys) > self.services.config.idempotency_keys:
            self._keys.popitem(last=False)

    def _retire(self, rollout: Rollout) -> None:
        self.live.pop(rollout.id, None)
        self._changed.unpark_all()
        self._finished[rollout.id] = (trio.current_time(), rollout)
        self._with_tokens.append(rollout)
        self._tokens += rollout.own_tokens
        self._forget()

    def _forget(self) -> None:
        config = self.services.config
        while self._tokens > config.finished_tokens and len(self._with_tokens) > 1:
            self._forget_tokens_of(self._with_tokens.popleft())
        oldest = trio.current_time() - config.finished_seconds
        while self._finished:
            ended_at, _ = next(iter(self._finished.values()))
            if len(self._finished) <= config.finished and ended_at >= oldest:
                return
            _, (_, rollout) = self._finished.popitem(last=False)
            if self._with_tokens and self._with_tokens[0] is rollout:
                self._forget_tokens_of(self._with_tokens.popleft())
            self._forget_key(rollout)

    def _forget_tokens_of(self, rollout: Rollout) -> None:
        self._tokens -= rollout.own_tokens
        rollout.forget_tokens()

    def _forget_key(self, rollout: Rollout) -> None:
        key = rollout.tenant, rollout.request.idempotency_key or ""
        if key in self._keys and self._keys[key].rollout is rollout:
            del self._keys[key]

    async def _pulse(self) -> None:
        while True:
            await trio.sleep(self.services.config.heartbeat_seconds)
            self._forget()
            for rollout in list(self.live.values()):
                rollout.pulse()


def _digest(request: CreateRequest) -> bytes:
    """Of the body, but for the lane that it came on and what only the client reads."""
    return sha256(canonical(evolve(request, stream_id=None, extra={}))).digest()


def _unknown(response_id: str) -> ProtocolError:
    return ProtocolError("response_not_found", f"Response with id '{response_id}' not found.", "response_id")
