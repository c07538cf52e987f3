"""What an upstream says when it goes wrong, as the failure of a Response here: whose fault, and whether to try again."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from ..base import ModelError
from ..upstream import ERROR_CHARS, retry_after

FORGOTTEN: Final = frozenset({"previous_response_not_found", "websocket_connection_limit_reached"})
"""The connection, or what it remembered, is no more: the whole history on another one is as good."""
BUSY: Final = frozenset({"rate_limit_exceeded", "queue_full", "too_many_connections", "shutting_down", "server_is_overloaded"})
EXHAUSTED: Final = frozenset({"insufficient_quota", "usage_limit_reached", "billing_hard_limit_reached"})
"""Errors with status 429 that don't pass by themselves."""
OURS: Final = frozenset({401, 403, 404})
"""Of the request that is made there, not of the one that was made here: a key, an address, a model."""

Fault = Literal["request", "busy", "broken"]
CODE_OF: Final[dict[Fault, str]] = {
    "request": "invalid_prompt",
    "busy": "rate_limit_exceeded",
    "broken": "server_error",
}
"""Codes of failed Responses that typed clients know."""


class Passing(ModelError):
    """It may go well the next time: try again, if nothing was sampled yet."""


class Forgotten(Passing):
    """It goes well on a new connection, with the whole history."""


def failure(error: Mapping[str, Any], status: int | None = None, headers: Mapping[str, Any] | None = None) -> ModelError:
    """Of an ``error`` frame, or of the body of an HTTP error: nested or flat, as servers have it."""
    nested = error.get("error")
    facts = {**error, **nested} if isinstance(nested, dict) else error
    code = str(facts.get("code") or facts.get("type") or "error")
    found = facts.get("status")
    number = status if status is not None else found if type(found) is int else 400
    message = f"the model's server says {code}: {_message(facts)}"
    if code in FORGOTTEN:
        return Forgotten(message)
    fault = _fault(code, number)
    kind = ModelError if fault == "request" or code in EXHAUSTED or number in OURS else Passing
    wait = retry_after(headers or facts.get("headers")) if fault == "busy" else None
    return kind(message, code=CODE_OF[fault], fault=fault, retry_after=wait)


def failed(response: Mapping[str, Any]) -> ModelError:
    """Of a Response that has failed there. Its code is told as it is; it was begun, so nothing is tried again."""
    facts = response.get("error")
    facts = facts if isinstance(facts, dict) else {}
    code = str(facts.get("code") or "server_error")
    message = f"the model's server says that its Response is {response.get('status')}: {_message(facts)}"
    return ModelError(message, code=code, fault=_fault(code, 500))


def unreadable(what: object) -> ModelError:
    """It says what is nothing of the Responses API."""
    return ModelError(f"the model's server answers what can't be read: {str(what)[:ERROR_CHARS]}")


def _fault(code: str, status: int) -> Fault:
    if code in BUSY or status in (429, 503):
        return "busy"
    if code in ("invalid_prompt", "invalid_request_error") or (400 <= status < 500 and status not in OURS):
        return "request"
    return "broken"


def _message(facts: Mapping[str, Any]) -> str:
    return str(facts.get("message") or facts.get("detail") or "no message")[:ERROR_CHARS]
