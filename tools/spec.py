"""What a tool is: a spec that the model reads, and ``call()``, which answers.

A hosted tool does its work in ``call``; a client's tool waits in it for the client's append (``tools.client``); a local tool,
of an agent, does its work in the agent's own process. The loop that asks for answers knows no difference between them.

Timeouts, crashes and bad arguments are outcomes that the model reads, not exceptions: ``call`` raises only for a bug.
"""

from collections.abc import Callable
from typing import Protocol

from attrs import field, frozen

from protocol.fields import Json
from protocol.items import CallItem, FileSearchCall, OutputOfCall


@frozen(kw_only=True)
class ToolSpec:
    """A tool as the model sees it. ``parameters`` is a JSON Schema; ``type`` is ``function``, or a type of its own."""

    name: str
    description: str = ""
    parameters: Json = field(factory=dict)
    type: str = "function"

    def to_wire(self) -> dict[str, object]:
        """The definition as it stands in ``tools`` of a create request."""
        wire: dict[str, object] = {
            "type": self.type,
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return wire if self.type in ("function", "custom") else {"type": self.type}


HostedItem = FileSearchCall
"""The items of hosted tools: each is the call and, once it is done, its result."""


@frozen(kw_only=True)
class Outcome:
    """How a call ended: the item that enters the context."""

    item: OutputOfCall | HostedItem


class Tool(Protocol):
    """Anything that can answer a call of the model."""

    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, call: CallItem) -> Outcome:
        """Answer ``call``. Cancellation leaves no process, thread or file of the call behind."""
        ...


class HostedTool(Protocol):
    """A tool that the server runs itself. Its call has an item of its own, which is also its result."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def item_type(self) -> str:
        """The type of its item, ``file_search_call`` for example; events are named after it."""
        ...

    def begin(self, item_id: str, arguments: str) -> HostedItem:
        """The item as it is announced: in progress, without results. ``arguments`` is what the model sampled (JSON)."""
        ...

    async def run(self, item: HostedItem, report: Callable[[str], None]) -> HostedItem:
        """Do the work of ``item`` and return it completed, or failed with its reason.

        ``report`` announces progress (``"searching"``) as an event. Cancellation leaves nothing behind.
        """
        ...
