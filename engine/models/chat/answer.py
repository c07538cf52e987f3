"""One request's answer, as it comes: an ``Answer`` holds the connection until it has ended, or is let go."""

import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, Final

import httpx2
import trio

from protocol.codec import encode

from ..base import ModelError
from ..upstream import broken
from .failures import of_answer
from .sse import Events, Payload

LATE_SECONDS: Final = 5.0
"""How long the usage and the end may be late, when sampling has stopped."""
REST_SECONDS: Final = 0.05
"""What stands behind ``[DONE]`` is the end of the body: it is read, so that the connection can be used again."""
CLOSE_SECONDS: Final = 1.0
"""More than it takes to close a socket."""

_HEADERS: Final = {"accept": "text/event-stream", "accept-encoding": "identity", "content-type": "application/json"}


class NotThere(ModelError):
    """No connection: nothing was asked."""


class Answer:
    """The events of an answer. ``aclose`` drops the connection if the answer is not over."""

    def __init__(self, url: str, response: httpx2.Response) -> None:
        self._url = url
        self._bytes = response.aiter_bytes()
        self._response = response
        self._events = Events()
        self._is_json = response.headers.get("content-type", "").startswith("application/json")
        self._begins = True

    @classmethod
    async def ask(cls, http: httpx2.AsyncClient, body: Mapping[str, Any], path: str = "/chat/completions") -> "Answer":
        """Send a request, and read the head of its answer. Raises ``ModelError``, for any status but success; ``NotThere``
        if nothing was asked. Cancellation drops the connection."""
        url = str(http.base_url)
        request = http.build_request("POST", path, content=encode(body), headers=_HEADERS)
        try:
            response = await http.send(request, stream=True)
            if response.is_success:
                return cls(url, response)
            try:
                text = (await response.aread()).decode("utf-8", "replace")
            finally:
                await _close(response)  # noqa: ASYNC102 - shielded, with a deadline
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise NotThere(broken(url, error).message) from error
        except httpx2.HTTPError as error:
            raise broken(url, error) from error
        raise of_answer(response.status_code, response.headers, text)

    async def receive(self, *, over: bool) -> list[Payload] | None:
        """The events of what comes next; None at the end of the answer. Always a checkpoint.

        ``over``: sampling has stopped, so that what is still missing can be done without. Raises ``ModelError``.
        Cancelled, the answer can only be closed.
        """
        with trio.move_on_after(LATE_SECONDS if over else float("inf")):
            try:
                data = await anext(self._bytes, None)
            except httpx2.HTTPError as error:
                if over:
                    return None
                raise broken(self._url, error) from error
            if data is None:
                return self._end()
            return self._read(data)
        return None

    def _read(self, data: bytes) -> list[Payload]:
        if self._begins and self._is_json and data.lstrip()[:1] != b"{":
            self._is_json = False  # events under a wrong name
        self._begins = False
        if self._is_json:  # one object, written over many lines perhaps
            data = data.replace(b"\r", b" ").replace(b"\n", b" ")
        return self._events.feed(data)

    def _end(self) -> list[Payload] | None:
        return self._events.end() or None

    async def finish(self) -> None:
        """``[DONE]`` has been read: leave the connection to the next request, if it can be used again."""
        with trio.move_on_after(REST_SECONDS), suppress(httpx2.HTTPError):
            while await anext(self._bytes, None) is not None:
                pass
        await self.aclose()

    async def aclose(self) -> None:
        """Let the connection go. Also when cancelled."""
        await _cut(self._response, self._bytes)
        await _close(self._bytes, self._response)


async def _cut(response: httpx2.Response, received: AsyncGenerator[bytes, None]) -> None:
    """End the connection below an answer that is not over, and let the generators that read from it find out: closing the
    outermost alone leaves those within to the garbage collector, of which trio warns."""
    network = response.extensions.get("network_stream")
    if response.is_closed or network is None:
        return
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS), suppress(httpx2.HTTPError, OSError):
        network.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        while await anext(received, None) is not None:
            pass


async def _close(*opened: AsyncGenerator[bytes, None] | httpx2.Response) -> None:
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
        for one in opened:
            with suppress(httpx2.HTTPError):
                await one.aclose()
