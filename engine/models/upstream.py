"""Where a model is that others serve: an address, how it is named there, and the key for it.

    chat:http://127.0.0.1:8000/v1#Qwen/Qwen2.5-7B-Instruct

Behind ``#`` is what the model is called there; without it, it is the only one that ``GET /models`` lists. The key comes
from the environment, so that no command line shows it: from ``NAME_API_KEY``, where ``NAME`` is what requests call the
model (in capitals, ``_`` for what is no letter or digit), else from ``SOSTENUTO_UPSTREAM_KEY``.
"""

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

import httpx2
import trio
from attrs import field, frozen

from .base import ModelError

T = TypeVar("T")

CONNECT_SECONDS: Final = 10.0
"""An upstream that takes longer to be connected to is not there."""
SILENCE_SECONDS: Final = 600.0
"""How long an upstream may say nothing: a big model on a small machine reads a long prompt for minutes."""
CONNECTIONS: Final = 1_000
"""As many Responses may sample at once; upstreams that can take less say so."""
ERROR_CHARS: Final = 500
"""How much of what an upstream says of its error is told."""


@frozen(kw_only=True)
class Upstream:
    """A server of models, as the command line names it."""

    url: str
    """Its base, without a slash at the end."""
    model: str | None = None
    """What the model is called there."""
    key: str | None = field(default=None, repr=False)
    transport: httpx2.AsyncBaseTransport | None = field(default=None, repr=False, eq=False)
    """In place of the network: for tests."""

    @classmethod
    def parse(cls, kind: str, what: str, name: str | None, environment: Mapping[str, str] = os.environ) -> Self:
        """From what stands behind ``kind:``; raises ``ValueError`` that says what is wrong."""
        url, _, model = what.partition("#")
        try:
            host = httpx2.URL(url).host
        except httpx2.InvalidURL as error:
            raise ValueError(f"{kind}:{what}: {error}") from error
        if not re.match("https?://", url) or not host:
            raise ValueError(f"{kind} needs an address, as in {kind}:http://127.0.0.1:8000/v1#MODEL; got {what!r}")
        own = re.sub("[^A-Z0-9]", "_", (name or "").upper()) + "_API_KEY"
        key = ((environment.get(own) if name else None) or environment.get("SOSTENUTO_UPSTREAM_KEY") or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError(f"{kind}:{what}: its key has characters that no key has; was it copied whole?")
        return cls(url=url.rstrip("/"), model=model or None, key=key or None)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Connections to it, kept between requests. Leaving the context closes them, whatever they are doing."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
        timeout = httpx2.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
        async with httpx2.AsyncClient(
            base_url=self.url, headers=headers, limits=limits, timeout=timeout, transport=self.transport
        ) as http:
            yield http

    async def named(self, http: httpx2.AsyncClient) -> str:
        """What the model is called there, asked if it was not said. Raises ``ModelError``; cancellation leaves nothing."""
        if self.model is not None:
            return self.model
        names = await listed(http)
        if len(names) != 1:
            raise self.ambiguous(names)
        return names[0]

    def ambiguous(self, names: Sequence[str]) -> ModelError:
        """It has these models, and nobody has said which is meant."""
        return ModelError(
            f"{self.url} has {len(names)} models ({', '.join(names) or 'none'}): say which, as in {self.url}#MODEL"
        )


async def listed(http: httpx2.AsyncClient) -> list[str]:
    """The names of the models that it lists. Raises ``ModelError``; cancellation leaves nothing."""
    return [str(entry["id"]) for entry in entries(await ask(http, "GET", "/models"))]


def entries(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The models in an answer of ``/models``, each with an ``id``."""
    data = answer.get("data")
    return [entry for entry in data if isinstance(entry, dict) and "id" in entry] if isinstance(data, list) else []


async def ask(http: httpx2.AsyncClient, method: str, path: str, **options: object) -> dict[str, Any]:
    """A request whose answer is one JSON object; raises ``ModelError``. Cancellation drops the connection."""
    try:
        answer = await http.request(method, path, **options)  # type: ignore[arg-type]
        if answer.is_error:
            raise refusal(answer.status_code, answer.headers, answer.text)
        found = answer.json()
    except httpx2.HTTPError as error:
        raise broken(str(http.base_url), error) from error
    except ValueError as error:
        raise ModelError(f"{http.base_url}: what {path} answers is no JSON") from error
    return found if isinstance(found, dict) else {}


async def persistently(
    attempt: Callable[[], Awaitable[T]], pauses: Sequence[float], worth: Callable[[ModelError, float], float | None]
) -> T:
    """``attempt``, made again after each of the ``pauses`` (seconds). ``worth`` says how long to wait in place of a pause, or
    None if it is not worth another attempt. Raises ``ModelError``; cancellation leaves what ``attempt`` leaves."""
    for pause in pauses:
        try:
            return await attempt()
        except ModelError as error:
            wait = worth(error, pause)
            if wait is None:
                raise
        await trio.sleep(wait)
    return await attempt()


def broken(url: str, error: Exception) -> ModelError:
    """The upstream can't be reached, or has gone away."""
    return ModelError(f"the model's server {url.rstrip('/')} is not there: {str(error) or type(error).__name__}")


def refusal(status: int, headers: Mapping[str, str], body: str) -> ModelError:
    """What an upstream that answers with an error status makes of a Response: whose fault it is, and when to try again."""
    message = f"the model's server answered {status}: {body.strip()[:ERROR_CHARS]}"
    if status == 429 or status == 503:
        return ModelError(message, fault="busy", retry_after=retry_after(headers))
    if status in (400, 413, 422):
        return ModelError(message, code="invalid_value", fault="request")
    return ModelError(message)


def retry_after(headers: object) -> float | None:
    """What ``retry-after`` says, where it says seconds."""
    told = headers.get("retry-after") if isinstance(headers, Mapping) else None
    try:
        return None if told is None else max(0.0, float(told))
    except (TypeError, ValueError):
        return None
