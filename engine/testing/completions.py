"""A server of tokens, in memory: llama.cpp's ``/completion`` with slots, or vLLM's ``/v1/completions``.

    server = TokenServer(lambda ids: [*vocabulary.encode("Hi"), stop], vocabulary, slots=2)
    model = CompletionsModel(server.upstream, ChatML(vocabulary), vocabulary)

Its model samples what a function says to the ids that it has read, the stop token included. With slots it holds in each what it
has read there, says how much of a prompt it had, and streams whole characters, as llama.cpp does.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

import httpx2
import trio
from attrs import frozen

from protocol.codec import encode, parse

from ..models.formats.base import Vocabulary
from ..models.upstream import Upstream

MODEL: Final = "m"
"""What it calls its model."""


@frozen
class Break:
    """The connection breaks after so many tokens; with -1 there is none."""

    after: int


@frozen
class Refuse:
    """An answer with an error status."""

    status: int
    body: Mapping[str, Any]


class TokenServer(httpx2.AsyncBaseTransport):
    """``slots`` is None for vLLM's kind. ``faults`` are met by the next requests, one each; None is none."""

    def __init__(
        self,
        sample: Callable[[Sequence[int]], Sequence[int]],
        vocabulary: Vocabulary,
        *,
        slots: int | None = None,
        context: int = 4096,
        token_seconds: float = 0.0,
        says_ids: str | None = "token_ids",
    ) -> None:
        """``says_ids``, of vLLM's kind: as ``token_ids``, in ``logprobs`` as texts or as llama.cpp's ``content``, or None."""
        self.sample = sample
        self.vocabulary = vocabulary
        self.context = context
        self.token_seconds = token_seconds
        self.says_ids = says_ids
        self.held: list[list[int]] | None = None if slots is None else [[] for _ in range(slots)]
        """By slot, what was read there."""
        self.busy: set[int] = set()
        self.requests: list[dict[str, Any]] = []
        self.faults: deque[Break | Refuse | None] = deque()
        self.dropped = 0
        """Answers that nobody read to their end."""
        self.sampled = 0
        """Tokens, in all answers."""

    @property
    def upstream(self) -> Upstream:
        """Where it is."""
        return Upstream(url="http://memory/v1", model=MODEL, transport=self)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """As a transport does."""
        await trio.lowlevel.checkpoint()
        body = await request.aread()
        if request.method == "GET":
            return self._about(request.url.path)
        asked = parse(body)
        self.requests.append(asked)
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Refuse):
            return httpx2.Response(fault.status, content=encode(fault.body))
        if isinstance(fault, Break) and fault.after < 0:
            raise httpx2.ConnectError("connection refused", request=request)
        breaks = None if fault is None else fault.after
        answer = _OpenAI(self, asked, breaks) if self.held is None else _Llama(self, asked, breaks)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=answer)

    def _about(self, path: str) -> httpx2.Response:
        if path == "/v1/models":
            listed: dict[str, Any] = {"data": [{"id": MODEL, "max_model_len": self.context}]}
        elif path == "/props" and self.held is not None:
            listed = {"total_slots": len(self.held), "default_generation_settings": {"n_ctx": self.context}}
        else:
            return httpx2.Response(404, content=b'{"error":{"message":"not found"}}')
        return httpx2.Response(200, content=encode(listed))


class _Answer(httpx2.AsyncByteStream):
    """An answer: events, until it breaks."""

    def __init__(self, server: TokenServer, asked: Mapping[str, Any], breaks: int | None) -> None:
        self.server = server
        self.asked = asked
        self.ids: list[int] = asked["prompt"]
        self.over = False
        self._breaks = breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        sampled = list(self.server.sample(self.ids))
        most = self.asked.get("n_predict") or self.asked["max_tokens"]
        for place, token in enumerate(sampled[:most]):
            await trio.sleep(self.server.token_seconds)
            if place == self._breaks:
                self.over = True
                raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")
            self.server.sampled += 1
            for payload in self.token(token):
                yield b"data: " + encode(payload) + b"\n\n"
        self.over = True
        for last in self.end("stop" if len(sampled) <= most else "length"):
            yield b"data: " + (last if isinstance(last, bytes) else encode(last)) + b"\n\n"

    def token(self, token: int) -> list[Any]:
        """What is said of it."""
        raise NotImplementedError

    def end(self, reason: str) -> list[Any]:
        """What is said at the end."""
        raise NotImplementedError

    async def aclose(self) -> None:
        if not self.over:
            self.over = True
            self.server.dropped += 1


class _Llama(_Answer):
    def __init__(self, server: TokenServer, asked: Mapping[str, Any], breaks: int | None) -> None:
        super().__init__(server, asked, breaks)
        self.slot: int = asked["id_slot"]
        assert server.held is not None
        if self.slot in server.busy:
            raise AssertionError(f"slot {self.slot} is asked for while it samples")
        server.busy.add(self.slot)
        held = server.held[self.slot]
        same = takewhile(lambda pair: pair[0] == pair[1], zip(held, self.ids, strict=False))
        self.reused = sum(1 for _ in same)
        server.held[self.slot] = self.read = list(self.ids)
        self.predicted = 0
        self.last = 0
        self.unsaid = b""

    def token(self, token: int) -> list[Any]:
        if self.predicted:
            self.read.append(self.last)  # a token is read when the next one is sampled
        self.last = token
        self.predicted += 1
        special = token == self.server.sample(self.ids)[-1]
        self.unsaid += b"" if special else self.server.vocabulary.token_bytes(token)
        if _is_cut(self.unsaid):
            return []
        text, self.unsaid = self.unsaid.decode(errors="replace"), b""
        return [{"index": 0, "content": text, "tokens": [token], "stop": False, "tokens_predicted": self.predicted}]

    def end(self, reason: str) -> list[Any]:
        self.server.busy.discard(self.slot)
        timings = {"cache_n": self.reused, "prompt_n": len(self.ids) - self.reused}
        kind = "limit" if reason == "length" else "eos"
        return [{"stop": True, "stop_type": kind, "tokens_predicted": self.predicted, "timings": timings}]

    async def aclose(self) -> None:
        self.server.busy.discard(self.slot)
        await super().aclose()


class _OpenAI(_Answer):
    def token(self, token: int) -> list[Any]:
        text = self.server.vocabulary.token_bytes(token).decode(errors="replace")
        said: dict[str, dict[str, Any]] = {
            "token_ids": {"token_ids": [token]} if self.asked.get("return_token_ids") else {},
            "logprobs": {"logprobs": {"tokens": [f"token_id:{token}"]} if self.asked.get("logprobs") else None},
            "content": {"logprobs": {"content": [{"id": token}]} if self.asked.get("logprobs") else None},
        }
        return [{"choices": [{"index": 0, "text": text, **said.get(self.server.says_ids or "", {}), "finish_reason": None}]}]

    def end(self, reason: str) -> list[Any]:
        usage = {"prompt_tokens": len(self.ids), "prompt_tokens_details": {"cached_tokens": len(self.ids) - 1}}
        return [{"choices": [{"index": 0, "text": "", "finish_reason": reason}]}, {"choices": [], "usage": usage}, b"[DONE]"]


def _is_cut(data: bytes) -> bool:
    """Whether ``data`` ends within a character; only its last bytes are looked at, as llama.cpp does."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            return back < (4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1)
    return False
