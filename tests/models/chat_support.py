"""Reads a chat server's answer through the sampler."""

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from engine.models.base import (
    CallBegin,
    CallEnd,
    CallPieces,
    Chunk,
    Counted,
    MessageEnd,
    ModelError,
    Plan,
    Reasoning,
    Rendered,
    Stop,
    Text,
)
from engine.models.chat import ChatModel
from engine.models.upstream import Upstream
from engine.testing.upstreams import FakeUpstream, Reply
from protocol.items import Item, Message
from protocol.requests import Tool

LOOK = Tool(type="function", name="look", parameters={"type": "object", "properties": {"at": {"type": "string"}}})


def plan(*items: Item, tools: Sequence[Tool] = (LOOK,), **options: Any) -> Plan:
    """A plan with a user's message, if nothing else is said."""
    said = items or (Message(role="user", content="Go"),)
    return Plan(model="m", tools=tuple(tools), prompt=Rendered(said, ()), **options)


def model_at(upstream: FakeUpstream) -> ChatModel:
    """A model in memory."""
    return ChatModel(Upstream(url="http://memory/v1", model="m", transport=upstream))


@define
class Heard:
    """What a turn amounts to."""

    items: list[list[str]] = field(factory=list)
    ids: list[str] = field(factory=list)
    stop: str | None = None
    error: ModelError | None = None
    tokens: int = 0
    reasoning: int = 0

    def add(self, chunk: Chunk) -> None:
        """Keeps to the rules of chunks: calls end before something else begins, pieces are not empty."""
        assert self.stop is None
        if isinstance(chunk, Text | Reasoning):
            self._said("text" if isinstance(chunk, Text) else "reasoning", chunk)
        elif isinstance(chunk, CallBegin):
            assert chunk.call_id not in (None, *self.ids)
            self.ids.append(str(chunk.call_id))
            self.items.append(["open", chunk.name, ""])
        elif isinstance(chunk, CallPieces):
            assert all(chunk.pieces)
            assert self.items[-1][0] == "open"
            self.items[-1][2] += "".join(chunk.pieces)
            self.tokens += chunk.tokens
        elif isinstance(chunk, CallEnd):
            assert self.items[-1][0] == "open"
            self.items[-1][0] = "call"
        elif isinstance(chunk, Counted):
            self.tokens += chunk.tokens
            self.reasoning += chunk.reasoning
        elif isinstance(chunk, Stop):
            self.stop = chunk.reason
        else:
            assert isinstance(chunk, MessageEnd)

    def _said(self, kind: str, chunk: Text | Reasoning) -> None:
        assert all(chunk.pieces)
        if not self.items or self.items[-1][0] != kind:
            assert not self.items or self.items[-1][0] != "open"
            self.items.append([kind, ""])
        self.items[-1][1] += "".join(chunk.pieces)
        self.tokens += chunk.tokens
        self.reasoning += chunk.tokens if kind == "reasoning" else 0


async def hear(upstream: FakeUpstream, asked: Plan | None = None) -> Heard:
    """One turn."""
    heard = Heard()
    model = model_at(upstream)
    async with model.running():
        try:
            async with model.open(asked or plan()) as sampler:
                while heard.stop is None:
                    for chunk in await sampler.receive():
                        heard.add(chunk)
        except ModelError as error:
            heard.error = error
    return heard


def saying(*steps: Any, **options: Any) -> FakeUpstream:
    """An upstream with one reply."""
    return FakeUpstream(Reply(*steps, **options))
