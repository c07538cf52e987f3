"""Finds out what kind of server there is: asks llama.cpp's ``/props``, else samples a token at ``/v1/completions``."""

from typing import Any

import httpx2
import trio
from attrs import frozen

from ..base import ModelError
from ..chat.answer import Answer
from ..formats.base import Vocabulary
from ..upstream import Upstream, ask, entries
from .dialects import Ask, Dialect, Llama, OpenAI
from .pieces import Pieces


@frozen
class Found:
    """A server that can be used."""

    dialect: Dialect
    kind: str
    context: int | None
    """Tokens of a prompt and its answer; None if it does not say."""
    slots: int | None
    """How many; None if it has none."""

    def __str__(self) -> str:
        slots = "" if self.slots is None else f", {self.slots} slots"
        return self.kind + slots + ("" if self.context is None else f", {self.context} tokens")


async def find(http: httpx2.AsyncClient, upstream: Upstream, vocabulary: Vocabulary) -> Found:
    """Ask the server what it is. Raises ``ModelError``: it is not there, or does not say which ids it samples."""
    props = await _props(http)
    if props is not None:
        settings = props.get("default_generation_settings") or {}
        pieces = await trio.to_thread.run_sync(Pieces, vocabulary)
        return Found(Llama(pieces), "llama.cpp", settings.get("n_ctx"), props["total_slots"])
    model, context = await _model(http, upstream)
    some = vocabulary.encode("Hello")
    for logprobs in (False, True):
        dialect = OpenAI(model, logprobs=logprobs)
        if await _says_ids(http, dialect, some):
            return Found(dialect, model, context, None)
    raise ModelError(f"{upstream.url} does not say the ids of the tokens that it samples: use chat:{upstream.url}/v1")


async def _props(http: httpx2.AsyncClient) -> dict[str, Any] | None:
    """What llama.cpp's server says of itself; None from any other."""
    try:
        props = await ask(http, "GET", "/props")
    except ModelError as error:
        if error.__cause__ is not None and isinstance(error.__cause__, httpx2.HTTPError):
            raise
        return None
    return props if "total_slots" in props else None


async def _model(http: httpx2.AsyncClient, upstream: Upstream) -> tuple[str, int | None]:
    """What the model is called there, and how many tokens it reads."""
    answer = await ask(http, "GET", "/v1/models")
    listed = entries(answer)
    wanted = [entry for entry in listed if upstream.model in (None, entry["id"])]
    if len(wanted) != 1:
        raise upstream.ambiguous([str(entry["id"]) for entry in listed])
    return str(wanted[0]["id"]), wanted[0].get("max_model_len")


async def _says_ids(http: httpx2.AsyncClient, dialect: Dialect, ids: Any) -> bool:
    reading = dialect.reading()
    sampled: list[int] = []
    answer = await Answer.ask(http, dialect.body(Ask(ids=list(ids), tokens=1, temperature=0.0)), dialect.path)
    try:
        while (payloads := await answer.receive(over=reading.ended is not None)) and None not in payloads:
            for payload in payloads:
                sampled += reading.feed(payload or {})
    except ModelError:
        return False
    finally:
        await answer.aclose()
    return bool(sampled)
