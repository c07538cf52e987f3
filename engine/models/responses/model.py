"""``responses:URL[#MODEL]``: the model, of which each sampler is a ``RelaySampler``."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import httpx2
import trio

from ..base import ModelError, Plan, Sampler
from ..upstream import Upstream, ask
from .lines import Lines
from .sampler import RelaySampler


class RelayModel:
    """A model that another server of the Responses API has. It is called ``name``, else as it is called there."""

    def __init__(self, upstream: Upstream, name: str | None = None) -> None:
        self.name = name or upstream.model or "responses"
        self._upstream = upstream
        self._lines: Lines | None = None
        self._http: httpx2.AsyncClient | None = None
        self._model = upstream.model

    @classmethod
    def load(cls, what: str, name: str | None) -> Self:
        """From what stands behind ``responses:``. Raises ``ValueError``."""
        return cls(Upstream.parse("responses", what, name), name)

    @classmethod
    def at(cls, url: str, *, model: str | None = None, key: str | None = None, name: str | None = None) -> Self:
        """The model of the server at ``url``, which is its base, as in ``https://api.example.com/v1``."""
        return cls(Upstream(url=url.rstrip("/"), model=model, key=key), name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Its connections last as long. The other server is asked for nothing yet: it may come later, and go, and come."""
        tls = ssl.create_default_context() if self._upstream.url.startswith("https") else None
        failure: Exception | None = None
        async with self._upstream.connected() as http, trio.open_nursery() as nursery:
            self._http = http
            self._lines = lines = Lines(self._upstream, http, nursery, tls)
            try:
                yield
            except Exception as error:
                failure = error  # to come out as it is, not in the nursery's group
            finally:
                self._http = self._lines = None
                lines.close()
        if failure is not None:
            raise failure

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[Sampler]:
        """A sampler. Left while the other server samples, that Response is dropped there. Raises ``ModelError``."""
        lines, model = await self._ready()
        sampler = RelaySampler(lines, plan, model)
        try:
            yield sampler
        finally:
            await sampler.aclose()  # noqa: ASYNC102 - what it waits for is shielded, with a deadline

    async def check(self) -> str:
        """What the model is called there, and how the server is reached. Raises ``ModelError``."""
        lines, model = await self._ready()
        line = await lines.open()
        if lines.give_back(line):
            return f"{model} over a WebSocket"
        assert self._http is not None
        await ask(self._http, "GET", "/models")
        return f"{model} over HTTP"

    async def _ready(self) -> tuple[Lines, str]:
        if self._lines is None or self._http is None:
            raise ModelError(f"{self.name} is not running")
        if self._model is None:
            self._model = await self._upstream.named(self._http)
        return self._lines, self._model
