"""No probe finds anything wrong with our server, in any of its shapes, over any transport; and they can find something."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
from attrs import asdict, frozen

from engine import Config, Services, listening
from engine.models import load_model
from engine.server import Server
from engine.testing import memory_server, virtually
from protocol.codec import encode, parse
from protocol.conformance.adapters import Scripted
from protocol.conformance.capabilities import ALL
from protocol.conformance.laws import LAWS
from protocol.conformance.probes import PROBES, NotOffered, run_probe
from protocol.conformance.sockets import socket_transport
from protocol.conformance.story import ConformanceError
from protocol.conformance.transport import Exchange, Frame, ServerSentEvent, Shape, Socket, Transport
from protocol.errors import ProtocolError

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


# ---- what they find


Change = Callable[[Frame], Sequence[Frame] | None]
"""What a client hears instead of a frame; None: the frame, which may have been changed."""


@frozen
class Bent:
    """A transport to a server that says, or hears, something else."""

    inner: Transport
    says: Change = lambda _: None
    hears: Change = lambda _: None
    exact = True

    async def connect(self, *, key: str | None = None, beta: str | None = None) -> "BentSocket":
        return BentSocket(await self.inner.connect(key=key, beta=beta), self)

    async def request(self, method: str, path: str, body: bytes | None = None, **options: Any) -> "BentExchange":
        if body is not None:
            body = sent(body.decode(), self.hears)[0].encode()
        return BentExchange(await self.inner.request(method, path, body, **options), self)

    async def settle(self) -> None:
        await self.inner.settle()


def changed(frame: Any, change: Change) -> Sequence[Frame]:
    instead = change(frame)
    return [frame] if instead is None else instead


def sent(message: str, change: Change) -> list[str]:
    """What is no JSON is mended, as some parsers do, where something is changed at all."""
    try:
        frame = parse(message)
    except ProtocolError:
        return [mended(message) if change is leniently else message]
    return [encode(one).decode() for one in changed(frame, change)]


def mended(message: str) -> str:
    return message.replace("NaN", "0").replace("\\ud800", "\\ufffd")


def leniently(frame: Frame) -> None:
    """Nothing: JSON is taken as it is."""


class BentSocket:
    def __init__(self, inner: Socket, bent: Bent) -> None:
        self._inner = inner
        self._bent = bent
        self._ready: list[Frame] = []

    async def send(self, message: str | bytes) -> None:
        for frame in [message] if isinstance(message, bytes) else sent(message, self._bent.hears):
            await self._inner.send(frame)

    async def receive_text(self) -> str:
        while not self._ready:
            self._ready += changed(parse(await self._inner.receive_text()), self._bent.says)
        return encode(self._ready.pop(0)).decode()

    async def drop(self) -> None:
        await self._inner.drop()

    async def aclose(self) -> None:
        await self._inner.aclose()


class BentExchange:
    def __init__(self, inner: Exchange, bent: Bent) -> None:
        self._inner = inner
        self._bent = bent
        self.status = inner.status
        self.headers = inner.headers

    async def read(self) -> bytes:
        return encode(changed(parse((await self._inner.read()).decode()), self._bent.says)[0])

    async def next_event(self) -> ServerSentEvent | None:
        while (event := await self._inner.next_event()) is not None and event.data != "[DONE]":
            for frame in changed(parse(event.data), self._bent.says):
                return ServerSentEvent(encode(frame).decode(), event.event)
        return event

    async def drop(self) -> None:
        await self._inner.drop()


def another_id_when_done(frame: Frame) -> None:
    if frame.get("type") == "response.output_item.done":
        frame["item"]["id"] += "_again"


def numbers_from_one(frame: Frame) -> None:
    if "sequence_number" in frame:
        frame["sequence_number"] += 1


def no_output_at_the_end(frame: Frame) -> None:
    if frame.get("type") == "response.completed":
        frame["response"]["output"] = []


def no_details(frame: Frame) -> None:
    if frame.get("type") == "response.completed":
        del frame["response"]["usage"]["input_tokens_details"]


def all_at_index_0(frame: Frame) -> None:
    if "output_index" in frame:
        frame["output_index"] = 0


def orphans_are_dropped(frame: Frame) -> None:
    frame["input"] = [item for item in frame.get("input", ()) if item.get("call_id") != "call_nobody_made"]


def cut_is_called_complete(frame: Frame) -> None:
    for item in [frame.get("item", {}), *frame.get("response", {}).get("output", ())]:
        item["status"] = "completed" if item.get("status") == "incomplete" else item.get("status")


def numbers_are_doubles(frame: Frame) -> None:
    for tool in frame.get("response", {}).get("tools", ()):
        for schema in tool["parameters"]["properties"].values():
            schema["maximum"] = float(schema["maximum"])


def silence_for_what_is_no_json(frame: Frame) -> Sequence[Frame] | None:
    return [] if frame.get("code") == "invalid_json" else None


def silence_for_what_is_unknown(frame: Frame) -> Sequence[Frame] | None:
    return [] if frame.get("code") == "unknown_event" else None


def done_behind_the_end(frame: Frame) -> Sequence[Frame] | None:
    return [frame, {"type": "response.done", "response": {}}] if frame.get("type") == "response.completed" else None


def errors_are_flat(frame: Frame) -> None:
    if frame.get("type") == "error":
        del frame["error"]


def it_generates(frame: Frame) -> None:
    frame.pop("generate", None)


def one_lane(frame: Frame) -> None:
    frame.pop("stream_id", None)


def the_first_output_counts_for_all(frame: Frame) -> None:
    outputs = [item for item in frame.get("input", ()) if item.get("type") == "function_call_output"]
    for item in outputs:
        item["output"] = outputs[-1]["output"]


SAYS = [
    ("item ids stay the same", "create", another_id_when_done),
    ("item ids stay the same", "http", another_id_when_done),
    ("sequence numbers", "append", numbers_from_one),
    ("sequence numbers", "http", numbers_from_one),
    ("the end has all the output", "create", no_output_at_the_end),
    ("usage is there", "http", no_details),
    ("output index is the place", "append", all_at_index_0),
    ("arguments cut by the token limit", "http", cut_is_called_complete),
    ("a text cut by the token limit", "create", cut_is_called_complete),
    ("large integers in a schema", "http", numbers_are_doubles),
    ("a frame that nobody knows", "create", silence_for_what_is_unknown),
    ("what is no json", "append", silence_for_what_is_no_json),
    ("a bad frame beside a stream", "create", silence_for_what_is_no_json),
    ("nothing follows the end", "create", done_behind_the_end),
    ("the errors shape", "append", errors_are_flat),
    ("a stream id on every event", "create", one_lane),
]
HEARS = [
    ("nan is no json", "http", leniently),
    ("nan is no json", "create", leniently),
    ("an orphan output", "http", orphans_are_dropped),
    ("an orphan output", "append", orphans_are_dropped),
    ("a warm up", "create", it_generates),
    ("call ids used again in a later turn", "http", the_first_output_counts_for_all),
    ("call ids used again in a later turn", "create", the_first_output_counts_for_all),
]


@pytest.mark.parametrize(("name", "shape", "change"), SAYS)
def test_they_find_what_a_server_says_wrongly(name: str, shape: Shape, change: Change) -> None:
    found(name, shape, says=change)


@pytest.mark.parametrize(("name", "shape", "change"), HEARS)
def test_they_find_what_a_server_does_wrongly(name: str, shape: Shape, change: Change) -> None:
    found(name, shape, hears=change)


def found(name: str, shape: Shape, **changes: Change) -> None:
    """By the probe itself: as for a stranger's, so that it is not the grammar that finds it."""

    async def main() -> None:
        async with memory_server() as server:
            with pytest.raises(ConformanceError) as caught:
                await run_probe(PROBES[name], Bent(server, **changes), shape, Stranger())
            silent = "nothing more in" in str(caught.value)
            assert caught.value.law == ("L12" if silent else PROBES[name].law)
            assert "->" in str(caught.value)

    virtually(main)


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
