"""Public fakes: servers in memory and virtual time, models and tools that do as told, a sweep that cuts at every step.

For tests of this project, and of agents that are built on it. ``hypothesis`` is not needed.
"""

from protocol.conformance.sockets import SocketTransport, socket_transport
from protocol.conformance.streams import ClientSocket, open_websocket

from .clients import DirectSocket
from .frames import append, calls_in, create, numbered, result, user
from .models import HANG, Delay, FakeModel, RecordingModel, call, say, stop, think, wait
from .pipes import PipeStream, pipe_pair
from .servers import DirectServer, MemoryServer, direct_server, eventually, make_services, memory_server, virtually
from .sweep import Bomb, sweep
from .tools import FakeSearch

__all__ = [
    "HANG",
    "Bomb",
    "ClientSocket",
    "Delay",
    "DirectServer",
    "DirectSocket",
    "FakeModel",
    "FakeSearch",
    "MemoryServer",
    "PipeStream",
    "RecordingModel",
    "SocketTransport",
    "append",
    "call",
    "calls_in",
    "create",
    "direct_server",
    "eventually",
    "make_services",
    "memory_server",
    "numbered",
    "open_websocket",
    "pipe_pair",
    "result",
    "say",
    "socket_transport",
    "stop",
    "sweep",
    "think",
    "user",
    "virtually",
    "wait",
]
