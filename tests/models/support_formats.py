"""Formats over small vocabularies, and what is needed to look at them."""

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise

from attrs import evolve

from engine.log import DeltaText
from engine.models.base import CallBegin, CallPieces, Chunk, Counted, Plan, Reasoning, Rendered, Text
from engine.models.formats import FORMATS
from engine.models.formats.template import Template
from engine.output import Output
from engine.parking import Slots
from engine.testing.vocabulary import MARKS, SPECIAL, SmallVocabulary
from protocol.items import Item
from protocol.requests import Tool

NAMES = ["read", "add", 'an "odd" name \\ é']
TOOLS = (
    *(Tool(type="function", name=name, description=f"Tool {name}", parameters={"type": "object"}) for name in NAMES),
    Tool(type="custom", name="patch", description="Changes a file"),
    *(Tool(type=kind) for kind in ("shell", "local_shell", "apply_patch", "file_search", "web_search")),
)
PLAN = Plan(model="m", tools=TOOLS, prompt=Rendered((), ()))

SPECIAL_MARKS = SmallVocabulary((*SPECIAL, *MARKS))
PLAIN_MARKS = SmallVocabulary(SPECIAL)
ALL = [
    FORMATS[name](vocabulary)  # each format where its marks are special tokens, and where they are plain text
    for name in sorted(FORMATS)
    for vocabulary in (SPECIAL_MARKS, PLAIN_MARKS)
]
IDS = [f"{name}-{kind}" for name in sorted(FORMATS) for kind in ("special", "plain")]


class Quiet:
    """Where events go that nobody reads."""

    def emit(self, event: object) -> None:
        """Nobody hears it."""

    def emit_deltas(self, text: DeltaText, pieces: Sequence[str]) -> None:
        text.pieces += pieces


def items_of(chunks: Iterable[Chunk]) -> list[Item]:
    """What the engine makes of chunks."""
    output = Output(Quiet(), os.urandom, {}, Slots())
    for chunk in chunks:
        output.feed(chunk)
    output.close()
    return output.items


def body_of(form: Template, items: Iterable[Item]) -> list[int]:
    """What is sampled of a turn."""
    ids = form.render_calls(items)
    opening, closing = [*form.opening], [*form.closing]
    assert ids[: len(opening)] == opening
    assert ids[-len(closing) :] == closing
    return ids[len(opening) : -len(closing)]


def parse(form: Template, ids: Sequence[int], cuts: Iterable[int] = (), plan: Plan = PLAN) -> tuple[list[Chunk], bool]:
    """The chunks of a turn whose ids come in parts; and whether there was a call."""
    parser = form.parser(plan)
    chunks: list[Chunk] = []
    edges = [0, *sorted({cut % (len(ids) + 1) for cut in cuts}), len(ids)]
    for start, end in pairwise(edges):
        chunks += parser.feed(ids[start:end])
    chunks += parser.finish()
    return chunks, parser.called


def read(form: Template, text: str, plan: Plan = PLAN) -> list[tuple[str, ...]]:
    """A turn that is sampled as this text, marks as their tokens: what it is made of, in short."""
    chunks, _ = parse(form, written(form, text), range(10_000), plan)
    parts: list[tuple[str, ...]] = []
    for chunk in chunks:
        if isinstance(chunk, CallBegin):
            parts.append((chunk.kind, chunk.name, ""))
        elif isinstance(chunk, Text | Reasoning | CallPieces):
            kind = {Text: "text", Reasoning: "thought"}.get(type(chunk), "call")
            if kind != "call" and (not parts or parts[-1][0] != kind):
                parts.append((kind, ""))
            parts[-1] = (*parts[-1][:-1], parts[-1][-1] + "".join(chunk.pieces))
    return parts


def written(form: Template, text: str) -> list[int]:
    """The ids of a text in which marks are marks."""
    parts: list[str | int] = [text]
    for mark in MARKS:
        split: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                split.append(part)
                continue
            first, *others = part.split(mark)
            split.append(first)
            for other in others:
                split += [form.mark(mark), other]
        parts = split
    return form.encode(parts)


def tokens_of(chunks: Iterable[Chunk]) -> int:
    """How many tokens chunks are."""
    return sum(chunk.tokens for chunk in chunks if isinstance(chunk, Text | Reasoning | CallPieces | Counted))


def with_choice(choice: object, **changes: object) -> Plan:
    """The plan with a ``tool_choice``."""
    return evolve(PLAN, tool_choice=choice, **changes)
