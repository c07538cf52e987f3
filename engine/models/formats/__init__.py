"""Formats of models: how items become token ids, and how what is sampled becomes items again."""

from collections.abc import Callable
from typing import Final

from .base import ModelFormat, TurnParser, Vocabulary
from .chatml import ChatML
from .llama3 import Llama3

FORMATS: Final[dict[str, Callable[[Vocabulary], ModelFormat]]] = {"chatml": ChatML, "llama3": Llama3}
"""By name. Each raises ``KeyError`` for a special token that it needs and the vocabulary lacks."""

__all__ = ["FORMATS", "ModelFormat", "TurnParser", "Vocabulary"]
