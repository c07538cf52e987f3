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
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl

from ..formats.base import ModelFormat, Vocabulary
from ..gguf import form_of, read_metadata
from ..upstream import Upstream
from .sampler import Keeper
from .served import ServedModel

KIND: Final = "completions"


class CompletionsModel(ServedModel):
    """A model at an ``upstream``. It can be opened while it is ``running``.

    It is called as the command line says, else as it is called there, else ``completions``.
    """

    def __init__(
        self, upstream: Upstream, form: ModelFormat, vocabulary: Vocabulary, name: str | None = None, **options: Any
    ) -> None:
        """``options`` as ``ServedModel`` has them."""
        super().__init__(form, vocabulary, name or upstream.model or KIND, **options)
        self._upstream = upstream

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

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connections to it, as long as the context lasts. Raises ``ModelError`` if the server can't be used."""
        async with self.connected(self._upstream):
            yield


__all__ = ["KIND", "CompletionsModel", "Keeper"]
