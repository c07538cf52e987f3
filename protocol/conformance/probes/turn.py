"""What came of what a client said: a ``Turn`` of the model, or a ``Refusal``. Values, without I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from ...items import OUTPUT_TYPE_OF
from ..script import Script
from ..transport import Frame


@frozen(kw_only=True)
class Turn:
    """What the model did until it waited for its client, or ended."""

    response_id: str
    events: Sequence[Frame] = ()
    """As they came, from what the client said on; none of an answer that was JSON."""
    response: Frame | None = None
    """The whole object, at its end; None while the Response waits, as one of the append shape does."""
    pending: Sequence[str] = ()
    """The calls that are still open, where the server told so."""
    script: Script = Script(())
    """What is to be done next, when the outputs are there."""
    tools: Sequence[Frame] = ()
    context: Sequence[Frame] = ()
    """All items of the rollout up to here."""

    @property
    def status(self) -> str | None:
        """Of the Response at its end; None while it waits."""
        return None if self.response is None else self.response.get("status")

    @property
    def items(self) -> list[Frame]:
        """The items that were done in this turn."""
        if not self.events:
            return list((self.response or {}).get("output") or ())
        return [frame["item"] for frame in self.of("response.output_item.done")]

    @property
    def calls(self) -> list[Frame]:
        """Those that are whole calls of the client's."""
        return [item for item in self.items if item["type"] in OUTPUT_TYPE_OF and item.get("status") in (None, "completed")]

    @property
    def text(self) -> str:
        """What its messages say."""
        parts = (part for item in self.items if item["type"] == "message" for part in item.get("content") or ())
        return "".join(part.get("text", "") for part in parts)

    @property
    def last_number(self) -> int:
        """The cursor of who has seen all of it."""
        return max((frame["sequence_number"] for frame in self.events if "sequence_number" in frame), default=-1)

    def of(self, *kinds: str) -> list[Frame]:
        """Its events of these types."""
        return [frame for frame in self.events if frame["type"] in kinds]

    def answers(self, *texts: str) -> list[Frame]:
        """The outputs of its calls, in their order."""
        return [output_of(call, text) for call, text in zip(self.calls, texts, strict=True)]


@frozen(kw_only=True)
class Refusal:
    """An error that answers what a client said."""

    frame: Frame
    status: int | None = None
    """As in HTTP, if the server said one."""

    @property
    def error(self) -> Mapping[str, Any]:
        """The nested object, or the flat one, where streams of server-sent events have it."""
        error = self.frame.get("error")
        return error if isinstance(error, Mapping) else self.frame

    @property
    def code(self) -> str | None:
        """What went wrong, for machines."""
        return self.error.get("code")

    @property
    def message(self) -> Any:
        """The same for people."""
        return self.error.get("message")


def output_of(call: Mapping[str, Any], output: Any) -> Frame:
    """The item that answers ``call``."""
    return {"type": OUTPUT_TYPE_OF[call["type"]], "call_id": call["call_id"], "output": output}
