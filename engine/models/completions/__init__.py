"""``completions:URL``: a model behind a server that takes token ids, and says which ids it has sampled.

    completions:http://127.0.0.1:8080?gguf=qwen3-8b.gguf                  llama.cpp's server
    completions:http://127.0.0.1:8000/v1?gguf=qwen3-8b.gguf#Qwen/Qwen3-8B   vLLM, SGLang

Token level: the engine renders, sends ids and never text, and a Response's tokens are exactly those that were sampled. Where
the server has slots (llama.cpp), each live Response has one as long as it can, so that its state is still there when it goes
on (``engine.models.completions.slots``). Which kind of server it is, is found out by asking it. The vocabulary and the format
are read from a GGUF file of the model, of which the tensors are not read; ``format=NAME`` (of ``FORMATS``) says the latter
where the file does not.

What is computed. With a temperature of 0 a Response says the same whether its state was held or read again, as far as the
server computes the same. llama.cpp on a processor nearly does: without flash attention it makes no difference how a prompt
is cut into batches, but a token that is evaluated alone, as those that are sampled are, gets a state that differs in its last
bits from that of one that is evaluated with others. Where two tokens are nearly as likely, the text may go another way then.
With a batch of one (``--ubatch-size 1``) all are evaluated alone, and nothing differs; prompts are then read as slowly as
text is sampled.
llama.cpp's server has to be told how many slots it has (``--parallel 4``): else it empties those that are held.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qsl

import trio
from attrs import evolve

from ..base import Format, ModelError, Plan
from ..formats.base import ModelFormat, Vocabulary
from ..gguf import form_of, read_metadata
from ..upstream import Upstream
from .probe import find
from .sampler import CompletionsSampler, Keeper, Server
from .slots import Slots

KIND: Final = "completions"


class CompletionsModel:
    """A model at an ``upstream``, in a format over its vocabulary. It can be opened while it is ``running``."""

    def __init__(
        self,
        upstream: Upstream,
        form: ModelFormat,
        vocabulary: Vocabulary,
        name: str | None = None,
        *,
        hold_seconds: float = inf,
        keeper: Keeper | None = None,
        seed: int | None = None,
    ) -> None:
        """``keeper`` looks after the server's process. With a ``seed`` the same Responses say the same, as long as nothing
        else is sampled."""
        self._upstream = evolve(upstream, url=upstream.url.removesuffix("/v1"))
        self._form = form
        self._vocabulary = vocabulary
        self._name = name or upstream.model or KIND
        self._hold_seconds = hold_seconds
        self._keeper = keeper
        self._seed = seed
        self._server: Server | None = None

    @classmethod
    def load(cls, what: str, name: str | None) -> Self:
        """From what stands behind ``completions:``. Raises ``ValueError`` or ``OSError``."""
        url, _, model = what.partition("#")
        url, _, query = url.partition("?")
        told = dict(parse_qsl(query))
        if unknown := told.keys() - {"gguf", "format"}:
            raise ValueError(f"{KIND}: no such option: {', '.join(sorted(unknown))}; there are gguf and format")
        if "gguf" not in told:
            raise ValueError(f"{KIND} needs the model's vocabulary: a GGUF file of it, as in {KIND}:{url}?gguf=FILE")
        file = Path(told["gguf"])
        metadata = read_metadata(file)
        vocabulary = metadata.vocabulary()
        form = form_of(file, metadata, vocabulary, told.get("format"))
        return cls(Upstream.parse(KIND, f"{url}#{model}", name), form, vocabulary, name)

    @property
    def name(self) -> str:
        """What requests call it: as the command line says, else as it is called there, else ``completions``."""
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
    async def running(self) -> AsyncIterator[None]:
        """Connections to it, as long as the context lasts. Raises ``ModelError`` if the server can't be used."""
        async with self._upstream.connected() as http:
            found = await find(http, self._upstream, self._vocabulary)
            self._server = Server(
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
        found = await find(server.http, self._upstream, self._vocabulary)
        return f"{found}; {self._form.name}"

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[CompletionsSampler]:
        """A sampler. Leaving the context stops what is being sampled, and frees its slot."""
        sampler = CompletionsSampler(self._running(), plan)
        await trio.lowlevel.checkpoint()
        try:
            yield sampler
        finally:
            await sampler.aclose()  # noqa: ASYNC102 - shielded, with a deadline

    def _running(self) -> Server:
        if self._server is None:
            raise ModelError(f"model {self._name} is not running")
        return self._server


__all__ = ["KIND", "CompletionsModel", "Keeper"]
