"""Every example runs as a reader would run it, and prints what it claims."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SECONDS = 60.0
"""None takes two; a busy machine may need more."""


def run(name: str) -> list[str]:
    """The lines that an example prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def minimal_agent(lines: list[str]) -> None:
    assert {"minimal_agent.py", "policy.toml"} <= set(lines)
    assert lines[lines.index("The README begins with:") + 1] == "# Examples"
    assert lines[-1] == "completed: 1 Response, parked 2 times"


def side_by_side(lines: list[str]) -> None:
    begin, found, end = map(lines.index, ("client: the tests begin", "server: the search ends", "client: the tests end"))
    assert begin < found < end
    assert "server: parked; the model waits for run_tests" in lines[:found]
    assert re.fullmatch(r" +\w+\.md, line \d+", lines[found + 1])
    assert lines[-1] == "model:  The tests say: 3 passed."


def reconnecting(lines: list[str]) -> None:
    cuts = [line for line in lines if line.startswith("network: cut after")]
    assert len(cuts) == 5
    assert lines[-3] == "model:   The last task: publish is done"
    assert lines[-2] == "completed after 5 reconnects; runs: {'build': 1, 'check': 1, 'publish': 1}"
    runs = re.findall(r"'(\w+)': (\d+)", lines[-1])
    assert {name for name, _ in runs} >= {"validate", "render", "bill", "store"}
    assert {count for _, count in runs} == {"1"}


def own_model(lines: list[str]) -> None:
    verdicts = [re.fullmatch(r"(\d+) is (too low|too high|right)", line) for line in lines[:-2]]
    assert all(verdicts)
    assert lines[-3:-1] == ["677 is right", "It is 677."]
    assert lines[-1].startswith(f"{len(verdicts)} guesses, in 1 Response")


def policy(lines: list[str]) -> None:
    refused, waits, given, ledger = lines
    assert refused.startswith("refused: content_policy_violation: input[1].content: ")
    assert "card-number" in refused
    assert "4111" not in refused
    assert waits.startswith("read_config still waits")
    assert given == "The model was given: region = eu-west-1, key = [redacted:aws-access-key]"
    assert ledger.startswith("in the ledger: 1 Response, completed")


CHECKS = {check.__name__: check for check in (minimal_agent, side_by_side, reconnecting, own_model, policy)}


@pytest.mark.parametrize("name", CHECKS)
def test_it_prints_what_it_claims(name: str) -> None:
    CHECKS[name](run(f"{name}.py"))


def test_all_examples_are_checked_and_listed() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert {name.removesuffix(".py") for name in names if name.endswith(".py")} == set(CHECKS)
    linked = set(re.findall(r"\]\((.+?)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    assert linked == names - {"README.md"}


def test_the_minimal_agent_is_small() -> None:
    lines = (EXAMPLES / "minimal_agent.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip() and not line.startswith(('"""', "#"))]) <= 30
