"""From the events of the other server's Response to chunks.

Items come one after the other, as one model speaks; where a server streams two side by side, the second one waits until the
first is whole. What a server did not stream is said when its item, or its Response, is done. So are a shell's and a patch's
calls: what they ask is an object. Events that say nothing new are passed over.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from attrs import define, field

from protocol.codec import encode, item_from_wire
from protocol.errors import ProtocolError
from protocol.items import OtherItem
from protocol.lifecycle import TERMINAL_EVENTS

from ..base import (
    CallBegin,
    CallEnd,
    CallKind,
    CallPieces,
    Carried,
    Chunk,
    Counted,
    MessageEnd,
    ModelError,
    Reasoning,
    Stop,
    StopReason,
    Text,
)
from .asking import Frame
from .faults import failed, failure, unreadable

PIECES: Final[dict[str, type[Text | Reasoning | CallPieces]]] = {
    "response.output_text.delta": Text,
    "response.refusal.delta": Text,
    "response.reasoning_summary_text.delta": Reasoning,
    "response.reasoning_text.delta": Reasoning,
    "response.function_call_arguments.delta": CallPieces,
    "response.custom_tool_call_input.delta": CallPieces,
}
PARAGRAPH: Final = "\n\n"
"""Between the parts of a reasoning summary, which are one text here."""
ASKED_IN: Final = {"function_call": "arguments", "custom_tool_call": "input"}
TYPED: Final = {"shell_call": "action", "local_shell_call": "action", "apply_patch_call": "operation"}
"""Calls of tools that are known by their type, and where they say what they ask."""
CARRIED: Final = frozenset(
    {"web_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools", "mcp_call", "compaction"}
)
"""What a server's own tools leave behind, for which nobody here has to do anything."""
KNOWN: Final = frozenset({"message", "reasoning", *ASKED_IN, *TYPED, *CARRIED})
ENDS: Final = frozenset(TERMINAL_EVENTS.values()) | {"response.cancelled"}
STOPS: Final[dict[str, StopReason]] = {"max_output_tokens": "max_output_tokens", "content_filter": "content_filter"}


@define
class _Open:
    """An item that is streamed: what was said of it, and chunks that wait for the items before it."""

    kind: str
    said: list[str] = field(factory=list)
    chunks: list[Chunk] = field(factory=list)
    half: str = ""
    """The first half of a character, where a server has cut it."""


class Reading:
    """One Response of the other server, as it comes."""

    def __init__(self) -> None:
        self.output: dict[int, Frame] = {}
        """Its items that are whole, by their place."""
        self.calls: list[str] = []
        """The ids of the calls among them that wait for an output."""
        self.response: Frame | None = None
        """As it ended."""
        self._open: dict[int, _Open] = {}
        self._next = 0
        self._tokens = self._reasoning = 0

    def feed(self, frame: Frame) -> list[Chunk]:
        """The chunks that an event gives; raises ``ModelError``."""
        try:
            return self._feed(frame)
        except (AttributeError, KeyError, TypeError) as error:
            raise unreadable(f"{frame}: {error!r}") from error

    def _feed(self, frame: Frame) -> list[Chunk]:
        kind = frame.get("type")
        if kind in PIECES:
            self._delta(frame, PIECES[cast(str, kind)])
        elif kind == "response.output_item.added":
            self._begin(_index(frame), _object(frame, "item"))
        elif kind == "response.output_item.done":
            self._done(_index(frame), _object(frame, "item"))
        elif kind == "response.reasoning_summary_part.added" and frame.get("summary_index"):
            self._say(_index(frame), Reasoning, PARAGRAPH, 0)
        elif kind in ENDS:
            return self._end(_object(frame, "response"))
        elif kind == "error":
            raise failure(frame)
        return self._let()

    # ---- items

    def _begin(self, index: int, item: Frame) -> _Open:
        kind = str(item.get("type"))
        opened = self._open[index] = _Open(kind)
        if kind in ASKED_IN:
            opened.chunks.append(_call(item, str(item.get("name"))))
        return opened

    def _delta(self, frame: Frame, cls: type[Text | Reasoning | CallPieces]) -> None:
        piece = frame.get("delta")
        if not isinstance(piece, str):
            raise unreadable(frame)
        self._say(_index(frame), cls, piece, 1)

    def _say(self, index: int, cls: type[Text | Reasoning | CallPieces], piece: str, tokens: int) -> None:
        opened = self._open.get(index)
        if opened is None:
            return  # not announced: it is said when the item is done
        piece, opened.half = _whole(opened.half + piece)
        if not piece:
            return
        opened.said.append(piece)
        opened.chunks.append(cls((piece,), tokens))
        self._tokens += tokens
        self._reasoning += tokens if cls is Reasoning else 0

    def _done(self, index: int, item: Frame) -> None:
        if index in self.output:
            return
        opened = self._open.get(index) or self._begin(index, item)
        kind = opened.kind
        if kind != item.get("type") or not (
            kind in ("message", "reasoning") or kind in ASKED_IN or kind in TYPED or kind in CARRIED
        ):
            raise ModelError(f"the model's server put out a {item.get('type')}, which a relay does not carry")
        self.output[index] = item
        self._rest(index, opened, item)
        if item.get("status") != "incomplete":
            opened.chunks += self._finish(kind, item)

    def _rest(self, index: int, opened: _Open, item: Frame) -> None:
        """Say what was not streamed of an item."""
        if opened.kind == "reasoning":
            rest = "" if opened.said else _thoughts(item)
            self._say(index, Reasoning, rest, 1)
        elif opened.kind == "message" or opened.kind in ASKED_IN:
            whole = _text(item) if opened.kind == "message" else str(item.get(ASKED_IN[opened.kind], ""))
            said, opened.half = "".join(opened.said), ""  # what is whole has the character whole, of which a half was told
            if not whole.startswith(said):
                raise ModelError(f"the model's server put out a {opened.kind} that is not what its deltas say")
            self._say(index, Text if opened.kind == "message" else CallPieces, whole[len(said) :], 1)

    def _finish(self, kind: str, item: Frame) -> list[Chunk]:
        if kind == "message":
            return [MessageEnd(phase=_phase(item))]
        if kind == "reasoning":
            return [MessageEnd(encrypted_content=item.get("encrypted_content") or None)]
        if kind in CARRIED:
            return [Carried(_other(item))]
        self.calls.append(str(item.get("call_id")))
        if kind in ASKED_IN:
            return [CallEnd()]
        asked = encode(_object(item, TYPED[kind])).decode()
        return [_call(item, kind.removesuffix("_call")), CallPieces((asked,), 0), CallEnd()]

    def _let(self) -> list[Chunk]:
        """The chunks of the item whose turn it is, and of those behind it, if it is whole."""
        chunks: list[Chunk] = []
        while (opened := self._open.get(self._next)) is not None:
            chunks += opened.chunks
            opened.chunks = []
            if self._next not in self.output:
                break
            del self._open[self._next]
            self._next += 1
        return chunks

    # ---- the end

    def _end(self, response: Frame) -> list[Chunk]:
        output = response.get("output")
        for index, item in enumerate(output if isinstance(output, list) else ()):
            self._done(index, item)
        chunks = self._let()
        for index in sorted(self._open):  # what a server left open, or numbered in a way of its own
            chunks += self._open.pop(index).chunks
        self.response = response
        return [*chunks, *self._count(), Stop(self._reason(response))]

    def _count(self) -> list[Chunk]:
        """What the server says that it has sampled is what counts."""
        output, reasoning = (usage_of(self.response or {})[name] for name in ("output_tokens", "reasoning_tokens"))
        if not output:
            return []
        return [Counted(output - self._tokens, min(reasoning, output) - self._reasoning)]

    def _reason(self, response: Frame) -> StopReason:
        status = response.get("status")
        if status == "completed":
            return "tool_calls" if self.calls else "end"
        if status != "incomplete":
            raise failed(response)
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        if reason not in STOPS:
            raise ModelError(f"the model's server has ended its Response: {reason}")
        return STOPS[reason]


