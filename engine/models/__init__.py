"""What can sample, and how the command line names it: ``KIND`` or ``KIND:WHAT``, and ``NAME=…`` before it for another name."""

from collections.abc import Callable
from typing import Final

from . import local
from .base import Model
from .chat import ChatModel
from .completions import CompletionsModel
from .responses import relay_model
from .scripted import ScriptedModel
from .trajectory import TrajectoryModel
from .upstream import Upstream

Pace = float | None
"""Tokens per second; None for as fast as can be."""


def _scripted(what: str, name: str | None, pace: Pace) -> Model:
    if what:
        raise ValueError(f"scripted takes nothing behind a colon, got {what!r}: its program comes with the request")
    return ScriptedModel(name or "scripted", tokens_per_second=pace)


def _trajectory(what: str, name: str | None, pace: Pace) -> Model:
    if not what:
        raise ValueError("trajectory needs a file: trajectory:FILE")
    return TrajectoryModel.load(what, tokens_per_second=pace, name=name)


def _chat(what: str, name: str | None, pace: Pace) -> Model:  # noqa: ARG001 - a server of models has a pace of its own
    return ChatModel(Upstream.parse("chat", what, name), name)


def _completions(what: str, name: str | None, pace: Pace) -> Model:  # noqa: ARG001
    return CompletionsModel.load(what, name)


def _smollm2(what: str, name: str | None, pace: Pace) -> Model:  # noqa: ARG001 - as fast as the machine is
    return local.smollm2(what, name)


def _gguf(what: str, name: str | None, pace: Pace) -> Model:  # noqa: ARG001
    return local.gguf(what, name)


KINDS: Final[dict[str, Callable[[str, str | None, Pace], Model]]] = {
    "responses": relay_model,
    "scripted": _scripted,
    "trajectory": _trajectory,
    "chat": _chat,
    "completions": _completions,
    "smollm2": _smollm2,
    "gguf": _gguf,
}


def load_model(spec: str, tokens_per_second: Pace = None) -> Model:
    """The model that ``spec`` names; raises ``ValueError`` or ``OSError`` with what to do about it."""
    named, equals, rest = spec.partition("=")
    name, source = (named, rest) if equals and ":" not in named else (None, spec)
    kind, _, what = source.partition(":")
    if kind not in KINDS:
        raise ValueError(f"no such kind of model: {kind!r}; there are {', '.join(KINDS)}")
    return KINDS[kind](what, name, tokens_per_second)


__all__ = ["KINDS", "Model", "load_model"]
