"""What all models behind a server that takes token ids have in common, whoever starts and ends the server."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf

import trio
from attrs import evolve

from ..base import Format, ModelError, Plan
from ..formats.base import ModelFormat, Vocabulary
from ..upstream import Upstream
from .probe import find
from .sampler import CompletionsSampler, Keeper, Server
from .slots import Slots


class ServedModel:
    """A model in a format over its vocabulary. It can be opened while it is ``connected``."""

    def __init__(
        self,
        form: ModelFormat,
        vocabulary: Vocabulary,
        name: str,
        *,
        hold_seconds: float = inf,
        keeper: Keeper | None = None,
        seed: int | None = None,
    ) -> None:
        """``keeper`` looks after the server's process. With a ``seed`` the same Responses say the same, as long as nothing
        else is sampled."""
        self._form = form
        self._vocabulary = vocabulary
        self._name = name
        self._hold_seconds = hold_seconds
        self._keeper = keeper
        self._seed = seed
        self._server: Server | None = None

    @property
    def name(self) -> str:
        """What requests call it."""
        return self._name

    @property
    def format(self) -> Format:
        """How its prompts are rendered."""
        return self._form

    @property
    def hold_seconds(self) -> float:
        """How long a parked Response's slot is kept from others who can do with another one."""
        return self._hold_seconds

    @hold_seconds.setter
    def hold_seconds(self, seconds: float) -> None:
        self._hold_seconds = seconds
        if self._server is not None and self._server.slots is not None:
            self._server.slots.hold_seconds = seconds

    @asynccontextmanager
    async def connected(self, upstream: Upstream) -> AsyncIterator[None]:
        """Connections to its server, as long as the context lasts. Raises ``ModelError`` if the server can't be used."""
        upstream = evolve(upstream, url=upstream.url.removesuffix("/v1"))
        async with upstream.connected() as http:
            found = await find(http, upstream, self._vocabulary)
            self._server = Server(
                upstream=upstream,
                http=http,
                dialect=found.dialect,
                form=self._form,
                context=found.context,
                slots=None if found.slots is None else Slots(found.slots, self._hold_seconds),
                keeper=self._keeper,
                seed=self._seed,
            )
            try:
                yield
            finally:
                self._server = None

    async def check(self) -> str:
        """What is served there, and how. Raises ``ModelError``."""
        server = self._running()
        found = await find(server.http, server.upstream, self._vocabulary)
        return f"{found}; {self._form.name}"

    def open(self, plan: Plan) -> AbstractAsyncContextManager[CompletionsSampler]:
        """A sampler. Leaving the context stops what is being sampled, and frees its slot. Raises ``ModelError`` if it is not
        running."""
        return _opened(self._running(), plan)

    def _running(self) -> Server:
        if self._server is None:
            raise ModelError(f"model {self._name} is not running")
        return self._server


@asynccontextmanager
async def _opened(server: Server, plan: Plan) -> AsyncIterator[CompletionsSampler]:
    sampler = CompletionsSampler(server, plan)
    await trio.lowlevel.checkpoint()
    try:
        yield sampler
    finally:
        await sampler.aclose()  # noqa: ASYNC102 - shielded, with a deadline
