"""``simulate``: how long a simulation takes that takes hours in real time."""

import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median
from typing import Final

from .process import unpinned
from .report import Row, Sizes, quartiles

CALLS: Final = 50
ROLLOUTS: Final = 1_000
SECONDS: Final = 60.0
"""For so many."""
COMMAND: Final = "from engine.cli import main; main()"
OPTIONS: Final = (
    "--calls",
    CALLS,
    "--speeds",
    1000,
    "--rtt",
    20,
    "--shapes",
    "append",
    "--tool-seconds",
    "exponential:2",
    "--json",
)


def simulate(sizes: Sizes) -> Iterator[Row]:
    """Rollouts of as many users at once; fewer are scaled up."""
    with unpinned():
        seconds = [_seconds(sizes.simulated, seed) * ROLLOUTS / sizes.simulated for seed in range(sizes.repetitions)]
    yield Row(
        name="simulate",
        what=f"{ROLLOUTS:,} rollouts of {CALLS} calls in virtual time, all at once",
        value=median(seconds),
        unit="s",
        spread=quartiles(seconds),
        target=SECONDS,
        detail={"rollouts": sizes.simulated},
    )


def _seconds(users: int, seed: int) -> float:
    """With the start of Python, which is a second of it."""
    options = [str(one) for one in ("simulate", "--users", users, "--seed", seed, *OPTIONS)]
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", COMMAND, *options], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started
