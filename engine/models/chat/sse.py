"""Server-sent events as servers of models write them, from bytes that may be cut anywhere.

The standard's parser is not enough. Some servers end an event with one line end, so that two events look like one; some put
an error in a field of its own (``error: {…}``), or in a line without any field; some keep the connection alive with words
that are no JSON. So each ``data`` line is an event if it is JSON by itself, else it begins one that goes on in the next.
"""

import json
import re
from typing import Any, Final

from protocol.codec import parse
from protocol.errors import ProtocolError

MAX_LINE_BYTES: Final = 32 * 1024 * 1024
"""A line beyond this is no event of a model: a whole call in one chunk is as long as the file that it writes."""

SHOWN_CHARS: Final = 200
"""How much of what can't be read is told."""

_LINE_END: Final = re.compile(rb"\r\n|\n|\r(?!\Z)")
_BOM: Final = b"\xef\xbb\xbf"

Payload = dict[str, Any] | None
"""A JSON object; None for ``[DONE]``."""


class Events:
    """What a stream says. What can't be read is said to be an ``error``."""

    def __init__(self) -> None:
        self._rest = b""
        self._begins = True
        self._open: list[str] = []
        """``data`` lines of an event that is not whole yet."""
        self._is_error = False
        """The event's name is ``error``."""

    def feed(self, data: bytes) -> list[Payload]:
        """The events that ``data`` completes."""
        if self._begins and len(self._rest) + len(data) >= len(_BOM):
            data = (self._rest + data).removeprefix(_BOM)
            self._rest, self._begins = b"", False
        *lines, self._rest = _LINE_END.split(self._rest + data)
        payloads = [payload for line in lines for payload in self._line(line)]
        if len(self._rest) > MAX_LINE_BYTES:
            payloads.append({"error": f"it sent a line of more than {MAX_LINE_BYTES} bytes"})
        return payloads

    def end(self) -> list[Payload]:
        """Nothing more comes: the events of a last line without an end."""
        last, self._rest = self._rest.removesuffix(b"\r"), b""
        return [payload for line in (last, b"") for payload in self._line(line)]

    def _line(self, line: bytes) -> list[Payload]:
        text = line.decode("utf-8", "replace")
        if not text:
            return self._close()
        if text.startswith("{"):
            return self._data(text)
        field, _, value = text.partition(":")
        if field == "data":
            return self._data(value.removeprefix(" "))
        if field == "error":
            return [{"error": _loads(value) or value.strip()}]
        if field == "event":
            self._is_error = value.strip() == "error"
        return []  # a comment, or a field that says nothing here

    def _data(self, text: str) -> list[Payload]:
        if text.strip() == "[DONE]":
            return [*self._close(), None]
        value = _loads("\n".join((*self._open, text)))
        if value is None and (self._open or text.lstrip().startswith("{")):
            self._open.append(text)
            return []
        self._open = []
        if not isinstance(value, dict):
            return []  # words that keep the connection alive
        return [value if not self._is_error or "error" in value else {"error": value}]

    def _close(self) -> list[Payload]:
        self._is_error = False
        broken, self._open = self._open, []
        return [{"error": f"it sent what is no JSON: {broken[0][:SHOWN_CHARS]!r}"}] if broken else []


def _loads(text: str) -> Any:
    """A JSON value; None if it is none. Also what is not quite JSON: ``-Infinity``, and characters that are cut in halves."""
    try:
        return parse(text)
    except ProtocolError:
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
