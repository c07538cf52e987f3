"""Each benchmark runs, at sizes so small that its figures mean nothing, and says what it found. No figure is asserted."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import BENCHMARKS
from bench.client import frame
from bench.report import Row, interleaved, ratio, table

ROOT = Path(__file__).parents[2]
ROWS = {"stream": 2, "first_event": 1, "resume": 2, "turn": 4, "post": 1, "parked": 5, "conform": 1, "peers": 6}


def test_each_benchmark_prints_a_line_of_json_for_each_result() -> None:
    command = [sys.executable, "-m", "bench", "--tiny", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert Counter(row["name"] for row in rows) == ROWS
    for row in rows:
        assert row["unit"] in ("×", "KiB", "ms")
        assert isinstance(row["value"], float)
        assert row["ok"] == (row["target"] is None or row["value"] <= row["target"])


def test_every_benchmark_is_tried_here() -> None:
    assert set(ROWS) == set(BENCHMARKS)


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
    assert ratio(pairs) == 1.0


def test_a_row_says_whether_its_target_was_met() -> None:
    rows = [Row(name="x", what="y", value=value, target=target) for value, target in ((1.0, 1.0), (1.1, 1.0), (5.0, None))]
    assert [row.verdict for row in rows] == ["ok", "missed", ""]
    assert table(rows).splitlines()[2].split() == ["x", "y", "1.1", "×", "≤", "1", "missed"]


@pytest.mark.parametrize(("size", "head"), [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)])
def test_a_client_frame_is_masked_and_says_its_size(size: int, head: int) -> None:
    payload = bytes(index % 251 for index in range(size))
    data = frame(payload)
    assert data[0] == 0x81
    assert data[1] & 0x80
    assert len(data) == head + 4 + size
    mask = data[head : head + 4]
    assert bytes(byte ^ mask[index % 4] for index, byte in enumerate(data[head + 4 :])) == payload
