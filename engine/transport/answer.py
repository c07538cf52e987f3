"""The bytes of one HTTP answer, piece by piece. No I/O.

h11 reads requests, where a peer may send anything. What we send is simpler, and written here: that takes half of the time
that an exchange with h11 at both ends does. The rules are those of RFC 9112, 6.3: a body has the announced length, or comes
in chunks, or, for HTTP/1.0, lasts until the close; HEAD, 204 and 304 have none.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

Headers = Iterable[tuple[str, str]]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
BODILESS: Final = frozenset({204, 304})
_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}
_UNSAFE: Final = re.compile(r"[\0\r\n]")


class Answer:
    """An answer to a request; ``to_head``: it was HEAD; ``chunks``: the client knows chunks, that is HTTP/1.1."""

    __slots__ = ("_chunked", "_chunks", "begun", "ended", "to_head")

    def __init__(self, *, to_head: bool = False, chunks: bool = True) -> None:
        self.to_head = to_head
        self.begun = False
        self.ended = False
        self._chunks = chunks
        self._chunked = False

    def head(self, status: int, headers: Headers) -> bytes:
        """Begin. Without a ``content-length`` among ``headers`` the body's end is marked in another way.

        Raises ``ValueError`` for a header that would break out of its line.
        """
        lines, lengthy = [_LINES[status]], status in BODILESS
        for name, value in headers:
            line = f"{name}: {value}"
            if _UNSAFE.search(line):
                raise ValueError(f"not a header: {name!r}: {value!r}")
            lengthy = lengthy or name == "content-length"
            lines.append(line)
        if not lengthy and self._chunks:
            lines.append("transfer-encoding: chunked")
            self._chunked = not self.to_head
        lines.append("\r\n")
        self.begun = True
        return "\r\n".join(lines).encode("latin-1")

    def body(self, data: bytes) -> bytes:
        """Some of the body."""
        if self.to_head or not data:
            return b""
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def end(self) -> bytes:
        """The end."""
        self.ended = True
        return b"0\r\n\r\n" if self._chunked else b""
