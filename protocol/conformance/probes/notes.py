"""What one probe's conversation has in common: its story, how long it waits, and how it says that something is wrong."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from ...grammar import GrammarError, Trace
from ..adapters import Adapter
from ..capabilities import Capabilities
from ..story import ConformanceError, Story
from ..transport import Frame, Shape, Transport
from .turn import Refusal

VIRTUAL_SECONDS: Final = 600.0
REAL_SECONDS: Final = 60.0
"""For what must come: a model on a CPU takes its time, and whoever waits in virtual time waits for nothing."""
VIRTUAL_MOMENT: Final = 5.0
REAL_MOMENT: Final = 0.3
"""For what must not come."""


class NotOffered(Exception):
    """The server can't be asked this; the text says why."""


class Notes:
    """A probe's conversation, without those who speak.

    Where the adapter says that refusals have ``codes``, the server is one of ours: then what it says is held to every
    letter of the law (``strict``). Of another server a probe checks what it is about, and ``breaches`` of the grammar are
    noted.
    """

    def __init__(
        self, transport: Transport, shape: Shape, adapter: Adapter, capabilities: Capabilities, seconds: float | None
    ) -> None:
        self.transport = transport
        self.shape = shape
        self.adapter = adapter
        self.capabilities = capabilities
        self.story = Story()
        self.law = "L12"
        """The law that the probe is about: what is wrong is wrong by it, unless another is named."""
        self.only_asks = False
        """Whether it is only to be found out what is offered: well or badly."""
        self.breaches: list[GrammarError] = []
        self.seconds = seconds or (VIRTUAL_SECONDS if transport.exact else REAL_SECONDS)
        self.moment = VIRTUAL_MOMENT if transport.exact else REAL_MOMENT

    @property
    def appends(self) -> bool:
        """Whether a rollout is one Response."""
        return self.shape == "append"

    @property
    def strict(self) -> bool:
        """Whether the server is held to our own codes and grammar."""
        return self.adapter.codes and not self.only_asks

    def failure(self, message: str, law: str | None = None) -> ConformanceError:
        """What is wrong, to be raised."""
        return ConformanceError(law or self.law, message, self.story)

    def need(self, condition: object, message: str, law: str | None = None) -> None:
        """Raise ``ConformanceError`` unless ``condition`` holds."""
        if not condition:
            raise self.failure(message, law)

    def beyond(self, message: str) -> Exception:
        """What to raise when the model did not what it was told: wrong if it obeys, else it can't be asked."""
        return self.failure(message, "L8") if self.adapter.obeys else NotOffered(f"the model could not be made to: {message}")

    @contextmanager
    def patience(self, what: str) -> Iterator[None]:
        """Wait no longer than ``seconds``; raises ``ConformanceError``."""
        try:
            with trio.fail_after(self.seconds):
                yield
        except trio.TooSlowError:
            raise self.failure(f"{what}: nothing more in {self.seconds:g} s", "L12") from None

    def feed(self, trace: Trace, frame: Frame) -> bool:
        """The next event of ``trace``; false when it is of no more use."""
        try:
            trace.feed(frame)
        except GrammarError as error:
            if self.strict:
                raise self.failure(error.message, error.law) from None
            self.breaches.append(error)
            return False
        return True

    def check_refusal(self, refusal: Refusal, codes: Collection[str], *, documented: bool = False) -> None:
        """Whether ``refusal`` is an error as errors are; ``codes`` count where they are ours, or ``documented`` by
        OpenAI."""
        self.need(isinstance(refusal.message, str) and refusal.message, f"the error has no message: {refusal.frame}", "L12")
        self.need(refusal.status is None or refusal.status >= 400, f"an error with status {refusal.status}", "L12")
        if self.strict:
            self.need(refusal.status is not None and refusal.status < 500, f"refused with status {refusal.status}", "L12")
        if self.strict or documented:
            self.need(refusal.code in codes, f"refused with {refusal.code}, not {' or '.join(sorted(codes))}")
