"""Formats of models: how items become token ids, and how what is sampled becomes items again."""

from collections.abc import Callable
from typing import Final

from .base import ModelFormat, TurnParser, Vocabulary

FORMATS: Final[dict[str, Callable[[Vocabulary], ModelFormat]]] = {}
"""By name. Each raises ``KeyError`` for a special token that it needs and the vocabulary lacks."""

__all__ = ["FORMATS", "ModelFormat", "TurnParser", "Vocabulary"]
