"""One turn of the model, from the chunks that a chat server streams.

Reasoning is found under several names, text may be a list of parts, the usage comes in a chunk of its own or with any
other, the reason of the stop may be an empty string, or missing. What the turn amounts to is kept, since a chat server
has to be told it again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..base import CallKind, Chunk, Counted, ModelError, Reasoning, Stop, Text
from .calls import Calls
from .failures import of_event
from .text import Joined, estimate

REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")
"""Where servers put reasoning, in deltas and messages. Of a delta that has several the first counts: they say the same."""

_CUT: Final = frozenset({"length", "max_tokens", "model_length"})
_FILTERED: Final = frozenset({"content_filter", "safety", "sensitive", "refusal"})
_BROKEN: Final = frozenset({"error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource"})


class Turn:
    """What one request gives. ``kinds`` and ``new_id`` are as in ``Calls``."""

    def __init__(self, kinds: Mapping[str, CallKind], new_id: Callable[[str | None], str], *, parallel: bool = True) -> None:
        self.calls = Calls(kinds, new_id, parallel=parallel)
        self.reason: str | None = None
        """Why it stopped, in the server's words."""
        self.usage: dict[str, Any] = {}
        self.reasoning_field: str | None = None
        """Where its reasoning was found."""
        self.refused = False
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._joined = Joined()
        self._joined_thoughts = Joined()
        self._behind: list[Chunk] = []
        """What was said while a call was not whole: it stands behind the calls."""
        self._tokens = 0
        self._thought_tokens = 0
        self._over = False

    @property
    def text(self) -> str:
        """What was said."""
        return "".join(self._text)

    @property
    def thoughts(self) -> str:
        """Its reasoning."""
        return "".join(self._thoughts)

    @property
    def silent(self) -> bool:
        """Whether nothing has come at all."""
        return not (self._text or self._thoughts or self.calls.made or self.calls.open or self.reason or self.usage)

    def feed(self, payload: Mapping[str, Any]) -> list[Chunk]:
        """What one chunk of the stream adds. Raises ``ModelError`` for an error in it."""
        error = payload.get("error") or (payload if payload.get("object") == "error" else None)
        if error:
            raise of_event(error)
        if isinstance(payload.get("usage"), dict):
            self.usage = payload["usage"]
        chunks: list[Chunk] = []
        for choice in _objects(payload.get("choices")):
            if choice.get("index") in (None, 0):
                chunks += self._choice(choice)
        return chunks

    def finish(self) -> list[Chunk]:
        """The stream is over: end what is open, correct the count. Raises ``ModelError`` if it has broken off."""
        if self._over:
            return []
        self._over = True
        if self.reason in _BROKEN:
            raise ModelError(f"the model's server has stopped sampling: {self.reason}")
        chunks = self.calls.finish(cut=self.reason in _CUT)
        chunks += self._said(self._joined.rest(), Text)
        return [*chunks, *self._behind]

    def stop(self, *, structured: bool = False) -> Stop:
        """Why sampling has stopped. ``structured``: the answer must be JSON, which a refusal is not."""
        if self.reason in _CUT:
            return Stop("max_output_tokens")
        if self.reason in _FILTERED or (self.refused and structured):
            return Stop("content_filter")
        return Stop("tool_calls" if self.calls.made else "end")

    def correction(self) -> Counted | None:
        """By how much the tokens of the chunks are wrong, if the server has said how many there were."""
        total, thought = _count(self.usage, "completion_tokens"), _count(_details(self.usage), "reasoning_tokens")
        if total is None:
            return None
        counted = self._tokens + self._thought_tokens + self.calls.tokens
        reasoning = min(total, self._thought_tokens if thought is None else thought)
        return Counted(total - counted, reasoning - self._thought_tokens)

    @property
    def tokens(self) -> int:
        """How many tokens were sampled, as far as is known."""
        total = _count(self.usage, "completion_tokens")
        return self._tokens + self._thought_tokens + self.calls.tokens if total is None else total

    # ---- one chunk

    def _choice(self, choice: Mapping[str, Any]) -> list[Chunk]:
        if choice.get("error"):
            raise of_event(choice["error"])
        chunks: list[Chunk] = []
        for delta in _objects([choice.get("delta") or choice.get("message")]):  # a server that does not stream
            chunks += self._delta(delta)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.reason = reason.lower()
        return chunks

    def _delta(self, delta: Mapping[str, Any]) -> list[Chunk]:
        chunks: list[Chunk] = []
        for name in REASONING_FIELDS:
            if isinstance(delta.get(name), str) and delta[name]:
                self.reasoning_field = name
                chunks += self._said(self._joined_thoughts.take(delta[name]), Reasoning)
                break
        chunks += self._content(delta.get("content"))
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            self.refused = True
            chunks += self._content(delta["refusal"])
        if delta.get("tool_calls"):
            chunks += self.calls.feed(delta["tool_calls"])
        elif delta.get("function_call"):  # as it was before there were parallel calls
            chunks += self.calls.feed({"index": 0, "function": delta["function_call"]})
        return chunks

    def _content(self, content: Any) -> list[Chunk]:
        if isinstance(content, str):
            return self._said(self._joined.take(content), Text)
        chunks: list[Chunk] = []
        for part in _objects(content):
            if part.get("type") in ("thinking", "reasoning"):
                thought = _words(part.get("thinking") or part.get("reasoning") or part.get("text"))
                chunks += self._said(self._joined_thoughts.take(thought), Reasoning)
            else:
                chunks += self._content(_words(part.get("text") or part.get("refusal")))
        return chunks

    def _said(self, piece: str, kind: type[Text] | type[Reasoning]) -> list[Chunk]:
        if not piece:
            return []
        tokens = estimate(piece)
        if kind is Text:
            self._text.append(piece)
            self._tokens += tokens
        else:
            self._thoughts.append(piece)
            self._thought_tokens += tokens
        chunks = self.calls.settle()
        if self.calls.open:
            self._behind.append(kind((piece,), tokens))
            return chunks
        return [*chunks, kind((piece,), tokens)]


def _objects(values: Any) -> Sequence[Mapping[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _words(value: Any) -> str:
    """A text, or the texts of a list of parts."""
    return value if isinstance(value, str) else "".join(_words(part.get("text")) for part in _objects(value))


def _details(usage: Mapping[str, Any]) -> Mapping[str, Any]:
    details = usage.get("completion_tokens_details")
    return details if isinstance(details, dict) else {}


def _count(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    return int(value) if isinstance(value, int | float) and value >= 0 else None
