"""What was found: plain values, for whatever shows them."""

from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import field, frozen

from .capabilities import Capabilities
from .transport import Frame, Shape

Status = Literal["held", "broken", "not offered"]


@frozen(kw_only=True)
class Finding:
    """What was found of one law, or by one probe, in one shape or in all."""

    status: Status
    examples: int = 0
    """Conversations in which it could have been broken."""
    message: str = ""
    """What was wrong; or why it is not offered."""
    conversation: Sequence[Frame] = ()
    """The shortest one found, frame by frame: ``{"client": "c0", "sent": {…}}`` and ``{"client": "c0", "got": {…}}``."""
    shapes: Mapping[str, Status] = field(factory=dict)


@frozen(kw_only=True)
class Report:
    """All that was found of one server."""

    server: str
    seed: int
    seconds: float
    shapes: Sequence[Shape]
    capabilities: Capabilities
    laws: Mapping[str, Finding]
    probes: Mapping[str, Finding]

    @property
    def broken(self) -> list[str]:
        """Names of laws and probes."""
        return [name for found in (self.laws, self.probes) for name, one in found.items() if one.status == "broken"]
