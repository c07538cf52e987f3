"""What can sample, and how the command line names it: ``KIND`` or ``KIND:WHAT``, and ``NAME=…`` before it for another name."""

from collections.abc import Callable
from typing import Final

from . import local
from .base import Model
from .chat import ChatModel
from .completions import CompletionsModel
from .responses import RelayModel
from .scripted import ScriptedModel
from .trajectory import TrajectoryModel

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


def _at_its_own(load: Callable[[str, str | None], Model]) -> Callable[[str, str | None, Pace], Model]:
    """A model that has a pace of its own, whatever is asked for."""
    return lambda what, name, _: load(what, name)


KINDS: Final[dict[str, Callable[[str, str | None, Pace], Model]]] = {
    "responses": _at_its_own(RelayModel.load),
    "scripted": _scripted,
    "trajectory": _trajectory,
    "chat": _at_its_own(ChatModel.load),
    "completions": _at_its_own(CompletionsModel.load),
    "smollm2": _at_its_own(local.smollm2),
    "gguf": _at_its_own(local.gguf),
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
