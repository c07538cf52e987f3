"""The events of a Response as a store keeps them, and how they are sent again: number for number, byte for byte."""

import zlib
from collections.abc import Iterator
from typing import Protocol

from protocol.codec import seal

from .log import EventLog


class Log(Protocol):
    """The events of a Response, live or ended."""

    @property
    def last(self) -> int:
        """The newest event's number; -1 before the first."""
        ...

    def after(self, cursor: int) -> Iterator[tuple[int, bytes]]:
        """Each event behind number ``cursor``, as (number, body)."""
        ...

    def opened(self) -> "Log":
        """The same, for somebody who goes on reading it."""
        ...


def pack(log: EventLog) -> bytes:
    """All events of ``log``, compressed: a line each, without their numbers, which are their places."""
    return zlib.compress(b"\n".join([body for _, body in log.after(-1)]), 1)


class PackedLog:
    """The events of a Response that has ended a while ago, while nobody reads them: what ``pack`` made, which a store keeps
    too, and nothing else."""

    __slots__ = ("_packed", "last")

    def __init__(self, packed: bytes, last: int) -> None:
        self._packed = packed
        self.last = last

    @property
    def next(self) -> int:
        """The number that the next event would get."""
        return self.last + 1

    def after(self, cursor: int) -> Iterator[tuple[int, bytes]]:
        """Each event behind number ``cursor``, as (number, body)."""
        return self.opened().after(cursor)

    def opened(self) -> "ReplayedLog":
        """Unpacked, for as long as its reader holds it."""
        return ReplayedLog(self._packed)


class ReplayedLog:
    """The events of an ended Response, from what ``pack`` made."""

    def __init__(self, packed: bytes) -> None:
        self._bodies = zlib.decompress(packed).split(b"\n") if packed else []

    def opened(self) -> "ReplayedLog":
        """Itself."""
        return self

    def after(self, cursor: int) -> Iterator[tuple[int, bytes]]:
        """Each event behind number ``cursor``, as (number, body)."""
        for number in range(cursor + 1, len(self._bodies)):
            yield number, self._bodies[number]

    @property
    def last(self) -> int:
        """The last event's number."""
        return len(self._bodies) - 1

    def frames_after(self, cursor: int) -> Iterator[bytes]:
        """The frames behind number ``cursor``."""
        for number, body in self.after(cursor):
            yield seal(body, number)
