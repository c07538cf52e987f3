"""Each benchmark runs, at sizes so small that its figures mean nothing, and says what it found. No figure is asserted."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import BENCHMARKS, DOCUMENT, benchmark
from bench.client import frame
from bench.report import Row, against, interleaved
from bench.tables import markdown, marks, places, table, with_tables

ROOT = Path(__file__).parents[2]
ROWS = {
    "stream": 2,
    "first_event": 1,
    "resume": 2,
    "turn": 4,
    "flat": 4,
    "pacing": 3,
    "post": 1,
    "parked": 5,
    "lab": 18,
    "simulate": 1,
    "conform": 1,
}
"""How many each finds where nothing but this package is there."""
EXTRA = {"kv"}
"""Benchmarks that want more than this package, and are tried elsewhere."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    quiet = {name: value for name, value in os.environ.items() if name != "SOSTENUTO_TRAJECTORIES"}
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("name", ROWS)
def test_each_benchmark_gives_a_line_of_json_for_each_result(name: str, tmp_path: Path) -> None:
    done = run("--tiny", "--only", name, "--json", "-", "--markdown", str(tmp_path / "table.md"))
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert Counter(row["name"] for row in rows) == {name: ROWS[name]}
    for row in rows:
        assert row["unit"] in ("×", "KiB", "tokens/s", "s", "%")
        assert isinstance(row["value"], float)
        reached = row["target"] is None or (row["value"] >= row["target"] if row["at_least"] else row["value"] <= row["target"])
        assert row["met"] == reached
    assert len((tmp_path / "table.md").read_text().splitlines()) == 2 + len(rows)


def test_every_benchmark_is_tried_here_and_has_its_place_in_the_document() -> None:
    assert {*ROWS, *EXTRA} == set(BENCHMARKS)
    assert set(places(DOCUMENT.read_text())) == set(BENCHMARKS)


def test_what_there_is_is_listed() -> None:
    listed = run("--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(BENCHMARKS)
    assert all(benchmark(name).__doc__ for name in BENCHMARKS)


def test_an_unknown_name_is_told() -> None:
    done = run("--only", "stream,wings")
    assert done.returncode == 2
    assert "unknown: wings" in done.stderr


def test_the_sides_are_interleaved_and_the_first_pair_is_left_out() -> None:
    order: list[str] = []

    def side(name: str, values: list[float]) -> Any:
        def measure() -> float:
            order.append(name)
            return values.pop(0)

        return measure

    pairs = interleaved(3, side("a", [99.0, 1.0, 2.0, 3.0]), side("b", [1.0, 2.0, 2.0, 2.0]))
    assert order == ["a", "b"] * 4
    assert pairs == [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)]
    row = against("x", "y", pairs, target=1.0, scale=1e3, unit="ms")
    assert (row.value, row.spread, row.verdict) == (1.0, (0.75, 1.25), "met")
    assert (row.detail["ours"], row.detail["theirs"]) == (2_000.0, 2_000.0)


def test_a_row_says_whether_its_target_was_met() -> None:
    found = [(1.0, 1.0, False), (1.1, 1.0, False), (1.1, 1.0, True), (0.9, 1.0, True), (5.0, None, False)]
    rows = [Row(name="x", what="y", value=value, target=target, at_least=least) for value, target, least in found]
    assert [row.verdict for row in rows] == ["met", "missed", "met", "missed", ""]
    assert table(rows).splitlines()[2].split() == ["x", "y", "1.1", "≤", "1", "missed"]


def test_tables_go_to_their_places_and_nowhere_else() -> None:
    begin, end = marks("x")
    other = "\n".join(marks("other"))
    text = f"before\n\n{begin}\nold\n{end}\n\nafter\n{other}\n"
    row = Row(name="x", what="y", value=12345.6, unit="s", spread=(1.0, 2.0))
    once = with_tables(text, [row])
    assert markdown([row], named=False) in once
    assert "| y | 12,346 s | 1 to 2 |" in once
    assert "old" not in once
    assert once.startswith(f"before\n\n{begin}\n")
    assert once.endswith(f"{end}\n\nafter\n{other}\n")
    assert with_tables(once, [row]) == once
    with pytest.raises(ValueError, match="no place for wings"):
        with_tables(text, [Row(name="wings", what="y", value=1.0)])


@pytest.mark.parametrize(("size", "head"), [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)])
def test_a_client_frame_is_masked_and_says_its_size(size: int, head: int) -> None:
    payload = bytes(index % 251 for index in range(size))
    data = frame(payload)
    assert data[0] == 0x81
    assert data[1] & 0x80
    assert len(data) == head + 4 + size
    mask = data[head : head + 4]
    assert bytes(byte ^ mask[index % 4] for index, byte in enumerate(data[head + 4 :])) == payload
