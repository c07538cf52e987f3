"""What can go wrong through the peer's fault, or is told to the peer: one exception, one table of codes.

A ``ProtocolError`` is an answer on the wire. A bug of ours is any other exception, and the two never share a handler.
Each code has one status, one type, and says whether work had begun, so that a client knows if a retry is safe:

- ``not_started``: nothing was done; correct the request, or send it again as it is.
- ``started``: the Response lives on, or ended, with what had been done; sending the frame again may do it twice.
- ``unknown``: the server can't tell.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from attrs import frozen

Work = Literal["not_started", "started", "unknown"]


class Code(NamedTuple):
    """What is fixed about an error code."""

    status: int
    type: str
    work: Work


INVALID: Final = "invalid_request_error"
CODES: Final[dict[str, Code]] = {
    # The frame could not be read.
    "invalid_json": Code(400, INVALID, "not_started"),
    "invalid_frame": Code(400, INVALID, "not_started"),
    "unknown_event": Code(400, INVALID, "not_started"),
    "message_too_large": Code(413, INVALID, "not_started"),
    # A field is not what it should be.
    "invalid_type": Code(400, INVALID, "not_started"),
    "invalid_value": Code(400, INVALID, "not_started"),
    "missing_required_parameter": Code(400, INVALID, "not_started"),
    "unsupported_parameter": Code(400, INVALID, "not_started"),
    "invalid_stream_id": Code(400, INVALID, "not_started"),
    "websocket_stream_limit_reached": Code(400, INVALID, "not_started"),
    "websocket_connection_limit_reached": Code(400, INVALID, "not_started"),
    "model_not_found": Code(404, INVALID, "not_started"),
    "content_policy_violation": Code(400, INVALID, "not_started"),
    # An append, attach, cancel or finish does not fit the Response.
    "response_not_found": Code(404, INVALID, "not_started"),
    "previous_response_not_found": Code(400, INVALID, "not_started"),
    "item_not_found": Code(404, INVALID, "not_started"),
    "conversation_not_found": Code(404, INVALID, "not_started"),
    "conversation_locked": Code(409, INVALID, "not_started"),
    "response_not_active": Code(409, INVALID, "not_started"),
    "response_ambiguous": Code(400, INVALID, "not_started"),
    "stale_epoch": Code(409, INVALID, "not_started"),
    "tool_call_not_found": Code(404, INVALID, "not_started"),
    "tool_output_conflict": Code(409, INVALID, "not_started"),
    "tool_output_type_mismatch": Code(400, INVALID, "not_started"),
    "tool_output_missing": Code(400, INVALID, "not_started"),
    "echo_mismatch": Code(409, INVALID, "not_started"),
    "idempotency_conflict": Code(409, INVALID, "not_started"),
    "invalid_cursor": Code(400, INVALID, "not_started"),
    # HTTP itself.
    "bad_request": Code(400, INVALID, "not_started"),
    "request_timeout": Code(408, INVALID, "not_started"),
    "unsupported_media_type": Code(415, INVALID, "not_started"),
    "expectation_failed": Code(417, INVALID, "not_started"),
    "header_fields_too_large": Code(431, INVALID, "not_started"),
    "unsupported_transfer_coding": Code(501, INVALID, "not_started"),
    "unsupported_http_version": Code(505, INVALID, "not_started"),
    # The door, and the house.
    "invalid_api_key": Code(401, INVALID, "not_started"),
    "not_found": Code(404, INVALID, "not_started"),
    "method_not_allowed": Code(405, INVALID, "not_started"),
    "upgrade_required": Code(426, INVALID, "not_started"),
    "queue_full": Code(429, "rate_limit_error", "not_started"),
    "too_many_connections": Code(503, "server_error", "not_started"),
    "shutting_down": Code(503, "server_error", "not_started"),
    "attached_elsewhere": Code(409, INVALID, "started"),
    "server_error": Code(500, "server_error", "unknown"),
}
"""Every code that is ever put on the wire as an ``error``. A test provokes each."""

RETRY_LATER: Final = frozenset({429, 503})
RETRY_AFTER_SECONDS: Final = 1
"""Errors with one of these statuses pass by themselves, and say when to try again."""


class ProtocolError(Exception):
    """Something that the peer is told: a frame was refused, and changed nothing.

    ``param`` is the path of the field, as in ``input[2].content[0].text``; ``code`` is a key of ``CODES``.
    """

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        if code not in CODES:
            raise ValueError(f"no such error code: {code}")
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param

    @property
    def status(self) -> int:
        """The HTTP status, and the ``status`` of the error frame."""
        return CODES[self.code].status


@frozen
class ErrorEvent:
    """The ``error`` frame: nested and flat in one object, since each known client reads another of the two.

    ``response_id`` and ``stream_id`` are there when the error can be attributed; without them it is the connection's.
    """

    error: ProtocolError
    response_id: str | None = None
    stream_id: str | None = None
    append: Mapping[str, Any] | None = None
    """Which append was refused: its ``call_ids`` and its ``idempotency_key``, as far as they could be read."""

    def to_wire(self) -> dict[str, Any]:
        """The frame as JSON values."""
        failure = self.error
        code = CODES[failure.code]
        flat = {"code": failure.code, "message": failure.message, "param": failure.param, "work": code.work}
        frame: dict[str, Any] = {"type": "error", "status": code.status, **flat}
        if self.response_id is not None:
            frame["response_id"] = self.response_id
        if self.stream_id is not None:
            frame["stream_id"] = self.stream_id
        if code.status in RETRY_LATER:
            frame["headers"] = {"retry-after": str(RETRY_AFTER_SECONDS)}
        if self.append is not None:
            frame["append"] = self.append
        frame["error"] = {"type": code.type, **flat}
        return frame
