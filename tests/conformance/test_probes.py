"""No probe finds anything wrong with our server, in any of its shapes, over any transport. What they find: ``test_faults``."""

import pytest
import trio
from attrs import asdict

from engine import Config, Services, listening
from engine.models import load_model
from engine.server import Server
from engine.testing import memory_server, virtually
from protocol.conformance.adapters import Scripted
from protocol.conformance.capabilities import ALL
from protocol.conformance.laws import LAWS
from protocol.conformance.probes import PROBES, NotOffered, run_probe
from protocol.conformance.sockets import socket_transport
from protocol.conformance.transport import Shape

KEYS = ("hers", "a-strangers")
OURS = Config(keys=KEYS, thread_bytes=2**40)  # no threads in virtual time
EACH = [(name, shape) for name, one in PROBES.items() for shape in one.shapes]
LARGE = (
    "sizes around the limit",
    "beyond the hard limit",
    "a large output",
    "a reader that stops",
    "a stream that nobody reads",
)


class Stranger(Scripted):
    """A server that obeys like ours, and is held to OpenAI's documented words only."""

    codes = False


@pytest.mark.parametrize(("name", "shape"), EACH)
def test_probes_find_nothing_wrong_with_ours(name: str, shape: Shape) -> None:
    async def main() -> None:
        async with memory_server(config=OURS) as server:
            await run_probe(PROBES[name], server, shape, Scripted(), keys=KEYS)

    virtually(main)


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shape in EACH if name not in LARGE])
def test_nor_when_they_take_it_for_a_strangers(name: str, shape: Shape) -> None:
    """With one key, and no streams over HTTP."""

    async def main() -> None:
        async with memory_server(config=Config(thread_bytes=2**40)) as server:
            try:
                await run_probe(PROBES[name], server, shape, Stranger(), capabilities=ALL.without(["stream"]))
            except NotOffered:
                assert shape == "http"

    virtually(main)


@pytest.mark.parametrize("shape", ["append", "create", "http"])
async def test_nor_over_sockets(shape: Shape) -> None:
    names = ["only one of two outputs", "the grammar of a rollout", "what is no json", "a large output", "the errors shape"]
    names += ["two clients at once", "a reader that stops", "a stream that nobody reads", "a ping while streaming"]
    model = load_model("scripted")
    server = Server(Services(models={model.name: model}, config=Config(grace_seconds=0.1)))
    async with listening(server) as port, socket_transport(f"http://127.0.0.1:{port}") as transport:
        for name in names:
            if shape in PROBES[name].shapes:
                await run_probe(PROBES[name], transport, shape, Scripted())


def test_each_says_what_is_right_and_by_which_law() -> None:
    for one in PROBES.values():
        assert one.law in LAWS, one.name
        assert len(one.right) > 60, one.name
        assert one.shapes, one.name
        assert one.needs <= set(asdict(ALL)), one.name


def test_a_probe_leaves_nothing_open() -> None:
    """Also when it is cancelled in the midst."""

    async def main() -> None:
        async with memory_server() as server:
            with trio.move_on_after(0.5) as scope:
                await run_probe(PROBES["two creates on one lane"], server, "create", Scripted())
            assert scope.cancelled_caught
            await trio.sleep(1)
            await server.settle()
            assert not server.books.engine.live

    virtually(main)


def test_what_a_server_does_not_offer_is_not_asked_for() -> None:
    async def main() -> None:
        async with memory_server() as server:
            with pytest.raises(NotOffered, match="steer"):
                await run_probe(PROBES["a steer"], server, "create", Scripted(), capabilities=ALL.without(["steer"]))

    virtually(main)
