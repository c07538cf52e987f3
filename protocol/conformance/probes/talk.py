"""What probes speak with: one server, in one shape, and the same words for all three."""

from ..adapters import Adapter
from ..transport import Shape, Transport


class NotOffered(Exception):
    """The server can't be asked this; the text says why."""


class Talk:
    """One probe's conversation."""

    def __init__(self, transport: Transport, shape: Shape, adapter: Adapter) -> None:
        self.transport = transport
        self.shape = shape
        self.adapter = adapter
