"""Calls from their deltas. What servers send is not always what the specification says:

- the index is missing, or is 0 for every call; the id is missing, empty, another one in each delta, or used before;
- the name comes in pieces, or again with each delta, or again and again as a whole;
- a call is whole in one delta, two calls come in one chunk, the deltas of parallel calls are interleaved;
- the arguments are an object and no text, or come once more as a whole at the end.

One call is given out at a time, as the engine's items are: the first one as its deltas come, the next when the first is
whole. A call is known to be whole when its arguments are a JSON object and another one has begun, or when sampling stops.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import define, field

from protocol.codec import encode, parse
from protocol.errors import ProtocolError

from ..base import CallBegin, CallEnd, CallKind, CallPieces, Chunk, ModelError
from ..functions import CUSTOM_INPUT
from .text import Joined, estimate

STREAMED: Final = "function_call"
"""The kind of call whose arguments are given out as they come; of the others they have to be read first."""


@define(eq=False)
class Call:
    """A call that is being sampled, or was."""

    name: str = ""
    theirs: str | None = None
    """Its id, as the server named it first."""
    id: str = ""
    """Its id here. It has one when it has begun."""
    parts: list[str] = field(factory=list)
    given: int = 0
    """How many of ``parts`` were given out."""
    ended: bool = False
    joined: Joined = field(factory=Joined)

    @property
    def arguments(self) -> str:
        """As they were sampled so far."""
        return "".join(self.parts)

    @property
    def whole(self) -> bool:
        """Whether the arguments are a JSON object."""
        return bool(self.parts) and self.parts[-1].rstrip().endswith("}") and json_object(self.arguments) is not None


class Calls:
    """The calls of one turn. ``kinds`` is by the names of the tools that are offered, ``new_id`` makes an id of theirs ours."""

    def __init__(self, kinds: Mapping[str, CallKind], new_id: Callable[[str | None], str], *, parallel: bool = True) -> None:
        self._kinds = kinds
        self._new_id = new_id
        self._parallel = parallel
        self._by_id: dict[str, Call] = {}
        self._by_index: dict[int, Call] = {}
        self._group: list[Call] = []
        """The calls of the last chunk's deltas."""
        self._waiting: deque[Call] = deque()
        """Those that have not ended. What is given out is of the first."""
        self.made: list[Call] = []
        """Those that have begun, in order."""
        self.tokens = 0

    @property
    def open(self) -> bool:
        """Whether a call is not whole yet, or was not given out."""
        return bool(self._waiting)

    def feed(self, deltas: Any) -> list[Chunk]:
        """What ``delta.tool_calls`` of one chunk adds. What can't be understood in it is passed over."""
        listed = deltas if isinstance(deltas, list) else [deltas]
        group: list[Call] = []
        for delta in listed:
            if isinstance(delta, dict):
                call = self._call_of(delta, len(group))
                group.append(call)
                self._extend(call, delta)
        self._group = group or self._group
        return self._advance()

    def settle(self) -> list[Chunk]:
        """End the calls that are whole, since something else begins."""
        chunks: list[Chunk] = []
        while self._waiting and self._waiting[0].whole:
            chunks += self._end()
        return chunks

    def finish(self, *, cut: bool = False) -> list[Chunk]:
        """Sampling has stopped. If it was ``cut``, a call that is not whole stays open, and what is behind it is dropped."""
        chunks: list[Chunk] = []
        while self._waiting:
            if cut and not self._waiting[0].whole:
                chunks += self._give(self._waiting[0])
                self._waiting.clear()
                break
            chunks += self._end()
        return chunks

    # ---- whose delta it is

    def _call_of(self, delta: dict[str, Any], place: int) -> Call:
        """The call that ``delta`` belongs to: the ``place``-th of its chunk."""
        index, theirs = delta.get("index"), _text(delta.get("id")) or None
        known = self._by_id.get(theirs) if theirs else None
        if known is None:
            known = self._by_index.get(index) if isinstance(index, int) else self._recent(place)
            if known is not None and self._begins_another(known, delta, has_index=isinstance(index, int)):
                known = None
        call = known or self._begin()
        call.theirs = call.theirs or theirs
        if theirs:
            self._by_id.setdefault(theirs, call)
        if isinstance(index, int):
            self._by_index[index] = call
        return call

    def _begin(self) -> Call:
        call = Call()
        if self._parallel or not (self.made or self._waiting):
            self._waiting.append(call)
        return call

    def _recent(self, place: int) -> Call | None:
        """A delta without an index goes on with the call that was at its place in the last chunk."""
        return self._group[place] if place < len(self._group) else None

    def _begins_another(self, known: Call, delta: dict[str, Any], *, has_index: bool) -> bool:
        function = _function(delta)
        name, arguments = _text(function.get("name")), function.get("arguments")
        if not name:
            return False  # whatever its id: some servers make up another one for each delta
        if _text(delta.get("id")) and known.theirs:
            return True
        starts = isinstance(arguments, dict) or _text(arguments).lstrip().startswith("{")
        if known.whole:
            return name != known.name or (_as_text(arguments) != known.arguments and (starts or not has_index))
        return not has_index and bool(known.parts) and name != known.name

    # ---- what it adds

    def _extend(self, call: Call, delta: dict[str, Any]) -> None:
        function = _function(delta)
        self._rename(call, _text(function.get("name")))
        arguments = _as_text(function.get("arguments"))
        if not arguments or call.ended or (arguments.startswith("{") and call.whole and arguments == call.arguments):
            return
        piece = call.joined.take(arguments if call.parts else arguments.lstrip())
        if piece:
            call.parts.append(piece)

    def _rename(self, call: Call, name: str) -> None:
        if not name or call.id or name == call.name or (call.name in self._kinds and call.name + name not in self._kinds):
            return
        call.name = name if name.startswith(call.name) else call.name + name

    # ---- giving out

    def _advance(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        while len(self._waiting) > 1 and self._waiting[0].whole:
            chunks += self._end()
        if self._waiting:
            chunks += self._stream(self._waiting[0])
        return chunks

    def _kind(self, call: Call) -> CallKind:
        return self._kinds.get(call.name, STREAMED)

    def _stream(self, call: Call) -> list[Chunk]:
        return self._give(call) if call.parts and call.name and self._kind(call) == STREAMED else []

    def _give(self, call: Call) -> list[Chunk]:
        """What was not given out yet."""
        chunks: list[Chunk] = []
        kind = self._kind(call)
        if not call.id:
            if not call.name:
                raise ModelError("the model's server sent a call without a name")
            call.id = self._new_id(call.theirs)
            self.made.append(call)
            chunks.append(CallBegin(call.name, kind, call.id))
        pieces, call.given = call.parts[call.given :], len(call.parts)
        if pieces and kind == STREAMED:
            chunks.append(self._pieces(pieces))
        return chunks

    def _end(self) -> list[Chunk]:
        call = self._waiting.popleft()
        rest = call.joined.rest()
        if rest:
            call.parts.append(rest)
        if not call.parts:
            call.parts = ["{}"]  # a call without arguments has them as JSON all the same
        chunks = self._give(call)
        if self._kind(call) != STREAMED:
            chunks.append(self._pieces([asked(self._kind(call), call.arguments)]))
        call.ended = True
        return [*chunks, CallEnd()]

    def _pieces(self, pieces: list[str]) -> CallPieces:
        tokens = sum(map(estimate, pieces))
        self.tokens += tokens
        return CallPieces(pieces, tokens)


def asked(kind: CallKind, arguments: str) -> str:
    """What a call asks that is no function's: the input of a custom tool, else the object that its item holds."""
    value = json_object(arguments)
    if value is None:
        return arguments
    if kind == "custom_tool_call":
        given = value.get(CUSTOM_INPUT)
        return given if isinstance(given, str) else arguments
    if kind == "local_shell_call":
        return encode({"type": "exec", "env": {}, **value}).decode()
    return arguments


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that ``text`` is, if it is one."""
    try:
        value = parse(text)
    except ProtocolError:
        return None
    return value if isinstance(value, dict) else None


def _function(delta: dict[str, Any]) -> dict[str, Any]:
    function = delta.get("function")
    return function if isinstance(function, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _as_text(arguments: Any) -> str:
    return encode(arguments).decode() if isinstance(arguments, dict | list) else _text(arguments)
