"""One row per Response, however it ended (law L15): who, what, how long, how much. And where the rows go."""

from typing import Any, Protocol

from attrs import asdict, frozen


@frozen(kw_only=True)
class Row:
    """What is billed. Times are seconds of Unix time, durations seconds."""

    response_id: str
    tenant: str
    model: str
    shape: str
    status: str
    reason: str | None
    created_at: float
    ended_at: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    tool_calls: int
    parks: int
    flags: str
    """Names of the policy rules that matched, joined by commas."""
    stages: str
    """The stages' counters, as JSON."""

    def as_dict(self) -> dict[str, Any]:
        """The row by column."""
        return asdict(self)


class Ledger(Protocol):
    """Where rows go."""

    async def write(self, row: Row) -> None:
        """Keep ``row``; it is durable when this returns. Cancellation may leave it written."""
        ...


class MemoryLedger:
    """Rows in a list: for tests, and for servers that bill nobody."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    async def write(self, row: Row) -> None:
        self.rows.append(row)
