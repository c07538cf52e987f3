"""What formats have in common: a format says how a message, a turn, results and tools are written; the rest is here.

Each message begins and ends with special tokens, and what stands between them is encoded as one text, as the models have
seen it in training. Text never merges across special tokens, so messages can be rendered one by one, and what is appended
changes no earlier id. What opens a turn of the model is encoded apart from its body, since there sampling begins.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import ClassVar

from protocol.items import FileSearchCall, Item
from protocol.requests import Tool

from ..base import Plan
from .base import Vocabulary
from .calls import Function, dumps, functions
from .conversation import Called, Group, Results, Said, Segment, Thought, Told, Turn, groups, hosted_results
from .grammar import grammar_of, is_bound
from .parsing import Parser
from .pieces import Marks
from .syntax import Syntax

Part = str | int
"""Ordinary text, or the id of a special token."""


class Template(ABC):
    """A format over a vocabulary. Making one sets ``opening``, ``closing`` and ``stops``, and raises ``KeyError`` for a special
    token that it needs and the vocabulary lacks."""

    name: ClassVar[str]
    syntax: ClassVar[Syntax]
    """How a turn of the model is written."""
    opening: Sequence[int]
    """What opens it."""
    closing: Sequence[int]
    """What closes it, the stop token first."""
    stops: frozenset[int]
    """The ids at which sampling ends."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.marks = Marks(vocabulary, self.syntax.marks)

    # ---- what a format says

    @abstractmethod
    def system(self, instructions: str | None, tools: Sequence[Function]) -> Iterable[Part]:
        """What a prompt begins with."""

    @abstractmethod
    def message(self, role: str, text: str) -> Iterable[Part]:
        """A message of the user, the developer or the system."""

    @abstractmethod
    def results(self, texts: Sequence[str]) -> Iterable[Part]:
        """What tools answered to the calls of a turn."""

    # ---- turns, as the syntax has them

    def joins(self, before: Segment, segment: Segment) -> bool:
        """Whether two segments can stand side by side in a turn: whether they would be read as two."""
        if isinstance(before, Called) and self.syntax.call_end is None:
            return isinstance(segment, Called)
        return not isinstance(before, Said) or isinstance(segment, Called)

    def turn(self, segments: Sequence[Segment]) -> Iterator[Part]:
        """The body of a turn of the model."""
        before: Segment | None = None
        for segment in segments:
            yield self._gap(before, segment)
            if isinstance(segment, Said):
                yield segment.text
            elif isinstance(segment, Thought):
                yield from (self.mark(self.syntax.think), f"\n{segment.text}\n", self.mark(self.syntax.think_end))
            else:
                if self.syntax.bare and isinstance(before, Said):
                    yield self.mark(self.syntax.call)
                yield from self._call(segment)
            before = segment

    def _call(self, call: Called) -> Iterator[Part]:
        """What a call says is ordinary text, its name too."""
        before, _, behind = self.syntax.head.partition("NAME")
        yield from (
            *self.marked(before),
            dumps(call.name),
            *self.marked(behind),
            call.arguments,
            *self.marked(self.syntax.tail),
        )

    def _gap(self, before: Segment | None, segment: Segment) -> str:
        """What stands between two segments."""
        if isinstance(before, Called):
            return self.syntax.between if isinstance(segment, Called) else self.syntax.behind_call
        if isinstance(before, Thought):
            return self.syntax.behind_thought
        return "" if before is None else self.syntax.behind_text

    # ---- the contract

    def render_prompt(
        self,
        instructions: str | None,
        tools: Sequence[Tool],
        items: Sequence[Item],
        stops: Collection[int] | None = None,
    ) -> list[int]:
        """The ids of a whole prompt."""
        head = self.encode(self.system(instructions, [*functions(tools).values()]))
        return head + self._render(groups(items, stops, joins=self.joins))

    def render_calls(self, items: Iterable[Item]) -> list[int]:
        """The ids of a turn of the model: of hosted calls, the calls only."""
        return self._render(groups(items, hosted=False, joins=self.joins))

    def render_results(self, items: Iterable[Item]) -> list[int]:
        """The ids of what a model is given behind its turn: of hosted calls, the results only."""
        everything = [*items]
        rest = (item for item in everything if not isinstance(item, FileSearchCall))
        return self._render([*hosted_results(everything), *groups(rest, joins=self.joins)])

    def render_next(self, unread: Iterable[Item], new: Sequence[Item]) -> list[int]:
        """The ids of what another Response adds behind a turn: the turn's hosted results, then ``new``."""
        return self._render([*hosted_results(unread), *groups(new, joins=self.joins)])

    def parser(self, plan: Plan) -> Parser:
        """A parser for one turn. Under a grammar, models may spell a mark for which they have a token."""
        return Parser(self.syntax, self.marks, self.vocabulary, functions(plan.tools), spelled=is_bound(plan))

    def grammar(self, plan: Plan) -> str | None:
        """What ``tool_choice`` and ``text.format`` make of a turn; None if it is free."""
        return grammar_of(plan, self.syntax)

    # ---- ids

    def known(self, *texts: str) -> frozenset[int]:
        """The ids of those special tokens that the vocabulary has."""
        return frozenset(mark for mark in map(self.mark, texts) if isinstance(mark, int))

    def mark(self, text: str) -> Part:
        """A mark as it is written: the id of a special token, where the vocabulary has it, else its text."""
        try:
            return self.vocabulary.special(text)
        except KeyError:
            return text

    def marked(self, text: str) -> list[Part]:
        """The parts of a text of the format's own: where it has marks, marks."""
        pieces = re.split(f"({'|'.join(map(re.escape, self.syntax.marks))})", text)
        return [self.mark(piece) if piece in self.syntax.marks else piece for piece in pieces]

    def encode(self, parts: Iterable[Part]) -> list[int]:
        """The ids of ``parts``. Texts that stand side by side are one text."""
        ids: list[int] = []
        texts: list[str] = []
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
            else:
                ids += [*self._encode("".join(texts)), part]
                texts = []
        return [*ids, *self._encode("".join(texts))]

    def _encode(self, text: str) -> Sequence[int]:
        return self.vocabulary.encode(text) if text else ()

    def _render(self, found: Iterable[Group]) -> list[int]:
        return [number for group in found for number in self._group(group)]

    def _group(self, group: Group) -> Sequence[int]:
        if isinstance(group, Turn):
            return [*self.opening, *self.encode(self.turn(group.segments)), *self.closing]
        if isinstance(group, Results):
            return self.encode(self.results(group.texts))
        assert isinstance(group, Told)
        return self.encode(self.message(group.role, group.text))
