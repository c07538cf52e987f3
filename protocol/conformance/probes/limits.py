"""Sizes, and readers that stop."""

from collections.abc import Sequence

import trio

from ...events import TERMINAL
from ...limits import HARD_FRAME_BYTES, SOFT_FRAME_BYTES
from ..transport import Closed, Frame
from .base import SOCKETS, probe
from .talk import Talk, call, quote, speak
from .turn import Refusal

LARGE = 3 * 512 * 1024
"""More than the 1 MiB that WebSocket libraries take if they are not told otherwise; less than OpenAI's 10 MiB of text."""
TALE = 4000
"""Tokens whose events are more than what lies between a server and a client that does not read."""


@probe("L16", basis="OpenAI")
async def a_large_output(talk: Talk) -> None:
    """A tool has read a file of 1.5 MiB. OpenAI takes texts of 10 MiB; libraries of WebSockets and of HTTP take 1 MiB or
    less unless they are told otherwise, and close."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    last = await client.go_on(turn, *turn.answers("the beginning\n" + "a line of it\n" * (LARGE // 13)))
    talk.need_completed(last)
    talk.need_quote(last, "the beginning")


@probe("L16", basis="ours")
async def sizes_around_the_limit(talk: Talk) -> None:
    """A message of exactly 16 MiB is taken, one of a byte more is answered with ``message_too_large``, and nothing is
    lost: the connection lives, and the call takes a shorter output (docs/append.md, *Size*). A server with a lower limit
    has to say so, too, and not close."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    (short,) = turn.answers("short enough")
    frame = client.following(turn, {**short, "output": ""})
    room = SOFT_FRAME_BYTES - client.size_of(frame)
    *before, empty = frame["input"]
    answer = await client.ask({**frame, "input": [*before, {**empty, "output": "x" * (room + 1)}]})
    if talk.strict or isinstance(answer, Refusal):
        client.must_refuse(answer, ["message_too_large"])
        if talk.strict:  # a field that nobody reads makes it as long as it may be
            short["note"] = "x" * (room - len('"note":"",') - len(short["output"]))
            talk.need(client.size_of(client.following(turn, short)) == SOFT_FRAME_BYTES, "the probe has miscounted")
        last = await client.go_on(turn, short)
        talk.need_quote(last, "short enough")


@probe("L16", basis="ours", shapes=["append"])
async def beyond_the_hard_limit(talk: Talk) -> None:
    """What is larger than 32 MiB closes the socket, with 1009 where the library tells it; the Response is still there for
    a new one (docs/append.md, *Size*)."""
    client = await talk.socket()
    turn = await client.begin(call(), quote())
    try:
        await client.send(client.following(turn, *turn.answers("x" * (HARD_FRAME_BYTES + 1))))
        await client.quiet()
    except Closed:
        talk.story.did(client.name, "was closed")
    else:
        talk.need(not talk.strict, "the socket is still open")
    code = getattr(client.socket, "close_code", None)
    talk.need(code in (None, 1009), f"closed with {code}")
    again = await talk.socket()
    await again.send({"type": "response.attach", "response_id": turn.response_id, "starting_after": turn.last_number})
    await again.until("response.attach.accepted")
    talk.need_quote(await again.go_on(turn, *turn.answers("short enough")), "short enough")


@probe("L11", basis="ours", shapes=SOCKETS)
async def a_reader_that_stops(talk: Talk) -> None:
    """A client stops reading in the midst of a long answer. Others are served as ever; and when it reads again, the rest
    is there, without a gap (docs/append.md, *Slow readers*)."""
    stopped, other = await talk.socket(), await talk.socket()
    await stopped.send(stopped.opening(speak(TALE)))
    before = await stopped.until("response.created")
    await trio.sleep(talk.moment)
    turn = await other.begin(call(), quote())
    talk.need_quote(await other.go_on(turn, *turn.answers("served as ever")), "served as ever")
    events = [*before, *await stopped.ends()]
    _need_all(talk, events)
    talk.need(events[-1]["type"] == "response.completed", f"the long answer ended as {events[-1]['type']}")


@probe("L11", basis="ours", shapes=["http"], needs=["stream"])
async def a_stream_that_nobody_reads(talk: Talk) -> None:
    """The same over HTTP: a stream of events is not read for a while, others are served, and then it goes on where it
    stopped."""
    client = await talk.posting()
    body = {**client.opening(speak(TALE)), "stream": True}
    del body["type"]
    exchange = await client.request("POST", "/responses", body)
    await trio.sleep(talk.moment)
    await (await talk.posting()).still_lives()
    turn = await client.events(exchange)
    if isinstance(turn, Refusal):
        raise talk.failure(f"the stream was an error: {turn.message}")
    _need_all(talk, turn.events)
    talk.need(turn.events[-1]["type"] in TERMINAL, "the stream has no end", "L2")


def _need_all(talk: Talk, events: Sequence[Frame]) -> None:
    """No event is missing, by their numbers; if they have none, by what they say."""
    numbers = [event.get("sequence_number") for event in events if event["type"] != "error"]
    if set(numbers) == {None}:
        said, whole = ("".join(event.get(key, "") for event in events) for key in ("delta", "text"))
        talk.need(said == whole, "deltas are missing behind the stop", "L4")
        return
    talk.need(numbers == [*range(len(numbers))], "events are missing behind the stop", "L3")
