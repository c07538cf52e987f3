"""A model that speaks by the clock of a simulation: another one's words, in few and large pieces, when a slot is free.

Each item comes as a whole, when its last token is due: so that a turn costs a few events, however many tokens it has, while
the client has each of its calls when it would have it. When the first token was due is noted.
"""

import math
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio
from attrs import define, field, frozen

from ..models.base import CallEnd, CallPieces, Chunk, MessageEnd, Model, Plan, Reasoning, Rendered, Sampler, Stop, Text
from .slots import Gauge, Memory, Slots, State
from .virtual import sleep_until


@frozen(kw_only=True)
class Cluster:
    """What the users of a simulated model share. Speeds are tokens per second."""

    slots: Slots
    memory: Memory
    sampling: float = math.inf
    prefill: float = math.inf
    parked: Gauge = field(factory=Gauge)
    """Responses that wait for their client."""


@define
class Spent:
    """Where a rollout's time went at the model, in seconds; and what was read."""

    memory: float = 0.0
    """Waiting for room."""
    queue: float = 0.0
    """Waiting for a slot."""
    prefill: float = 0.0
    sampling: float = 0.0
    read: int = 0
    """Tokens of context that were read."""
    read_again: int = 0
    """Those of them that had been known before."""
    first_tokens: list[float] = field(factory=list)
    """When that of each turn was due, by the loop's clock."""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.memory + self.queue + self.prefill + self.sampling


class TimedModel:
    """``model``, whose samplers give all that is due at once, as one user of ``cluster`` has it. ``state`` and ``spent`` are
    of the rollout that is played: exchange them for the next."""

    def __init__(self, model: Model, name: str, cluster: Cluster) -> None:
        self.name = name
        self.state = State(0)
        self.spent = Spent()
        self._model = model
        self._cluster = cluster

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator["_TimedSampler"]:
        """A sampler in virtual time."""
        async with self._model.open(plan) as sampler:
            timed = _TimedSampler(sampler, self._cluster, self.state, self.spent, len(plan.prompt.ids))
            try:
                yield timed
            finally:
                timed.leave()


@define(eq=False)
class _TimedSampler:
    _sampler: Sampler
    _cluster: Cluster
    _state: State
    _spent: Spent
    _context: int
    """Tokens."""
    _turn: deque[tuple[int, list[Chunk]]] = field(factory=deque)
    """What is still to be said, and after how many tokens of the turn."""
    _tokens: int = 0
    """Of the whole turn."""
    _began: float = 0.0
    _has_slot: bool = False
    _parked: bool = False

    async def receive(self) -> Sequence[Chunk]:
        if not self._turn:
            await self._begin()
        due, chunks = self._turn.popleft()
        await sleep_until(self._began + due / self._cluster.sampling)
        if not self._turn:
            self._end()
        return chunks

    async def extend(self, new: Rendered) -> None:
        self._context += len(new.ids)
        await self._sampler.extend(new)

    def leave(self) -> None:
        """Hold no slot. The state is the rollout's, and goes with that."""
        self._resume()
        if self._has_slot:
            self._has_slot = False
            self._cluster.slots.give()
            self._cluster.memory.park(self._state)

    async def _begin(self) -> None:
        self._resume()
        self._turn = deque(in_few(await _whole_turn(self._sampler)))
        self._tokens = self._turn[-1][0]
        await self._enter(self._context + self._tokens)
        self._began = trio.current_time()
        await self._read()
        self._began = trio.current_time()
        self._spent.first_tokens.append(self._began + min(1, self._tokens) / self._cluster.sampling)

    async def _enter(self, need: int) -> None:
        """Wait for a slot, and for room in memory."""
        memory, state, spent = self._cluster.memory, self._state, self._spent
        came = trio.current_time()
        await memory.admit(state)
        admitted = trio.current_time()
        await self._cluster.slots.take()
        self._has_slot = True
        taken = trio.current_time()
        await memory.use(state, need)
        spent.queue += taken - admitted
        spent.memory += admitted - came + trio.current_time() - taken

    async def _read(self) -> None:
        """Prefill: what of the context the model does not know."""
        state, spent = self._state, self._spent
        new = max(0, self._context - state.tokens)
        spent.read += new
        spent.read_again += max(0, min(self._context, state.known) - state.tokens)
        state.tokens = self._context
        if new and self._cluster.prefill < math.inf:
            await sleep_until(self._began + new / self._cluster.prefill)
            spent.prefill += trio.current_time() - self._began

    def _end(self) -> None:
        self._spent.sampling += trio.current_time() - self._began
        self._context += self._tokens
        self._state.tokens = self._state.known = self._context
        self._parked, self._has_slot = True, False
        self._cluster.parked.add(1)
        self._cluster.memory.park(self._state)
        self._cluster.slots.give()

    def _resume(self) -> None:
        if self._parked:
            self._parked = False
            self._cluster.parked.add(-1)


async def _whole_turn(sampler: Sampler) -> list[Chunk]:
    chunks: list[Chunk] = []
    while not chunks or not isinstance(chunks[-1], Stop):
        chunks += await sampler.receive()
    return chunks


def in_few(chunks: Sequence[Chunk]) -> list[tuple[int, list[Chunk]]]:
    """The chunks of a turn, up to its ``Stop``, in one batch for each item, whose text is one piece.

    Each batch comes with the number of the turn's tokens up to its end.
    """
    batches: list[tuple[int, list[Chunk]]] = []
    batch: list[Chunk] = []
    spoken: list[Text | Reasoning | CallPieces] = []
    total = 0
    for chunk in chunks:
        if isinstance(chunk, Text | Reasoning | CallPieces):
            spoken.append(chunk)
            continue
        if spoken:
            tokens = sum(one.tokens for one in spoken)
            text = "".join(piece for one in spoken for piece in one.pieces)
            batch.append(type(spoken[0])((text,), tokens))
            total += tokens
            spoken = []
        batch.append(chunk)
        if isinstance(chunk, CallEnd | MessageEnd | Stop):
            if batches and batches[-1][0] == total:
                batches[-1][1].extend(batch)
            else:
                batches.append((total, batch))
            batch = []
    return batches
