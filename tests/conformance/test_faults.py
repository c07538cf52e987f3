"""The kit finds what is wrong with a server: each of many faults, by the law or by the probe that names it.

What found which is the table of ``docs/conformance.md``. ``SOSTENUTO_UPDATE_DOCS=1`` writes it; else it is checked but for the
numbers, which depend on the version of Hypothesis. ``SOSTENUTO_EXAMPLES`` looks for each fault in all of its shapes.
"""

import os
from statistics import median

import pytest

from engine.testing.profile import AT_LENGTH
from protocol.conformance.laws import LAWS
from protocol.conformance.probes import PROBES
from protocol.conformance.transport import Shape

from ..docs.blocks import check_block, read, rows
from .faulty import FAULTS
from .hunt import EXAMPLES, Found, hunt, probe

SHORT = 12
"""Frames of a conversation that shows a fault, both ways, in the median of all faults."""

HUNTS = [(name, shape) for name, one in FAULTS.items() for shape in (one.shapes if AT_LENGTH in os.environ else one.shapes[:1])]
PROBED = [
    (name, by, shape)
    for name, one in FAULTS.items()
    for by in one.probes
    for shape in PROBES[by].shapes
    if shape in (one.shapes or one.is_in)
]
FOUND: dict[str, Found] = {}
"""What was found in the first shape of each fault."""

HEAD = ["fault", "what the server does", "shapes", "found by", "conversations", "frames sent", "frames in all"]


@pytest.mark.parametrize(("name", "shape"), HUNTS)
def test_conversations_find(name: str, shape: Shape) -> None:
    found = hunt(name, shape)
    assert found is not None, f"{EXAMPLES} conversations have not found it"
    assert found.law in FAULTS[name].laws, f"{found.law}: {found.message}"
    assert found.examples <= EXAMPLES
    FOUND.setdefault(name, found)


@pytest.mark.parametrize(("name", "by", "shape"), PROBED)
def test_a_probe_finds(name: str, by: str, shape: Shape) -> None:
    """By what it is about, or by waiting in vain."""
    found = probe(by, name, shape)
    assert found is not None
    assert found.law == PROBES[by].law or "nothing more in" in found.message


def test_each_fault_can_be_found() -> None:
    assert len(FAULTS) >= 60
    for one in FAULTS.values():
        assert one.does, one.name
        assert one.shapes or one.probes, one.name
        assert one.laws <= set(LAWS), one.name


def test_what_shows_a_fault_is_short() -> None:
    if set(FOUND) != {name for name, _ in HUNTS}:
        pytest.skip("only some faults were looked for")
    assert median(found.frames for found in FOUND.values()) <= SHORT


def test_the_table_of_the_documentation() -> None:
    if os.environ.get("SOSTENUTO_UPDATE_DOCS") == "1" and set(FOUND) == {name for name, _ in HUNTS}:
        check_block("conformance.md", "faults", table())
    text = read("conformance.md")
    committed = rows(text[text.index("<!-- faults: begin -->") : text.index("<!-- faults: end -->")])
    assert committed[0] == HEAD
    lines = {line[0]: line for line in committed[2:]}
    assert list(lines) == list(FAULTS)
    for name, line in lines.items():
        one = FAULTS[name]
        assert line[1:3] == [one.does, shapes_of(name)]
        law, by = line[3].split(": ") if ": " in line[3] else (line[3], "")
        assert law in one.laws
        assert by == ", ".join(one.probes)


def table() -> str:
    """A line for each fault, and what is true of all in front."""
    frames, sent = ([getattr(found, what) for found in FOUND.values()] for what in ("frames", "sent"))
    most = max(found.examples for found in FOUND.values())
    lines = [
        f"{len(FAULTS)} of {len(FAULTS)} faults are found: {len(FOUND)} by conversations, after {most} at most, the other "
        f"{len(FAULTS) - len(FOUND)} by a probe that is about just that. The shortest conversation that shows a fault has "
        f"{median(frames):g} frames in the median, {median(sent):g} of them the client's.",
        "",
        f"| {' | '.join(HEAD)} |",
        "|---|---|---|---|--:|--:|--:|",
        *(line_of(name) for name in FAULTS),
        "",
    ]
    return "\n".join(lines)


def line_of(name: str) -> str:
    one, found = FAULTS[name], FOUND.get(name)
    law = found.law if found else next(iter(one.laws))
    by = f"{law}: {', '.join(one.probes)}" if one.probes else law
    numbers = [found.examples, found.sent, found.frames] if found else ["", "", ""]
    return f"| {name} | {one.does} | {shapes_of(name)} | {by} | {' | '.join(map(str, numbers))} |"


def shapes_of(name: str) -> str:
    """Those in which it is looked for."""
    shapes = FAULTS[name].shapes or list(dict.fromkeys(shape for one, _, shape in PROBED if one == name))
    return ", ".join(shapes)


# ---- a sound server


@pytest.mark.parametrize("shape", ["append", "create", "http"])
def test_a_server_without_faults_is_found_sound(shape: Shape) -> None:
    found = hunt(None, shape, examples=int(os.environ.get(AT_LENGTH, 100)))
    assert found is None, f"{found.law}: {found.message}\n" + "\n".join(map(str, found.conversation))
