"""Structured logs: one JSON object a line on standard error, through the standard ``logging``.

``log.info("response.ended", extra={"fields": {…}})`` is the whole of the habit: the message is the event's name, the fields
are its data. No log line holds what a user or a model said.
"""

import logging
from datetime import UTC, datetime
from typing import Any, Final

from protocol.codec import encode

log: Final = logging.getLogger("sostenuto")
log.addHandler(logging.NullHandler())


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return encode(line).decode()


def log_to_stderr(level: str = "INFO") -> None:
    """Send the server's log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    log.addHandler(handler)
    log.setLevel(level)


def note(event: str, **fields: Any) -> None:
    """Log ``event`` with its data."""
    if log.isEnabledFor(logging.INFO):
        log.info(event, extra={"fields": fields})


def report_bug(error: BaseException) -> None:
    """Log a bug of ours with its traceback."""
    log.error("bug", exc_info=error, extra={"fields": {"error": repr(error)}})
