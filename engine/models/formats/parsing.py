"""Reads what a model samples: text, thoughts, calls.

Theory. The ids become a text that is held (``pieces``), and what is sure of it is given away, token by token; so the chunks
are the same however the ids come in. What may be the beginning of a mark waits until it is one, or is none. A call waits
until it is whole: only then it is known to be one, and not a text that looks like it. Then its name and its arguments are
given, in the pieces that the tokens gave them.

Between the parts of a turn a format writes blanks (``Syntax.behind_call``, …). The same blanks are taken off here, so that
what is given is rendered to what was sampled. Blanks alone between calls and thoughts are no text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..base import CallBegin, CallEnd, CallPieces, Chunk, Counted, MessageEnd, Reasoning, Text
from .base import Vocabulary
from .calls import Found, Function, find_call, in_string, may_begin
from .pieces import Held, Marks
from .syntax import Syntax

WITHIN: Final = "\n"
"""What stands behind the mark of a thought, and before that of its end."""
HEAD_CHARS: Final = 200
"""So much of a call says whether it can be one; nobody writes more blanks there."""


class Parser:
    """A ``TurnParser`` of a syntax."""

    def __init__(
        self, syntax: Syntax, marks: Marks, vocabulary: Vocabulary, offered: Mapping[str, Function], *, spelled: bool = False
    ) -> None:
        """``offered`` is what may be called. ``spelled``: a mark in plain text is one, too, where it is a special token."""
        self._syntax, self._offered, self._plain = syntax, offered, marks.plain
        self._held = Held(vocabulary, marks.by_id(spelled=spelled))
        self._call = marks.read(syntax.call, spelled=spelled)
        self._call_end = marks.read(syntax.call_end, spelled=spelled) if syntax.call_end else None
        self._think = marks.read(syntax.think, spelled=spelled)
        self._think_end = marks.read(syntax.think_end, spelled=spelled)
        self._step = self._read_text
        self._chunks: list[Chunk] = []
        self._over = False
        self._fresh = True
        """Nothing was given yet of the text or the thought at hand."""
        self._gap = ""
        """Blanks that it may begin with, and that are not its own."""
        self._begun = False
        """Something was given of this turn."""
        self._inner = 0
        """Where in what is held the call at hand begins, behind blanks and its mark."""
        self._searched = 0
        """Up to where its end was looked for."""
        self.called = False

    def feed(self, ids: Sequence[int]) -> list[Chunk]:
        """More ids: what is sure by now."""
        for token in ids:
            self._held.add(token)
            while self._step():
                pass
        return self._given()

    def finish(self) -> list[Chunk]:
        """There are no more ids: all that is left."""
        self._over = True
        while self._step():
            pass
        self._drop(0)
        self._count(self._held.finish())
        return self._given()

    def _given(self) -> list[Chunk]:
        chunks, self._chunks = self._chunks, []
        return chunks

    def _go(self, step: Callable[[], bool], gap: str) -> bool:
        """What begins now is read by ``step``."""
        self._step, self._gap, self._fresh = step, gap, True
        return True

    # ---- giving

    def _give(self, kind: type[Text] | type[Reasoning], end: int) -> None:
        """Give so much of what is held."""
        if self._fresh and end:
            gap = _common(self._gap, self._held.text[:end])
            self._drop(gap)
            end, self._gap = end - gap, self._gap[gap:]
        if end:
            pieces, tokens = self._held.take(end)
            self._chunks.append(kind([self._plain(piece) for piece in pieces], tokens))
            self._fresh, self._begun = False, True

    def _drop(self, end: int) -> None:
        """Let go of marks, and of the blanks about them."""
        self._count(self._held.take(end)[1])

    def _count(self, tokens: int) -> None:
        if tokens:
            self._chunks.append(Counted(tokens))

    # ---- steps. Each says whether another one can follow

    def _read_text(self) -> bool:
        text = self._held.text
        if self._fresh:
            body = text.lstrip()
            blanks = len(text) - len(body)
            if body.startswith(self._think):
                self._drop(blanks + len(self._think))
                return self._go(self._read_thought, WITHIN)
            if self._syntax.bare and body.startswith("{"):
                return self._begin_call(blanks, blanks)
            if self._think.startswith(body) and not self._over:
                return False
            if not body and self._begun:
                self._drop(blanks)
                return False
        at, before = text.find(self._call), self._syntax.behind_text
        if at < 0:
            blank = self._fresh and not text.strip()
            self._give(Text, len(text) if self._over else 0 if blank else _surely(text, before + self._call, self._call))
            return False
        self._give(Text, 0 if self._fresh and not text[:at].strip() else len(text[:at].removesuffix(before)))
        left = len(self._held.text) - len(text) + at
        return self._begin_call(left + len(self._call), left)

    def _read_thought(self) -> bool:
        text = self._held.text
        at = text.find(self._think_end)
        if at < 0:
            self._give(Reasoning, len(text) if self._over else _surely(text, WITHIN + self._think_end, self._think_end))
            return False
        self._give(Reasoning, len(text[:at].removesuffix(WITHIN)))
        self._drop(len(self._held.text) - len(text) + at + len(self._think_end))
        if not self._fresh:
            self._chunks.append(MessageEnd())
        return self._go(self._read_text, self._syntax.behind_thought)

    def _begin_call(self, inner: int, searched: int) -> bool:
        self._inner, self._searched, self._step = inner, searched, self._read_call
        return True

    def _read_call(self) -> bool:
        text = self._held.text
        end = self._end_of_call(text)
        if end < 0 and not self._over and may_begin(text[self._inner : self._inner + HEAD_CHARS], self._syntax.arguments):
            return False
        whole = end >= 0 or self._over
        found = self._find_calls(text[self._inner : end if end >= 0 else len(text)]) if whole else []
        if not found:
            return self._read_no_call()
        for call in found:
            self._give_call(call, self._inner - len(text))
        self._drop(len(self._held.text) - len(text) + end + len(self._call_end or "") if end >= 0 else len(self._held.text))
        return self._go(self._read_text, self._syntax.behind_call)

    def _read_no_call(self) -> bool:
        """It was none: its mark is text, and what follows is read once more."""
        self._step = self._read_text
        self._give(Text, max(self._inner, 1))
        return True

    # ---- calls

    def _end_of_call(self, text: str) -> int:
        """Where the mark of its end stands; -1 if there is none yet. One that is plain text may also stand in a string."""
        if self._call_end is None:
            return -1
        at = text.find(self._call_end, self._searched)
        while at >= 0 and len(self._call_end) > 1 and in_string(text[self._inner : at]):
            at = text.find(self._call_end, at + 1)
        self._searched = max(self._searched, len(text) - len(self._call_end) + 1)
        return at

    def _find_calls(self, inner: str) -> list[Found]:
        """The calls that ``inner`` is; none if it is anything else, too."""
        calls: list[Found] = []
        between = self._syntax.between.strip() if self._call_end is None else ""
        at = 0
        while inner[at:].strip():
            if calls and between and inner[at:].lstrip().startswith(between):
                at = inner.index(between, at) + len(between)
            call = find_call(inner, at, self._offered, self._syntax.arguments, self._plain)
            if call is None:
                return []
            calls.append(call)
            at = call.end
        return calls

    def _give_call(self, call: Found, shift: int) -> None:
        """``shift``: what its places are counted from, from the end of what was held when it was found."""
        start, end = call.arguments
        self._drop(len(self._held.text) + shift + start)
        pieces, tokens = self._held.take(end - start)
        if call.content is not None:
            pieces = [call.content] if call.content else []
        begin = CallBegin(call.function.name, call.function.kind)
        self._chunks += [begin, CallPieces([self._plain(piece) for piece in pieces], tokens), CallEnd()]
        self._begun = self.called = True


def _common(left: str, right: str) -> int:
    """How many characters two texts have in common at their beginning."""
    return next((at for at, (one, two) in enumerate(zip(left, right, strict=False)) if one != two), min(len(left), len(right)))


def _surely(text: str, *marks: str) -> int:
    """Up to where ``text`` surely is text: what may begin a mark waits."""
    tail = range(max(0, len(text) - max(map(len, marks)) + 1), len(text))
    return next((at for at in tail if any(mark.startswith(text[at:]) for mark in marks)), len(text))
