"""``smollm2`` and ``gguf:FILE``: a model in our own care.

    smollm2                                    what ``sostenuto pull smollm2`` has fetched
    smollm2:slots=8&context=2048
    gguf:models/qwen2.5-7b-instruct-q4_k_m.gguf
    gguf:FILE?slots=2&context=16384&threads=4&format=chatml

Options: how many ``slots`` there are (Responses that sample side by side, or are held), each with a ``context`` of so many
tokens; the ``threads`` that sample; and the ``format`` (a name in ``FORMATS``) where the file's chat template does not tell.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qsl

from .completions.served import ServedModel
from .formats import ModelFormat, Vocabulary
from .gguf import form_of, read_metadata
from .llama import CONTEXT_TOKENS, LlamaServer
from .pull import PULLABLE, pulled

NUMBERS: Final = ("slots", "context", "threads")
OPTIONS: Final = (*NUMBERS, "format")


class LocalModel(ServedModel):
    """A model that llama.cpp samples in a process of ours. It can be opened while it is ``running``."""

    def __init__(self, server: LlamaServer, form: ModelFormat, vocabulary: Vocabulary, name: str) -> None:
        """``server`` has the model; it is started and ended with this."""
        super().__init__(form, vocabulary, name, keeper=server)
        self.server = server

    @classmethod
    def load(cls, file: Path, name: str, options: str = "") -> Self:
        """From a GGUF file, of which the vocabulary is read here. Raises ``ValueError`` or ``OSError``."""
        told = _options(options)
        metadata = read_metadata(file)
        vocabulary = metadata.vocabulary()
        form = form_of(file, metadata, vocabulary, told.pop("format", None))
        numbers: dict[str, Any] = {key: _number(key, value) for key, value in told.items()}
        context = numbers.pop("context", min(CONTEXT_TOKENS, metadata.context_length))
        if context > metadata.context_length:
            raise ValueError(f"{file}: the model was made for a context of {metadata.context_length} tokens, not {context}")
        return cls(LlamaServer(file=file, name=name, context=context, **numbers), form, vocabulary, name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Its process, and connections to it, as long as the context lasts. Raises ``ModelError`` if it can't be started."""
        async with self.server.running(), self.connected(self.server.upstream):
            yield

    async def check(self) -> str:
        """What is served, and how. Raises ``ModelError``."""
        await self.server.ready()
        return await super().check()


def smollm2(options: str, name: str | None) -> LocalModel:
    """SmolLM2, as it was pulled. Raises ``ValueError``."""
    file = pulled("smollm2")
    if file is None:
        raise ValueError("smollm2 is not here: sostenuto pull smollm2")
    return LocalModel.load(file, name or "smollm2", options)


def gguf(what: str, name: str | None) -> LocalModel:
    """The model in a file, and what stands behind ``?``. Raises ``ValueError`` or ``OSError``."""
    path, _, options = what.partition("?")
    if not path:
        raise ValueError(
            f"gguf needs a file, as in gguf:FILE or gguf:FILE?slots=2; for {', '.join(PULLABLE)} just say the name"
        )
    return LocalModel.load(Path(path), name or Path(path).stem, options)


def _options(text: str) -> dict[str, str]:
    try:
        told = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True)) if text else {}
    except ValueError:
        raise ValueError(f"no options: {text!r}; they are {', '.join(OPTIONS)}, as in slots=2&context=4096") from None
    if unknown := told.keys() - set(OPTIONS):
        raise ValueError(f"no such option: {', '.join(sorted(unknown))}; there are {', '.join(OPTIONS)}")
    return told


def _number(key: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise ValueError(f"{key} is a whole number from 1 on, got {value!r}")
    return int(value)
