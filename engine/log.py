"""The event log of one Response: numbers events, and remembers them for slow readers, attach and replay.

Goal: 100,000 tokens must stay small, and a delta must cost next to nothing. A frame of 150 bytes for each token would be
15 MB; so the log does not keep frames. It keeps the events' objects, whose texts are shared with the items, and for deltas
only where the text was cut: four bytes each. Frames are made again when a reader needs them. (A short body that was made takes
little more than its event's object, and is kept instead of it: it will be wanted again when the log is stored.)

A number is given after encoding (law L3): ``append`` and ``deltas`` encode first, and whatever fails there leaves no hole.
While nobody reads, an event whose parts are known to encode is only remembered, and encoded for whoever reads it later.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from protocol import events as ev
from protocol.codec import encode_event, encode_run, encode_text
from protocol.errors import ProtocolError
from protocol.events import DeltaRun, Event
from protocol.items import Message, Reasoning

SURE: Final = frozenset(
    {ev.Created, ev.InProgress, ev.PartAdded, ev.PartDone, ev.TextDone, ev.SummaryPartAdded, ev.SummaryPartDone}
)
"""Events that hold what came as JSON, ids of ours, and texts whose deltas are in the log: no encoder fails on them."""
SHORT_BYTES: Final = 512
"""Bodies up to this length are kept as they are."""
OF_ITEM: Final = (ev.ItemAdded, ev.ItemDone)
SURE_ITEMS: Final = (Message, Reasoning)
"""Output items of which the same can be said."""


class DeltaText:
    """A text that is streamed in pieces: one message's text, one call's arguments.

    While it grows it is a list of pieces. ``finish`` joins them into one string, which the item and the log then share.
    """

    __slots__ = ("_prefix", "cuts", "pieces", "run", "text")

    def __init__(self, run: DeltaRun) -> None:
        self.run = run
        self._prefix = b""
        self.pieces: list[str] = []
        self.cuts = array("I")
        self.text: str | None = None

    def finish(self) -> str:
        """The whole text."""
        end = 0
        for piece in self.pieces:
            end += len(piece)
            self.cuts.append(end)
        self.text = "".join(self.pieces)
        self.pieces = []
        self._prefix = b""
        return self.text

    @property
    def prefix(self) -> bytes:
        """What each frame begins with. It is kept while the text grows."""
        if self.text is not None:
            return encode_run(self.run)
        self._prefix = self._prefix or encode_run(self.run)
        return self._prefix

    def bodies(self, start: int, count: int) -> Iterator[bytes]:
        """The frames' bodies of ``count`` pieces from ``start``, made again."""
        prefix = self.prefix
        for index in range(start, start + count):
            yield prefix + encode_text(self._piece(index))

    def _piece(self, index: int) -> str:
        if self.text is None:
            return self.pieces[index]
        return self.text[self.cuts[index - 1] if index else 0 : self.cuts[index]]


class _Stretch:
    """Consecutive numbers that are deltas of one text."""

    __slots__ = ("count", "start", "text")

    def __init__(self, text: DeltaText, start: int) -> None:
        self.text = text
        self.start = start
        self.count = 0


class EventLog:
    """The events of one Response, numbered from 0."""

    __slots__ = ("_entries", "_firsts", "_stretch", "next")

    def __init__(self) -> None:
        self.next = 0
        """The number that the next event gets."""
        self._firsts = array("Q")
        self._entries: list[Event | bytes | _Stretch] = []
        self._stretch: _Stretch | None = None

    @property
    def last(self) -> int:
        """The newest event's number; -1 before the first."""
        return self.next - 1

    def opened(self) -> "EventLog":
        """As ``replayed.Log``: itself."""
        return self

    def append(self, event: Event, *, read: bool = True) -> bytes:
        """Remember ``event``; returns its frame's body, or nothing unless it is ``read``.

        Raises what the encoder raises, and then nothing has changed.
        """
        body = encode_event(event) if read or not _is_sure(event) else b""
        self._stretch = None
        self._add(body if body and len(body) <= SHORT_BYTES else event)
        self.next += 1
        return body

    def deltas(self, text: DeltaText, pieces: Sequence[str], *, read: bool = True) -> list[bytes]:
        """Remember the next pieces of ``text``; as ``append``, all of them or none."""
        if read:
            prefix = text.prefix
            bodies = [prefix + encode_text(piece) for piece in pieces]
        else:
            encode_text("".join(pieces))  # it would raise for one of them
            bodies = []
        stretch = self._stretch
        if stretch is None or stretch.text is not text:
            stretch = self._stretch = _Stretch(text, len(text.pieces))
            self._add(stretch)
        text.pieces += pieces
        stretch.count += len(pieces)
        self.next += len(pieces)
        return bodies

    def after(self, cursor: int) -> Iterator[tuple[int, bytes]]:
        """Each event behind number ``cursor``, as (number, body). The log may grow meanwhile; what came is given too."""
        index = max(0, bisect_right(self._firsts, cursor + 1) - 1)
        while index < len(self._entries):
            yield from self._entry_after(index, cursor)
            index += 1

    def _entry_after(self, index: int, cursor: int) -> Iterator[tuple[int, bytes]]:
        entry, first = self._entries[index], self._firsts[index]
        if isinstance(entry, _Stretch):
            skip = max(0, cursor + 1 - first)
            bodies = entry.text.bodies(entry.start + skip, entry.count - skip)
            yield from enumerate(bodies, first + skip)
        elif first > cursor:
            yield first, entry if isinstance(entry, bytes) else encode_event(entry)

    def _add(self, entry: Event | bytes | _Stretch) -> None:
        self._firsts.append(self.next)
        self._entries.append(entry)


def _is_sure(event: Event) -> bool:
    """Whether no encoder fails on ``event``."""
    return type(event) in SURE or (isinstance(event, OF_ITEM) and isinstance(event.item, SURE_ITEMS))


def check_cursor(cursor: int, last: int) -> None:
    """Raise ``ProtocolError`` if no events can be sent from behind ``cursor``; ``last`` is the newest one's number."""
    if not -1 <= cursor <= last:
        message = f"starting_after: {cursor} is not from -1 to {last}, the newest event"
        raise ProtocolError("invalid_cursor", message, "starting_after")
