"""What was found: plain values, for whatever shows them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from attrs import asdict, field, frozen

from .capabilities import Capabilities
from .transport import Frame, Shape

Status = Literal["held", "broken", "not offered"]


@frozen(kw_only=True)
class Failure:
    """A conversation in which something was wrong: the shortest one found in its shape."""

    shape: Shape
    message: str
    conversation: Sequence[Frame]
    """Frame by frame: ``{"client": "c0", "sent": {…}}``, ``{"client": "c0", "got": {…}}``; see ``record``."""
    seed: int
    reproducible: bool | None = None
    """Whether it came about again when the same was said again; None where that was not tried."""


@frozen(kw_only=True)
class Finding:
    """What was found of one law, or by one probe, in all shapes."""

    status: Status
    says: str = ""
    """What is right."""
    examples: int = 0
    """Conversations in which it could have been broken."""
    message: str = ""
    """What was wrong; or why it is not offered."""
    conversation: Sequence[Frame] = ()
    """That of the first of ``failures``."""
    shapes: Mapping[str, Status] = field(factory=dict)
    failures: Sequence[Failure] = ()
    law: str = ""
    """Of a probe: the law that it is about."""
    basis: str = ""
    """Of a probe: where it is written what is right."""


@frozen(kw_only=True)
class Report:
    """All that was found of one server."""

    server: str
    seed: int
    seconds: float
    shapes: Sequence[Shape]
    """Those that were tried and are offered."""
    capabilities: Capabilities
    laws: Mapping[str, Finding]
    probes: Mapping[str, Finding]
    adapter: str = ""
    examples: Mapping[str, int] = field(factory=dict)
    """Conversations that were played, by shape."""
    reasons: Mapping[str, str] = field(factory=dict)
    """Of capabilities that are not offered: how that was found."""
    notes: Sequence[str] = ()
    """Why there may be less in it than was asked for."""
    interrupted: bool = False

    @property
    def broken(self) -> list[str]:
        """Names of laws and probes."""
        return [name for found in (self.laws, self.probes) for name, one in found.items() if one.status == "broken"]

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)
