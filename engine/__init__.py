"""Serves Responses: tasks, time and sockets. What happens, and when.

What is named here is imported when it is asked for, so that the command can tell its ``--help`` without the whole engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .config import Config
    from .core import Engine
    from .server import Server, listening
    from .services import Services

__all__ = ["Config", "Engine", "Server", "Services", "listening"]

_HOMES: Final = {"Config": "config", "Engine": "core", "Server": "server", "Services": "services", "listening": "server"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
