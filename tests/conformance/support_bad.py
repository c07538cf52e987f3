"""A server in memory whose frames are spoiled on their way to the client."""

from collections.abc import Callable
from typing import Any, TypeVar

from attrs import define, field

from engine.testing.runner import InMemory
from protocol.codec import encode, parse
from protocol.conformance.runner import Scene
from protocol.conformance.transport import Books, Frame, Socket, Transport

T = TypeVar("T")
Spoil = Callable[[Frame], Frame]


class SpoiledSocket:
    def __init__(self, socket: Socket, spoil: Spoil) -> None:
        self._socket = socket
        self._spoil = spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    async def receive_text(self) -> str:
        return encode(self._spoil(parse(await self._socket.receive_text()))).decode()


class SpoiledTransport:
    def __init__(self, transport: Transport, spoil: Spoil) -> None:
        self._transport = transport
        self._spoil = spoil

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def connect(self, **options: Any) -> SpoiledSocket:
        return SpoiledSocket(await self._transport.connect(**options), self._spoil)


@define
class Spoiled:
    """Runs scenes with such a server."""

    spoil: Spoil
    runner: InMemory = field(factory=InMemory)
    server: str = "spoiled"
    exact: bool = True

    def run(self, scene: Scene[T]) -> T:
        async def spoiled(transport: Transport, books: Books) -> T:
            wrapped: Any = SpoiledTransport(transport, self.spoil)
            return await scene(wrapped, books)

        return self.runner.run(spoiled)


def renumber(frame: Frame) -> Frame:
    """An end of a long Response has a number too high."""
    if frame["type"] == "response.completed" and frame["sequence_number"] > 20:
        frame["sequence_number"] += 1
    return frame


def deny_duplicates(frame: Frame) -> Frame:
    """A result that was there already is said to be new."""
    if frame["type"] == "response.append.accepted":
        frame["append"]["duplicate"] = False
    return frame
