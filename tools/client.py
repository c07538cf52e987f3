"""A client's tool: a tool like any other, whose ``call()`` waits for the client's append.

This is the whole of the idea. For a hosted tool the loop waits for a service; for a client's tool the service is the client
at the other end of the socket.
"""

from typing import Protocol

from protocol.items import CallItem, OutputOfCall

from .spec import Outcome, ToolSpec


class Mailbox(Protocol):
    """Where the client's results arrive."""

    async def wait(self, call_id: str) -> OutputOfCall:
        """The result of ``call_id``, once it is there."""
        ...


class ClientTool:
    """Any tool that the client runs. Its definition is the client's own affair: the model has it from the request."""

    def __init__(self, results: Mailbox) -> None:
        self._results = results

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name="client", description="a tool that the client runs")

    async def call(self, call: CallItem) -> Outcome:
        """Wait for the client's append. Cancellation leaves the slot open."""
        return Outcome(item=await self._results.wait(call.call_id))
