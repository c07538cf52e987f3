"""``chat:URL``: a model behind ``/v1/chat/completions``, as vLLM, Ollama, llama.cpp and most hosted models serve it.

    chat:http://127.0.0.1:11434/v1#qwen3

Item level: the server renders and tokenizes by itself, and is sent the conversation anew at each turn. While a Response is
parked the server holds what it likes to; what the engine holds is the conversation.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import httpx2

from ..base import ModelError, Plan
from ..upstream import Upstream, listed
from .request import Dialect
from .sampler import ChatSampler

KIND = "chat"


class ChatModel:
    """A model at an ``upstream``. It can be opened while it is ``running``."""

    def __init__(self, upstream: Upstream, name: str | None = None) -> None:
        self._upstream = upstream
        self._name = name or upstream.model or KIND
        self._dialect = Dialect()
        self._http: httpx2.AsyncClient | None = None
        self._there: str | None = None
        """What it is called there, once that is known."""

    @classmethod
    def load(cls, what: str, name: str | None) -> Self:
        """From what stands behind ``chat:``. Raises ``ValueError``."""
        return cls(Upstream.parse(KIND, what, name), name)

    @property
    def name(self) -> str:
        """What requests call it: as the command line says, else as it is called there, else ``chat``."""
        return self._name

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connections to it. Nothing is asked yet: an upstream may come up later than we do."""
        async with self._upstream.connected() as http:
            self._http = http
            try:
                yield
            finally:
                self._http = self._there = None

    async def check(self) -> str:
        """What is served there. Raises ``ModelError``."""
        http = self._connection()
        ids = await listed(http)
        wanted = self._upstream.model
        if wanted is not None and ids and wanted not in ids:
            return f"{len(ids)} models, but it does not list {wanted}"
        return f"{wanted or await self._upstream.named(http)}, one of {len(ids)}"

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[ChatSampler]:
        """A sampler. Raises ``ModelError`` for a plan that it can't do. Leaving the context drops what is being sampled."""
        http = self._connection()
        if self._there is None:
            self._there = await self._upstream.named(http)
        sampler = ChatSampler(http, self._there, plan, self._dialect)
        try:
            yield sampler
        finally:
            await sampler.aclose()  # noqa: ASYNC102 - shielded, with a deadline

    def _connection(self) -> httpx2.AsyncClient:
        if self._http is None:
            raise ModelError(f"model {self._name} is not running")
        return self._http


__all__ = ["KIND", "ChatModel"]
