"""What was said in a conversation, as the ``input`` of a Response that goes on with it.

A Response that was cancelled or has failed can't be continued by its id, and one that a server forgot is not there: who
keeps the items needs neither.
"""

from collections.abc import Mapping
from typing import Final

from protocol.client import Frame, output_for
from protocol.items import OUTPUT_TYPE_OF

INTERRUPTED: Final = "error: interrupted by the user"
"""The result of a call that has none: whatever goes on must have one."""


class Transcript:
    """Grows by what both sides say. ``items`` can be sent at any time: each whole call in it has its output."""

    def __init__(self) -> None:
        self._items: list[Frame] = []
        self._outputs: dict[str, Frame] = {}

    def said(self, message: Frame) -> None:
        """The user said this."""
        self._items.append(message)

    def heard(self, item: Frame) -> None:
        """The model has put this out. A call that was cut short asks for nothing, and is left out."""
        if item["type"] not in OUTPUT_TYPE_OF or item.get("status") != "incomplete":
            self._items.append(item)

    def answered(self, output: Frame) -> None:
        """The output of a call."""
        self._outputs[output["call_id"]] = output

    def items(self) -> list[Frame]:
        """All of it in order: the outputs of calls made together follow the last of them."""
        told: list[Frame] = []
        owed: list[Frame] = []
        for item in self._items:
            if item["type"] in OUTPUT_TYPE_OF:
                owed.append(self._output_of(item))
            else:
                told += owed
                owed = []
            told.append(item)
        return told + owed

    def _output_of(self, call: Mapping[str, object]) -> Frame:
        return self._outputs.get(str(call["call_id"])) or output_for(call, INTERRUPTED, failed=True)
