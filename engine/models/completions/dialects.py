"""How servers are asked for tokens, and how they say which ids they have sampled.

- llama.cpp's ``POST /completion``: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
- ``POST /v1/completions`` as vLLM and SGLang have it, with ``return_token_ids``:
  https://docs.vllm.ai/en/stable/api/vllm/entrypoints/openai/completion/protocol/ and
  https://docs.sglang.io/docs/basic_usage/openai_api_completions. Servers that don't know that field may say the ids with
  ``logprobs``: as llama.cpp's ``/v1/completions`` does, or as ``token_id:17`` (``return_tokens_as_token_ids``).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from attrs import frozen

from ..base import ModelError
from ..chat.failures import of_event
from .pieces import Pieces

_TOKEN_ID: Final = re.compile(r"token_id:(\d+)")
_SILENT: Final = "the model's server does not say the ids of the tokens that it samples"


@frozen(kw_only=True)
class Ask:
    """What is to be sampled."""

    ids: Sequence[int]
    tokens: int
    """At most so many."""
    slot: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    grammar: str | None = None
    """In GBNF."""
    stops: Sequence[int] = ()


class Reading(ABC):
    """What one answer says, event by event."""

    def __init__(self) -> None:
        self.ended: Literal["stop", "length"] | None = None
        """Why sampling is over, when it is."""
        self.unknown = 0
        """Tokens that were sampled, and whose ids were not said."""
        self.reused: int | None = None
        """Tokens of the prompt whose state was there. None if the server does not say."""
        self.evaluated: int | None = None
        """Tokens of the prompt that were read."""

    @abstractmethod
    def feed(self, payload: Mapping[str, Any]) -> Sequence[int]:
        """The ids in one event. Raises ``ModelError``."""


class Dialect(ABC):
    """A way to ask."""

    path: str

    @abstractmethod
    def body(self, ask: Ask) -> dict[str, Any]:
        """The request's body."""

    @abstractmethod
    def reading(self) -> Reading:
        """A reading of the answer."""

    def over(self, reading: Reading) -> bool:  # noqa: ARG002
        """Whether the answer is over without a ``[DONE]``."""
        return False


# ---- llama.cpp


class Llama(Dialect):
    """llama.cpp's own."""

    path = "/completion"

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces

    def body(self, ask: Ask) -> dict[str, Any]:
        """Its defaults are not those of the Responses API; and it applies ``top_p`` before the temperature, if it is not told
        otherwise."""
        greedy = ask.temperature == 0
        return {
            "prompt": ask.ids,
            "n_predict": ask.tokens,
            "id_slot": -1 if ask.slot is None else ask.slot,
            "cache_prompt": True,
            "return_tokens": True,
            "stream": True,
            "samplers": ["top_k", "temperature", "top_p"],
            "top_k": 1 if greedy else 0,
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            "response_fields": ["stop", "stop_type", "tokens_predicted", "timings"],
        } | _given(seed=ask.seed, grammar=ask.grammar)

    def reading(self) -> Reading:
        """Its events have ``tokens``, and a last one says ``stop``."""
        return _LlamaReading(self._pieces)

    def over(self, reading: Reading) -> bool:
        """There is no ``[DONE]``."""
        return reading.ended is not None


class _LlamaReading(Reading):
    def __init__(self, pieces: Pieces) -> None:
        super().__init__()
        self._pieces = pieces
        self._predicted = 0

    def feed(self, payload: Mapping[str, Any]) -> Sequence[int]:
        if payload.get("error"):
            raise of_event(payload["error"])
        if payload.get("stop_type") is not None:
            self._end(payload)
            return ()
        ids: Sequence[int] = payload.get("tokens") or ()
        missing = self._missing(payload, len(ids))
        if not missing or not ids:
            return ids
        before = self._pieces.before(payload.get("content", ""), ids[-1], missing)
        if before is None:
            self.unknown += missing
            return ids
        return [*before, *ids]

    def _missing(self, payload: Mapping[str, Any], said: int) -> int:
        predicted: int = payload.get("tokens_predicted", self._predicted + said)
        missing = predicted - self._predicted - said
        self._predicted = predicted
        return max(0, missing)

    def _end(self, payload: Mapping[str, Any]) -> None:
        self.ended = "length" if payload["stop_type"] == "limit" else "stop"
        missing = self._missing(payload, 0)  # a character that was begun; a stop token behind it is not told either
        self.unknown += missing - 1 if missing and self.ended == "stop" else missing
        timings = payload.get("timings") or {}
        self.reused, self.evaluated = timings.get("cache_n"), timings.get("prompt_n")


# ---- vLLM, SGLang


class OpenAI(Dialect):
    """``/v1/completions``."""

    path = "/v1/completions"

    def __init__(self, model: str, *, logprobs: bool = False) -> None:
        """``logprobs``: the ids are said there."""
        self._model = model
        self._logprobs = logprobs

    def body(self, ask: Ask) -> dict[str, Any]:
        """A grammar is ``structured_outputs`` for vLLM, and ``ebnf`` for SGLang."""
        ids = {"logprobs": 1, "return_tokens_as_token_ids": True} if self._logprobs else {"return_token_ids": True}
        grammar = {"structured_outputs": {"grammar": ask.grammar}, "ebnf": ask.grammar} if ask.grammar else {}
        return {
            "model": self._model,
            "prompt": ask.ids,
            "max_tokens": ask.tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": ask.temperature,
            "top_p": ask.top_p,
            "stop_token_ids": ask.stops,
            "skip_special_tokens": False,
            **ids,
            **grammar,
        } | _given(seed=ask.seed)

    def reading(self) -> Reading:
        """Its events have ``choices``; one has the ``finish_reason``, and the last the usage."""
        return _OpenAIReading()


class _OpenAIReading(Reading):
    def feed(self, payload: Mapping[str, Any]) -> Sequence[int]:
        if payload.get("error"):
            raise of_event(payload["error"])
        if payload.get("usage"):
            self._count(payload["usage"])
        choices = payload.get("choices") or ()
        if not choices:
            return ()
        choice = choices[0]
        ids = _ids(choice)
        if ids is None:
            if choice.get("text"):
                raise ModelError(_SILENT)
            ids = ()
        self._finish(choice.get("finish_reason"))
        return ids

    def _finish(self, reason: str | None) -> None:
        if reason in ("stop", "length"):
            self.ended = "length" if reason == "length" else "stop"
        elif reason is not None:
            raise ModelError(f"the model's server has given up sampling: {reason}")

    def _count(self, usage: Mapping[str, Any]) -> None:
        details = usage.get("prompt_tokens_details") or {}
        if details.get("cached_tokens") is not None:
            self.reused = details["cached_tokens"]
            self.evaluated = usage.get("prompt_tokens", 0) - details["cached_tokens"]


def _ids(choice: Mapping[str, Any]) -> Sequence[int] | None:
    """The ids in a choice, in whatever way it says them; None if it does not."""
    said: Sequence[int] | None = choice.get("token_ids")
    logprobs = choice.get("logprobs")
    if said is not None or not logprobs:
        return said
    if "content" in logprobs:
        return [one["id"] for one in logprobs["content"] or () if "id" in one]
    found = [_TOKEN_ID.fullmatch(str(token)) for token in logprobs.get("tokens") or ()]
    return [int(match[1]) for match in found if match] if all(found) else None


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
