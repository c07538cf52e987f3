"""A hosted tool that answers as a test says."""

from collections.abc import Callable, Mapping
from typing import Any

import trio
from attrs import evolve

from protocol.codec import parse
from protocol.errors import ProtocolError
from protocol.items import FileSearchCall
from tools.spec import HostedItem, ToolSpec


class FakeSearch:
    """A ``file_search`` that finds its own query after ``seconds``; with ``error`` it raises that instead."""

    def __init__(self, *, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.seconds = seconds
        self.error = error
        self.runs = 0
        """Calls that began."""
        self.running = 0
        """Calls that have not ended, in whatever way."""

    spec = ToolSpec(name="file_search", type="file_search")
    item_type = "file_search_call"

    def begin(self, item_id: str, arguments: str) -> HostedItem:
        """The item as it is announced."""
        return FileSearchCall(id=item_id, queries=(_query(arguments),), status="in_progress")

    async def run(self, item: HostedItem, report: Callable[[str], None]) -> HostedItem:
        """Wait, then answer. Cancellation leaves nothing behind."""
        self.runs += 1
        self.running += 1
        try:
            report("searching")
            await trio.sleep(self.seconds)
            if self.error is not None:
                raise self.error
            return evolve(item, status="completed", results=(_result(item.queries[0]),))
        finally:
            self.running -= 1


def _query(arguments: str) -> str:
    try:
        value = parse(arguments)
    except ProtocolError:
        return arguments
    return str(value.get("query", "")) if isinstance(value, dict) else arguments


def _result(query: str) -> Mapping[str, Any]:
    return {"file_id": "file_1", "filename": "notes.txt", "score": 1.0, "text": f"found {query}", "attributes": {}}
