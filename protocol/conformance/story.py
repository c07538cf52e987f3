"""A conversation as it went, in lines that are short enough to read, and the failure that prints it."""

from collections.abc import Mapping
from typing import Any, Final

import trio

LINES: Final = 400
"""A longer story shows its end."""

CHARS: Final = 200


class Story:
    """Collects what was sent and heard. ``str`` of it is the conversation."""

    def __init__(self) -> None:
        self._lines: list[tuple[float, str, str, Any]] = []
        self._names: dict[str, str] = {}

    def name(self, response_id: str | None, name: str) -> None:
        """Call a Response by a short name."""
        if response_id:
            self._names[response_id] = name

    def sent(self, who: str, frame: Mapping[str, Any] | str | bytes) -> None:
        """A client sent a frame."""
        self._lines.append((_now(), who, "->", frame))

    def heard(self, who: str, frame: Mapping[str, Any]) -> None:
        """A client got a frame."""
        self._lines.append((_now(), who, "<-", frame))

    def did(self, who: str, what: str) -> None:
        """Something else happened."""
        self._lines.append((_now(), who, "  ", what))

    def __str__(self) -> str:
        shown = self._lines[-LINES:]
        lines = [f"  … {len(self._lines) - LINES} lines before"] if len(self._lines) > LINES else []
        for at, who, arrow, what in shown:
            lines.append(f"  {at:9.3f} {who} {arrow} {self._short(what)[:CHARS]}")
        return "\n".join(lines)

    def _short(self, what: Any) -> str:
        if not isinstance(what, Mapping):
            return str(what)
        text = " ".join(self._words(what))
        for long, short in self._names.items():
            text = text.replace(long, short)
        return text

    def _words(self, frame: Mapping[str, Any]) -> list[str]:
        number = frame.get("sequence_number")
        words = [f"{number:>3}"] if number is not None else []
        words.append(str(frame.get("type")).removeprefix("response."))
        if "response" in frame:
            response = frame["response"]
            words += [str(response.get("id")), str(response.get("status"))]
            words += [str(response["incomplete_details"])] if response.get("incomplete_details") else []
            words += [str(response["error"])] if response.get("error") else []
        if "item" in frame:
            item = frame["item"]
            shown = {key: item[key] for key in ("type", "call_id", "name", "status", "content", "arguments") if item.get(key)}
            words.append(str(shown))
        skipped = ("type", "sequence_number", "response", "item", "logprobs", "item_id", "error", "model", "continuation")
        words += [f"{key}={value}" for key, value in frame.items() if key not in skipped]
        return words


class ConformanceError(AssertionError):
    """A server broke a law. Its text is the law, what happened, and the conversation so far."""

    def __init__(self, law: str, message: str, story: Story) -> None:
        super().__init__(f"{law}: {message}\n{story}")
        self.law = law
        self.message = message


def _now() -> float:
    try:
        return trio.current_time() % 1_000_000
    except RuntimeError:
        return 0.0
