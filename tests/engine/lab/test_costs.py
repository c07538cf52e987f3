"""What work costs in a simulation, and how it is learned from a comparison."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.lab.cells import STAGES_SHOWN
from engine.lab.costs import USUAL, Costs, CostsError, StageCost, fit, measured, read_costs
from engine.stages.counters import Counters
from engine.testing.profile import examples

factors = st.lists(st.sampled_from([0.0, 0.5, 2.0, 7.0]), min_size=3, max_size=3)
rows = st.lists(st.lists(st.integers(1, 50).map(float), min_size=3, max_size=3), min_size=6, max_size=12)


@examples(200)
@given(factors, rows)
def test_factors_are_found_again(true: list[float], given_rows: list[list[float]]) -> None:
    values = [sum(a * b for a, b in zip(row, true, strict=True)) for row in given_rows]
    assume(any(true))
    found = fit(given_rows, values)
    assert min(found) >= 0
    for row, value in zip(given_rows, values, strict=True):
        assert sum(a * b for a, b in zip(row, found, strict=True)) == pytest.approx(value, rel=1e-4)


def test_no_factor_is_negative() -> None:
    assert fit([(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)], [3.0, 2.0, 1.0])[1] == 0.0


def test_a_price_is_that_of_all_that_was_counted() -> None:
    counters = Counters()
    counters.full("validate")
    counters.full("render").tokens = 1000
    counters.incremental("render", items=2, tokens=10)
    costs = Costs(stages={"render": StageCost(run=1.0, item=0.1, token=0.001)}, response=5.0)
    assert costs.price(counters) == pytest.approx(2.0 + 0.2 + 1.01 + 5.0)
    assert costs.reported({"stages": counters.as_json()}) == pytest.approx({"render": 3.21})


def cell(shape: str, turns: int, size: int, costs: Costs, **changed: Any) -> dict[str, Any]:
    """A cell of a comparison in which work takes exactly what ``costs`` say."""
    responses, parks = (1, turns - 1) if shape == "append" else (turns, 0)
    tokens = 100 * turns if shape == "append" else 100 * turns * turns
    stages = {
        stage: costs.stages[stage].of(turns if stage != "classify_output" else responses, 0, tokens) for stage in STAGES_SHOWN
    }
    over = turns * costs.message + responses * costs.response + size * costs.byte + sum(stages.values())
    return {
        "workload": f"{turns} turns",
        "shape": shape,
        "tokens_per_second": 1000.0,
        "rtt_ms": 0.0,
        "no_reuse": [],
        "floor": 3.0,
        "seconds": {"median": 3.0 + over},
        "responses": {"median": responses},
        "parks": {"median": parks},
        "bytes_up": {"median": size},
        "tokens_rendered": {"median": tokens},
        "stage_runs": dict.fromkeys(STAGES_SHOWN, responses),
        "stage_seconds": stages,
        **changed,
    }


def comparison(costs: Costs) -> dict[str, Any]:
    shapes = (("append", 2_000), ("create", 9_000), ("http-full", 300_000))
    cells = [cell(shape, turns, size * turns // 10, costs) for turns in (10, 40) for shape, size in shapes]
    off = cell("create", 10, 9_000, costs, no_reuse=["tokens"], seconds={"median": 1e6})
    far = cell("create", 10, 9_000, costs, rtt_ms=20.0, seconds={"median": 1e6})
    return {"workloads": [{"name": f"{turns} turns", "turns": turns} for turns in (10, 40)], "cells": [*cells, off, far]}


def test_costs_are_learned_from_a_comparison(tmp_path: Path) -> None:
    path = tmp_path / "compared.json"
    path.write_text(json.dumps(comparison(USUAL)))
    found = read_costs(path)
    assert (found.message, found.response, found.byte) == pytest.approx((USUAL.message, USUAL.response, USUAL.byte), rel=1e-3)
    for stage in STAGES_SHOWN:
        assert found.stages[stage].run == pytest.approx(USUAL.stages[stage].run, rel=1e-3)
    assert found.stages["render"].token == pytest.approx(USUAL.stages["render"].token, rel=1e-3)


def test_costs_are_read_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"costs": USUAL.as_json()}))
    assert read_costs(path).as_json() == USUAL.as_json()


def test_what_teaches_nothing_is_refused() -> None:
    with pytest.raises(CostsError):
        measured({"workloads": [], "cells": []})


BAD = ["[]", "{", '{"cells": [{}], "workloads": []}', '{"stages": {"dream": {}}}', '{"stages": 3}', '{"messages": 1}']


@pytest.mark.parametrize("text", BAD)
def test_files_that_hold_no_costs_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(CostsError, match=r"costs\.json"):
        read_costs(path)