def usage_of(response: Frame) -> dict[str, int]:
    """``input_tokens``, ``cached_tokens``, ``output_tokens`` and ``reasoning_tokens``, 0 where nothing is said."""
    usage = _within(response, "usage")
    inputs, outputs = _within(usage, "input_tokens_details"), _within(usage, "output_tokens_details")
    found = {
        "input_tokens": usage.get("input_tokens"),
        "cached_tokens": inputs.get("cached_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "reasoning_tokens": outputs.get("reasoning_tokens"),
    }
    return {name: max(0, value) if type(value) is int else 0 for name, value in found.items()}


def _within(facts: Frame, name: str) -> Frame:
    value = facts.get(name)
    return value if isinstance(value, dict) else {}


def _whole(text: str) -> tuple[str, str]:
    """The characters that are whole, and what is left of one that was cut; raises ``ModelError`` if it can't be mended."""
    if text.isascii():
        return text, ""
    half = text[-1] if "\ud800" <= text[-1] < "\udc00" else ""
    try:
        return text[: len(text) - len(half)].encode("utf-16", "surrogatepass").decode("utf-16"), half
    except UnicodeDecodeError:
        raise unreadable(ascii(text)) from None


def _index(frame: Frame) -> int:
    index = frame.get("output_index")
    if type(index) is not int:
        raise unreadable(frame)
    return index


def _object(frame: Frame, name: str) -> Frame:
    value = frame.get(name)
    if not isinstance(value, dict):
        raise unreadable(frame)
    return value


def _call(item: Frame, name: str) -> CallBegin:
    call_id = item.get("call_id")
    if not isinstance(call_id, str):
        raise unreadable(item)
    return CallBegin(name, cast(CallKind, item["type"]), call_id)


def _other(item: Frame) -> OtherItem:
    try:
        return cast(OtherItem, item_from_wire(item))
    except ProtocolError as error:
        raise unreadable(error.message) from None


def _phase(item: Frame) -> Any:
    phase = item.get("phase")
    return phase if phase in ("commentary", "final_answer") else None


def _text(item: Frame) -> str:
    """All that a message says; a refusal is what it says, too."""
    parts = item.get("content")
    told = (part.get("text") or part.get("refusal") or "" for part in parts or () if isinstance(part, dict))
    return parts if isinstance(parts, str) else "".join(told)


def _thoughts(item: Frame) -> str:
    parts = item.get("summary") or item.get("content") or ()
    return PARAGRAPH.join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
