"""The events of a Response as a store keeps them, and how they are sent again: number for number, byte for byte."""

import zlib
from collections.abc import Iterator

from protocol.codec import seal

from .log import EventLog


def pack(log: EventLog) -> bytes:
    """All events of ``log``, compressed: a line each, without their numbers, which are their places."""
    return zlib.compress(b"\n".join([body for _, body in log.after(-1)]), 1)


class ReplayedLog:
    """The events of an ended Response, from what ``pack`` made."""

    def __init__(self, packed: bytes) -> None:
        self._bodies = zlib.decompress(packed).split(b"\n") if packed else []

    @property
    def last(self) -> int:
        """The last event's number."""
        return len(self._bodies) - 1

    def frames_after(self, cursor: int) -> Iterator[bytes]:
        """The frames behind number ``cursor``."""
        for number in range(cursor + 1, len(self._bodies)):
            yield seal(self._bodies[number], number)
