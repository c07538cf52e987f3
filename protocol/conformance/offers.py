"""What a server offers, found out by short conversations: one for each capability.

A server that refuses, or does something else, does not offer it; the reason is kept. What it offers and does badly is for the
laws and the probes to find.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from attrs import evolve, frozen

from ..events import TERMINAL
from .adapters import Adapter
from .capabilities import ALL, Capabilities
from .probes.clients import HttpClient, SocketClient
from .probes.notes import NotOffered
from .probes.talk import Talk, call, say, speak
from .probes.turn import Refusal, Turn
from .runner import Runner, run_plainly
from .story import ConformanceError
from .transport import Books, Closed, Frame, Refused, Shape, Transport

Ask = Callable[[Talk], Awaitable[None]]
"""Raises whatever it likes if it is not offered."""

SECONDS: Final = 30.0
"""For one answer: a model may be slow, and a server may ignore what it does not know."""

SLOWLY: Final = 20.0
"""Tokens a second of a Response that something is to happen to."""


async def _http(talk: Talk) -> None:
    talk.capabilities = evolve(talk.capabilities, stream=False)
    turn = await (await talk.posting()).open(say("Hello."))
    talk.need((turn.response or {}).get("object") == "response", "the answer is no response object")


async def _stream(talk: Talk) -> None:
    turn = await (await talk.posting()).open(say("Hello."))
    talk.need(turn.of("response.created"), "no events came")


async def _socket(talk: Talk) -> None:
    turn = await (await talk.socket()).open(say("Hello."))
    talk.need(turn.response is not None, "the Response does not end")


async def _append(talk: Talk) -> None:
    client = await talk.socket()
    turn = await client.open(call(), continuation="append")
    talk.need(turn.of("response.done"), "the Response ends at a call: there is no response.done")


async def _lanes(talk: Talk) -> None:
    turn = await (await talk.socket()).open(say("Hello."), stream_id="lane-1")
    talk.need(all(frame.get("stream_id") == "lane-1" for frame in turn.events), "events have no stream_id")


async def _chain(talk: Talk) -> None:
    client = await talk.client()
    turn = await client.open(say("Hello."))
    await client.go_on(turn, {"type": "message", "role": "user", "content": "And then?"})


async def _store(talk: Talk) -> None:
    client = await talk.posting()
    turn = await client.open(say("Hello."), store=True)
    await client.get(f"/responses/{turn.response_id}")


async def _input_items(talk: Talk) -> None:
    client = await talk.posting()
    turn = await client.open(say("Hello."), store=True)
    await client.get(f"/responses/{turn.response_id}/input_items")


async def _warm_up(talk: Talk) -> None:
    turn = await (await talk.socket()).open(say("Hello."), generate=False)
    talk.need(turn.response is not None and not turn.items, "generate: false generates")


async def _custom(talk: Talk) -> None:
    turn = await (await talk.client()).open(call(kind="custom_tool_call"))
    talk.need(any(item["type"] == "custom_tool_call" for item in turn.items), "no custom tool is called")


async def _slow(client: SocketClient, kind: str, name: str) -> list[Frame]:
    """What is heard when a frame of type ``kind`` names a Response that samples."""
    await client.send(client.opening(speak(200), tokens_per_second=SLOWLY))
    [created] = (await client.until("response.created"))[-1:]
    said = {} if kind == "response.cancel" else {"input": "In English, please."}
    await client.send({"type": kind, name: created["response"]["id"], **said})
    return await client.until("error", "response.cancelled", *TERMINAL)


async def _steer(talk: Talk) -> None:
    heard = await _slow(await talk.socket(), "response.steer", "previous_response_id")
    accepted = any(frame["type"] == "response.steer.accepted" for frame in heard)
    talk.need(accepted, f"a steer is answered with {heard[-1]['type']}")


async def _cancel(talk: Talk) -> None:
    heard = await _slow(await talk.socket(), "response.cancel", "response_id")
    talk.need(heard[-1]["type"] not in ("error", "response.completed"), f"a cancel is answered with {heard[-1]['type']}")


async def _attach(talk: Talk) -> None:
    if talk.shape == "http":
        client = await talk.posting()
        turn = await client.open(say("Hello."), store=True)
        exchange = await client.request("GET", f"/responses/{turn.response_id}?stream=true&starting_after=0")
        talk.need(exchange.status == 200, f"events that were: answered with {exchange.status}")
        answer = await client.events(exchange)
        talk.need(isinstance(answer, Turn) and answer.events, "no events come again")
        return
    client_, other = await talk.socket(), await talk.socket()
    turn = await client_.open(say("Hello."))
    await other.send({"type": "response.attach", "response_id": turn.response_id})
    [heard] = (await other.until("response.attach.accepted", "error"))[-1:]
    talk.need(heard["type"] != "error", "an attach is refused")


async def _background(talk: Talk) -> None:
    talk.capabilities = evolve(talk.capabilities, stream=False)
    client = await talk.posting()
    answer = await client.ask(client.opening(say("Hello."), background=True, store=True))
    talk.need(not isinstance(answer, Refusal), "background: true is refused")
    talk.need(isinstance(answer, Turn) and answer.status in ("queued", "in_progress"), "the answer waits for the end")


async def _conversations(talk: Talk) -> None:
    client: HttpClient = await talk.posting()
    answer = await client.call("POST", "/conversations", {})
    talk.need(answer.status == 200, f"answered with {answer.status}")


HTTP: Final[tuple[Shape, ...]] = ("http",)
SOCKETS: Final[tuple[Shape, ...]] = ("create", "append")
CHAINS: Final[tuple[Shape, ...]] = ("create", "http")
ANY: Final[tuple[Shape, ...]] = ("create", "http", "append")

SHAPES_ASKED: Final[Mapping[Shape, Ask]] = {"http": _http, "create": _socket, "append": _append}

ASKED: Final[Mapping[str, tuple[Ask, tuple[Shape, ...]]]] = {
    "stream": (_stream, HTTP),
    "lanes": (_lanes, SOCKETS),
    "chain": (_chain, CHAINS),
    "store": (_store, HTTP),
    "input_items": (_input_items, HTTP),
    "warm_up": (_warm_up, SOCKETS),
    "steer": (_steer, ("create",)),
    "cancel": (_cancel, SOCKETS),
    "attach": (_attach, ANY),
    "background": (_background, HTTP),
    "custom": (_custom, ANY),
    "conversations": (_conversations, HTTP),
}
"""How each is asked for, in the first of these shapes that is offered."""


def ask(
    runner: Runner,
    adapter: Adapter,
    *,
    known: Mapping[str, bool],
    key: str | None = None,
    on_asked: Callable[[str], None] = lambda _: None,
) -> tuple[Capabilities, dict[str, str]]:
    """Ask for all that is not ``known``. Returns what is offered, and the reasons of what is not."""
    found, reasons = dict(known), {name: "declared" for name, offered in known.items() if not offered}
    for name in (*SHAPES_ASKED, *ASKED):
        if name in found:
            continue
        on_asked(name)
        asked, shapes = _how(name)
        shape = next((one for one in shapes if one == name or found[one]), None)
        why = f"needs {' or '.join(shapes)}" if shape is None else _why_not(runner, _Asking(adapter, asked, shape, key), found)
        found[name] = why is None
        reasons |= {} if why is None else {name: why}
    return Capabilities(**found), reasons


def _how(name: str) -> tuple[Ask, tuple[Shape, ...]]:
    for shape, asked in SHAPES_ASKED.items():
        if shape == name:
            return asked, (shape,)
    return ASKED[name]


@frozen
class _Asking:
    adapter: Adapter
    asked: Ask
    shape: Shape
    key: str | None


def _why_not(runner: Runner, asking: _Asking, found: Mapping[str, bool]) -> str | None:
    keys = () if asking.key is None else (asking.key,)

    async def scene(transport: Transport, _: Books) -> None:
        offered = evolve(ALL, **found)
        talk = Talk(transport, asking.shape, asking.adapter, capabilities=offered, keys=keys, seconds=SECONDS)
        talk.only_asks = True
        try:
            await asking.asked(talk)
        finally:
            await talk.aclose()

    try:
        run_plainly(runner, scene)
    except ConnectionRefusedError:
        raise
    except Exception as error:
        return _words(error)
    return None


def _words(error: Exception) -> str:
    """Why something is not offered, in a line."""
    match error:
        case ConformanceError():
            return error.message
        case Refused():
            return f"the WebSocket's handshake was answered with {error.status}"
        case Closed() | NotOffered() | TimeoutError():
            return str(error) or "the server closed the connection"
        case _:
            return f"{type(error).__name__}: {error}"


def declared(without: Collection[str], having: Collection[str]) -> dict[str, bool]:
    """What need not be asked for. Raises ``ValueError`` for a name that there is not."""
    ALL.without([*without, *having])
    return {**dict.fromkeys(having, True), **dict.fromkeys(without, False)}
