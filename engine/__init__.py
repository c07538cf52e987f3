"""Serves Responses: tasks, time and sockets. What happens, and when."""

from .config import Config
from .core import Engine
from .server import Server, listening
from .services import Services

__all__ = ["Config", "Engine", "Server", "Services", "listening"]
