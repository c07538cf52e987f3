"""The ``responses`` kind of model: a relay to another server of the Responses API.

Plan. Each live Response here has a connection there, a WebSocket in the create shape, and holds it while it is parked
(``lines``). Its first turn sends the whole context, each turn after that what is new, with ``previous_response_id``
(``asking``). The server's events become chunks (``reading``). Where the server has forgotten, or is reached over HTTP only,
the sampler (``sampler``) sends the whole history, which it has: what the server put out, as it put it out. What goes wrong is
said in one place (``faults``).
"""

from .model import RelayModel

__all__ = ["RelayModel"]
