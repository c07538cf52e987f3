"""A request's head, as handlers see it."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
from attrs import field, frozen

from protocol.errors import ProtocolError


@frozen
class Request:
    """A request's head. ``segments`` are those of ``path``, each percent-decoded; so is ``path``.

    ``headers`` has lower-case names; the values of a repeated one are joined by commas.
    """

    method: str
    path: str
    segments: tuple[str, ...]
    query: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, str] = field(repr=False)

    def get(self, name: str) -> str | None:
        """A header's value, by its lower-case name."""
        return self.headers.get(name)

    def tokens(self, name: str) -> list[str]:
        """The tokens of a header that is a list of them, in lower case."""
        value = self.headers.get(name)
        return [] if value is None else [token for one in value.split(",") if (token := one.strip().lower())]

    def has_token(self, name: str, token: str) -> bool:
        """Whether a header that is a list of tokens has ``token``."""
        return token in self.tokens(name)

    @property
    def wants_websocket(self) -> bool:
        """Whether it is the handshake of a WebSocket."""
        return self.method == "GET" and self.has_token("upgrade", "websocket")


def request_of(event: h11.Request) -> Request:
    """What h11 has read. Raises ``ProtocolError`` for what we can't serve."""
    target = event.target.decode("latin-1")
    path, _, query = target.partition("?")
    try:
        if not path.startswith("/") and path != "*":
            path = urlsplit(path).path  # a proxy's form: http://host/path
        pairs = parse_qsl(query, keep_blank_values=True) if query else []
    except ValueError as error:
        raise ProtocolError("bad_request", f"the request's target can't be read: {error}") from None
    gathered: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        gathered[name] = (*gathered.get(name, ()), value)
    headers: dict[str, str] = {}
    for key, field_value in event.headers:
        header, text = key.decode("latin-1"), field_value.decode("latin-1")
        headers[header] = f"{headers[header]}, {text}" if header in headers else text
    segments, escaped = tuple(path.split("/")[1:]), "%" in path
    request = Request(
        method=event.method.decode("latin-1"),
        path=unquote(path) if escaped else path,
        segments=tuple(map(unquote, segments)) if escaped else segments,
        query=gathered,
        headers=headers,
    )
    _check(request, event.http_version)
    return request


def _check(request: Request, version: bytes) -> None:
    if not version.startswith(b"1."):
        raise ProtocolError("unsupported_http_version", "only HTTP/1.1 is served here")
    if request.get("transfer-encoding") is not None and request.get("content-length") is not None:
        raise ProtocolError("bad_request", "a request has a content-length or a transfer-encoding, not both")
    expected = request.tokens("expect")
    if expected and version != b"1.0" and set(expected) - {"100-continue"}:
        raise ProtocolError("expectation_failed", f"the only expectation that is met here is 100-continue, not {expected[0]}")
