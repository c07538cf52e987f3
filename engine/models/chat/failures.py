"""What an upstream says of its errors, in a status or in the middle of its stream, and what that makes of a Response.

The codes are those of the Responses API that agents know: they retry, or don't, by them.
"""

from collections.abc import Mapping
from typing import Any, Final

from protocol.codec import parse
from protocol.errors import ProtocolError

from ..base import ModelError
from ..upstream import ERROR_CHARS, retry_after

_TOO_LONG: Final = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context size",
    "context window",
    "context length",
)
_NO_MONEY: Final = ("insufficient_quota", "billing_hard_limit", "insufficient balance", "insufficient credits")
_NO_ROOM: Final = ("rate_limit", "rate limit", "overloaded", "too many requests")
_FAULTS: Final = {400: "request", 413: "request", 422: "request", 429: "busy", 503: "busy", 529: "busy"}
"""Of statuses. Of others, as 401 and 404, nobody is at fault who reads of them: the server is not set up as it should be."""


def of_answer(status: int, headers: Mapping[str, str], body: str) -> ModelError:
    """An answer with an error status."""
    value = _json(body)
    told = told_of(value.get("error", value)) if isinstance(value, dict) else body.strip()
    hint = "; does its address end as it should, in /v1 for most servers?" if status == 404 else ""
    return _classed(f"the model's server answered {status}: {told[:ERROR_CHARS]}{hint}", body, status, retry_after(headers))


def of_event(error: Any) -> ModelError:
    """An error in the middle of a stream: a text, or an object with ``message``, ``code``, ``type``."""
    code = error.get("code") if isinstance(error, dict) else None
    status = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else 500
    return _classed(f"the model's server failed: {told_of(error)[:ERROR_CHARS]}", str(error), status, None)


def told_of(error: Any) -> str:
    """The words of an error, in whatever form."""
    if isinstance(error, dict):
        for key in ("message", "detail", "error", "code", "type"):
            if error.get(key):
                return told_of(error[key])
    return str(error).strip() or "it does not say why"


def _classed(message: str, whole: str, status: int, retry_after: float | None) -> ModelError:
    lower = whole.lower()
    if any(words in lower for words in _TOO_LONG):
        return ModelError(message, code="context_length_exceeded", fault="request")
    if any(words in lower for words in _NO_MONEY):
        return ModelError(message, code="insufficient_quota", fault="request")
    fault = _FAULTS.get(status)
    if fault == "busy" or any(words in lower for words in _NO_ROOM):
        # Agents read from the words when to try again.
        when = f"; try again in {retry_after:g} s" if retry_after is not None else ""
        return ModelError(message + when, code="rate_limit_exceeded", fault="busy", retry_after=retry_after)
    if fault == "request":
        return ModelError(message, code="invalid_prompt", fault="request")
    return ModelError(message)


def _json(text: str) -> Any:
    try:
        return parse(text)
    except ProtocolError:
        return None
