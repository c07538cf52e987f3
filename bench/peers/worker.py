"""What the gateways among the peers forward to: ``python -m bench.peers.worker PORT``.

It answers each ``POST /v1/responses`` at once with the turn of the instant model: "Now", and a call of the tool. It reads no
more of a request than it must, and everything that can be made beforehand is: what it costs is charged to nobody, but a
gateway waits for it.
"""

import asyncio
import re
import sys
from itertools import count
from typing import Any, Final

from .turn import ARGUMENTS, TEXT, TOOL_NAME, encoded

LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
MODELS: Final = encoded({"object": "list", "data": [{"id": "gpt-5", "object": "model", "created": 0, "owned_by": "bench"}]})
SSE: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
NUMBER: Final = b"00000000"
"""Where a turn's number stands in its ids."""


def _events() -> bytes:
    """A turn's events as server-sent events. Ids end in ``NUMBER``."""
    number = NUMBER.decode()
    response = {"id": f"resp_{number}", "object": "response", "created_at": 0, "model": "gpt-5", "status": "in_progress"}
    part = {"type": "output_text", "text": TEXT, "annotations": []}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": TOOL_NAME, "arguments": ""}
    spoken = {**message, "status": "completed", "content": [part]}
    called = {**call, "status": "completed", "arguments": ARGUMENTS}
    usage = {"input_tokens": 600, "output_tokens": 6, "total_tokens": 606}
    of_text = {"item_id": message["id"], "output_index": 0, "content_index": 0}
    of_call = {"item_id": call["id"], "output_index": 1}
    events: list[tuple[str, dict[str, Any]]] = [
        ("created", {"response": {**response, "output": []}}),
        ("in_progress", {"response": {**response, "output": []}}),
        ("output_item.added", {"output_index": 0, "item": message}),
        ("content_part.added", {**of_text, "part": {**part, "text": ""}}),
        ("output_text.delta", {**of_text, "delta": TEXT}),
        ("output_text.done", {**of_text, "text": TEXT}),
        ("content_part.done", {**of_text, "part": part}),
        ("output_item.done", {"output_index": 0, "item": spoken}),
        ("output_item.added", {"output_index": 1, "item": {**call, "status": "in_progress"}}),
        ("function_call_arguments.delta", {**of_call, "delta": ARGUMENTS}),
        ("function_call_arguments.done", {**of_call, "arguments": ARGUMENTS}),
        ("output_item.done", {"output_index": 1, "item": called}),
        ("completed", {"response": {**response, "status": "completed", "output": [spoken, called], "usage": usage}}),
    ]
    return b"".join(
        b"event: response.%b\ndata: %b\n\n"
        % (kind.encode(), encoded({"type": f"response.{kind}", "sequence_number": place, **rest}))
        for place, (kind, rest) in enumerate(events)
    )


EVENTS: Final = _events()


class Worker(asyncio.Protocol):
    """One connection, which is kept."""

    numbers = count()

    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not end or (length and len(body) < int(length[1])):
            return
        self._data = b""
        assert self._transport is not None
        self._transport.write(_answer(head, next(self.numbers)))


def _answer(head: bytes, number: int) -> bytes:
    """The answer to a request, in one piece."""
    if head.startswith(b"POST /v1/responses"):
        events = EVENTS.replace(NUMBER, b"%08d" % number)
        return b"%b%x\r\n%b\r\n0\r\n\r\n" % (SSE, len(events), events)
    known = head.startswith(b"GET /v1/models")
    status, body = (b"200 OK", MODELS) if known else (b"200 OK" if head.startswith(b"GET /health") else b"404 Not Found", b"{}")
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


async def main(port: int) -> None:
    """Serve on the loopback until killed."""
    server = await asyncio.get_running_loop().create_server(Worker, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
