"""The ids of calls: the server's own, where they tell its calls apart."""

import os
from collections.abc import Iterable

from protocol.ids import new_id
from protocol.items import CALL_CLASSES, Item


class CallIds:
    """Ids that are used once in a Response's context. ``items`` are those that it begins with."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._used = {item.call_id for item in items if isinstance(item, CALL_CLASSES)}

    def own(self, theirs: str | None) -> str:
        """The id of a call that the server calls ``theirs``: that, or one of ours, if there is none or it was used before.
        Some servers count their calls from 0 in each answer."""
        found = theirs if theirs and theirs not in self._used else new_id("call", os.urandom)
        self._used.add(found)
        return found
