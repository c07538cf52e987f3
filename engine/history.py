"""The context of a Response and of those before it: it only grows, and a chain of Responses shares it without copies.

Theory. Each Response of a chain begins with all that the one before ended with. Copying that at each turn would cost what
has been, not what is new. So the chain shares one growing list, and each Response knows how much of it is its own past
(``Grown``). Whoever extends it at its very end extends it in place; a second continuation of the same Response, a fork, finds
that the list has grown past its own end, and copies once.
"""

from array import array
from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from itertools import islice
from typing import Generic, TypeVar, overload

from protocol.items import CALL_CLASSES, OUTPUT_CLASSES, CallItem, FileSearchCall, Item, answered_call_id
from protocol.requests import Tool

from .models.base import Format

T = TypeVar("T")


class Grown(Sequence[T], Generic[T]):
    """The beginning of a list that others may grow on; growing it oneself leaves their beginnings as they are."""

    __slots__ = ("_length", "_shared")

    def __init__(self, shared: MutableSequence[T], length: int = 0) -> None:
        self._shared = shared
        self._length = length

    def snapshot(self) -> "Grown[T]":
        """The same beginning: it does not grow when this one does. Costs nothing."""
        return Grown(self._shared, self._length)

    def extend(self, more: Iterable[T]) -> None:
        """Grow: in place, or, if somebody else has grown the list before, on a copy."""
        if len(self._shared) != self._length:
            self._shared = self._shared[: self._length]
        self._shared.extend(more)
        self._length = len(self._shared)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._shared[start:stop:step]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._shared[index if index >= 0 else index + self._length]


PromptKey = tuple[str | None, tuple[Tool, ...]]
"""Instructions and tools: what stands before the items in a prompt. Another key is another prompt from its first token on."""


class History:
    """The items of a context in order; perhaps the token ids that they were rendered to; and the calls that are open."""

    __slots__ = ("ids", "items", "key", "of", "open", "rendered_as", "stops", "unread")

    def __init__(self) -> None:
        self.items: Grown[Item] = Grown([])
        self.stops: Grown[int] = Grown([])
        """Places in ``items`` where sampling stopped: between the calls of a turn and what answered them."""
        self.of: Grown[str] = Grown([])
        """The ids of the Responses that it is made of."""
        self.ids: Grown[int] = Grown(array("I"))
        """What ``key`` and ``items`` were rendered to, while ``rendered``; but for what is ``unread``. As some model sampled
        them: what it put out has the ids that it had then."""
        self.unread: tuple[FileSearchCall, ...] = ()
        """Hosted calls of the last turn whose results no model has read yet: of these ``ids`` have the call only."""
        self.rendered_as: Format | None = None
        self.key: PromptKey | None = None
        self.open: dict[str, CallItem] = {}
        """Calls that wait for their output, by id, in call order."""

    @property
    def rendered(self) -> bool:
        """Whether it has its token ids."""
        return self.rendered_as is not None

    def child(self) -> "History":
        """The history of a Response that continues this one's. Costs nothing."""
        child = History()
        child.items, child.stops, child.ids = self.items.snapshot(), self.stops.snapshot(), self.ids.snapshot()
        child.of = self.of.snapshot()
        child.rendered_as, child.key, child.open = self.rendered_as, self.key, dict(self.open)
        child.unread = self.unread
        return child

    def without_ids(self) -> "History":
        """The same, without token ids. Costs nothing."""
        other = self.child()
        other.forget_ids()
        return other

    def add(self, items: Iterable[Item]) -> None:
        """What was said next. Calls are open until their output is added; calls that were cut short never are."""
        items = tuple(items)
        self.items.extend(items)
        for item in items:
            if isinstance(item, CALL_CLASSES):
                if item.status != "incomplete":
                    self.open[item.call_id] = item
            elif isinstance(item, OUTPUT_CLASSES):
                self.open.pop(answered_call_id(item) or "", None)

    def add_sampled(self, items: Iterable[Item]) -> None:
        """What the model put out until it stopped."""
        self.add(items)
        self.stops.extend((len(self.items),))

    def forget_ids(self) -> None:
        """Give up the token ids: nobody will go on from them."""
        self.ids = Grown(array("I"))
        self.unread = ()
        self.rendered_as = None


def history_of(items: Iterable[Item], stops: Iterable[int] = ()) -> History:
    """A history that is read back from a store: not rendered."""
    history = History()
    history.add(items)
    history.stops.extend(stops)
    return history
