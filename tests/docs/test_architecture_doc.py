"""``docs/architecture.md``: the files that it names exist, each module is named, and the laws' tests are where it says."""

import re
from functools import cache
from pathlib import Path

import pytest

from .blocks import ROOT, check_block, read

LAWS = {
    1: ("once", "each stage runs once in full per Response; an append costs what is new, not what has been"),
    2: ("one end", "exactly one terminal event, the last of its Response, whatever happens"),
    3: ("gap-free", "`sequence_number` is 0, 1, 2, … per Response"),
    4: ("grammar", "added, deltas, done; what is said twice agrees, byte for byte"),
    5: ("write-once", "a call takes one result; the same again is acknowledged, another is a conflict"),
    6: ("atomic", "a frame applies whole or not at all"),
    7: ("order-free", "results in any order and any batches give the same continuation"),
    8: ("same rollout", "tokens given to the model after a resume are those of one uninterrupted rendering"),
    9: ("held", "a park survives the socket; attach gives exactly the rest; an older epoch is refused"),
    10: ("decided once", "between cancel, completion and append there is one winner"),
    11: ("bounded", "memory has a cap; a reader that stops stalls its own Responses only"),
    12: ("live", "each accepted frame is answered; each park and each Response has a deadline"),
    13: ("apart", "a foreign id can't be told from an unknown one; a bad frame disturbs no other lane"),
    14: ("no repair", "items are stored as they were sent; nothing is invented, dropped or rebound"),
    15: ("one row", "one ledger row per Response, however it ended"),
    16: ("sizes speak", "the soft limit answers and leaves the Response parked; only the hard one closes"),
}
SOURCES = sorted(path for package in ("protocol", "tools", "engine") for path in (ROOT / package).rglob("*.py"))


@cache
def files_of_laws() -> dict[int, list[str]]:
    """For each law the files with a test that is named after it."""
    found: dict[int, set[Path]] = {law: set() for law in LAWS}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for number in re.findall(r"def test_l0?(\d+)_", path.read_text(encoding="utf-8")):
            if int(number) in found:
                found[int(number)].add(path)
    return {law: sorted(path.relative_to(ROOT).as_posix() for path in paths) for law, paths in found.items()}


def test_the_laws_name_their_tests() -> None:
    lines = ["| law | | tests |", "|---|---|---|"]
    for law, (name, meaning) in LAWS.items():
        files = ", ".join(f"`{file}`" for file in files_of_laws()[law])
        lines.append(f"| L{law} {name} | {meaning} | {files} |")
    check_block("architecture.md", "laws", "\n".join([*lines, ""]))


def test_what_is_named_exists() -> None:
    named = re.findall(r"`((?:protocol|tools|engine|tests|docs|bench|examples)/[\w./]*)`", read("architecture.md"))
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("package", ["protocol", "engine", "engine/stages", "engine/transport"])
def test_a_newcomer_finds_every_module(package: str) -> None:
    text = read("architecture.md")
    helpers = {"fields.py", "ids.py", "client_tools.py", "trajectories.py", "services.py", "dialing.py"}
    modules = [path for path in SOURCES if path.parent == ROOT / package and path.name not in helpers | {"__init__.py"}]
    assert modules
    assert [path.name for path in modules if f"`{path.relative_to(ROOT).as_posix()}`" not in text] == []
