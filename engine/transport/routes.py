"""Which handler answers which request; what follows from the table: 404, 405 with ``allow``, ``HEAD``, ``OPTIONS``, CORS.

A path is a pattern such as ``/v1/responses/{response_id}``; where two fit, the one with fewer holes is taken. ``HEAD`` is
answered by the handler of ``GET``. ``OPTIONS`` says what is allowed, also to a browser that asks before it lets a page of
another origin call (a preflight, which carries no key); which origins may is an option, and none may without it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from attrs import frozen

from protocol.errors import ProtocolError

from .http import Exchange, Handler

ANY: Final = "*"
"""As an origin: every one."""
PREFLIGHT_SECONDS: Final = 600
"""How long a browser may remember what a preflight said; some cap it there."""


@frozen
class _Path:
    """One path, and who answers its methods. A segment that is None takes anything, under its name."""

    segments: tuple[str | None, ...]
    names: tuple[str, ...]
    handlers: dict[str, Handler]

    def match(self, segments: tuple[str, ...]) -> bool:
        return len(segments) == len(self.segments) and all(
            bool(given) if wanted is None else given == wanted for wanted, given in zip(self.segments, segments, strict=True)
        )

    def params(self, segments: tuple[str, ...]) -> dict[str, str]:
        taken = [given for wanted, given in zip(self.segments, segments, strict=True) if wanted is None]
        return dict(zip(self.names, taken, strict=True))


class Routes:
    """A handler made of others: ``table`` has (method, path, handler). ``origins`` are those that browsers may call from."""

    def __init__(self, table: Iterable[tuple[str, str, Handler]], *, origins: Collection[str] = ()) -> None:
        paths: dict[str, _Path] = {}
        for method, pattern, handler in table:
            paths.setdefault(pattern, _path(pattern)).handlers[method] = handler
        self._plain = {path.segments: path for path in paths.values() if not path.names}
        self._holey = sorted((path for path in paths.values() if path.names), key=lambda path: len(path.names))
        self._origins = origins

    async def __call__(self, exchange: Exchange) -> None:
        """Let the right handler answer. Raises what it raises, ``not_found`` and ``method_not_allowed``."""
        request = exchange.request
        self._admit_origin(exchange)
        if request.path == "*" and request.method == "OPTIONS":
            await exchange.respond(204)
            return
        segments = request.segments[:-1] if request.segments[-1:] == ("",) else request.segments
        path = self._plain.get(segments) or next((path for path in self._holey if path.match(segments)), None)
        if path is None:
            raise ProtocolError("not_found", f"nothing is served at {request.path}")
        handler = path.handlers.get(request.method)
        if handler is None and request.method == "HEAD":
            handler = path.handlers.get("GET")
        if handler is not None:
            exchange.params = path.params(segments)
            await handler(exchange)
            return
        allowed = _allowed(path.handlers)
        exchange.headers.append(("allow", allowed))
        if request.method != "OPTIONS":
            raise ProtocolError("method_not_allowed", f"{request.method} is not served at {request.path}; allowed: {allowed}")
        await exchange.respond(204, None, self._preflight(exchange, allowed))

    def _admit_origin(self, exchange: Exchange) -> None:
        """Say to a browser that its page may read the answer."""
        origin = exchange.request.get("origin")
        if self._origins and ANY not in self._origins:
            exchange.headers.append(("vary", "origin"))
        if origin is not None and (ANY in self._origins or origin in self._origins):
            allowed = ANY if ANY in self._origins else origin
            exchange.headers += [("access-control-allow-origin", allowed), ("access-control-expose-headers", ANY)]

    def _preflight(self, exchange: Exchange, allowed: str) -> list[tuple[str, str]]:
        request = exchange.request
        if request.get("access-control-request-method") is None or not any(
            name == "access-control-allow-origin" for name, _ in exchange.headers
        ):
            return []
        return [
            ("access-control-allow-methods", allowed),
            ("access-control-allow-headers", request.get("access-control-request-headers") or ANY),
            ("access-control-max-age", str(PREFLIGHT_SECONDS)),
        ]


def _path(pattern: str) -> _Path:
    parts = pattern.strip("/").split("/")
    return _Path(
        segments=tuple(None if part.startswith("{") else part for part in parts),
        names=tuple(part[1:-1] for part in parts if part.startswith("{")),
        handlers={},
    )


def _allowed(handlers: Mapping[str, Handler]) -> str:
    implied = {"OPTIONS"} | ({"HEAD"} if "GET" in handlers else set())
    return ", ".join(sorted(implied | set(handlers)))
