"""How many examples property tests try. ``SOSTENUTO_EXAMPLES=5000`` plays the big machine at length."""

import os
from typing import Final

from hypothesis import HealthCheck, settings

AT_LENGTH: Final = "SOSTENUTO_EXAMPLES"
SMALL: Final = 10
"""At length, tests that are not the big machine try so many times as many examples as else."""


def examples(count: int, *, big: bool = False) -> settings:
    """Settings for a property test: ``count`` examples, more at length; as many as are asked for if it is ``big``."""
    wanted = os.environ.get(AT_LENGTH)
    if wanted is not None:
        count = int(wanted) if big else min(int(wanted), count * SMALL)
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(max_examples=count, deadline=None, suppress_health_check=checks, report_multiple_bugs=False)
