"""Every probe finds nothing wrong with our server, in each of its shapes; and each can find something."""

import pytest

from engine.testing import memory_server, virtually
from protocol.conformance.adapters import Scripted
from protocol.conformance.probes import PROBES, run_probe
from protocol.conformance.transport import Shape

ALL = [(name, shape) for name, one in PROBES.items() for shape in one.shapes]


@pytest.mark.parametrize(("name", "shape"), ALL)
def test_probes_find_nothing_wrong_with_ours(name: str, shape: Shape) -> None:
    async def main() -> None:
        async with memory_server() as server:
            await run_probe(PROBES[name], server, shape, Scripted())

    virtually(main)
