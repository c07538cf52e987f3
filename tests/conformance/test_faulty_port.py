"""The faulty server on a port, held against the laws by its URL as anybody's server is."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from protocol.conformance.run import Plan, check

from ..docs.blocks import ROOT


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.conformance.faulty_port", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1].removesuffix("/v1")
        finally:
            process.kill()


PROBES = ["sequence numbers", "the errors shape", "usage is there"]


def test_a_sound_one_is_found_sound() -> None:
    with served() as url:
        report = check(url, plan=Plan(examples=2, probes=PROBES))
    assert not report.broken
    assert report.shapes == ["append", "create", "http"]


@pytest.mark.parametrize(
    ("fault", "broken"),
    [("numbers begin at one", {"L3", "sequence numbers"}), ("usage is zero", {"L15", "usage is there"})],
)
def test_a_faulty_one_is_found_faulty(fault: str, broken: set[str]) -> None:
    with served(fault) as url:
        report = check(url, plan=Plan(examples=0, probes=PROBES))
    assert not report.reasons  # what is offered badly is offered
    assert broken <= set(report.broken)
