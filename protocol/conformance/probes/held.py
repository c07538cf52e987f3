"""Responses that outlive their connections: joined again, from a cursor."""

from ..transport import Frame
from .base import probe
from .clients import SocketClient
from .talk import NotOffered, Talk, Turn, call, quote, say, speak
from .turn import Refusal

HUGE = 2**53
NO_CURSOR = ("invalid_cursor",)


@probe("L5", basis="ours", shapes=["append"], needs=["attach"])
async def the_same_output_after_a_lost_acknowledgement(talk: Talk) -> None:
    """The socket drops before the client has read that its output was accepted. It joins again with its cursor, and sends
    the same: that is a ``duplicate``, the tool need not run again, and the model has read it once (docs/append.md,
    *Sockets come and go*)."""
    client = await talk.socket()
    turn = await client.begin(call("a"), quote("a"), call("b"), quote("b"))
    await client.send(client.following(turn, *turn.answers("from a")))
    await talk.transport.settle()
    await client.drop()
    again = await talk.socket()
    await _attach(again, turn, turn.last_number)
    seen = await again.until("response.done")
    accepted = [frame["append"] for frame in seen if frame["type"] == "response.append.accepted"]
    talk.need([one["duplicate"] for one in accepted] == [False], f"what was sent before the drop: {accepted}")
    await again.send(again.following(turn, *turn.answers("from a")))
    repeated = (await again.until("response.append.accepted"))[-1]
    talk.need(repeated["append"]["duplicate"] is True, f"the same output again: {repeated['append']}")
    made = [frame["item"] for frame in seen if frame["type"] == "response.output_item.done"]
    talk.need(["from a" in str(item) for item in made] == [True, False], f"the model went on with {made}")


@probe("L9", basis="ours", shapes=["append"], needs=["attach"])
async def attach_at_the_edges(talk: Talk) -> None:
    """A client joins at -1, at the last event, one behind it, and far away. At -1 all events come again, as they were; at
    the last one none does; a cursor that no event has is refused with ``invalid_cursor``, and so is one below -1
    (docs/append.md)."""
    client = await talk.socket()
    turn = await client.begin(say("I look."), call(), quote())
    last = turn.last_number
    again = await talk.socket()
    await _attach(again, turn, -1)
    replayed = await again.until("response.done")
    talk.need(replayed == list(turn.events), "the events are not the same when they come again")
    for cursor in (last + 1, HUGE, -2):
        answer = await again.ask(_attaching(turn, cursor))
        again.must_refuse(answer, [*NO_CURSOR, "invalid_value"])
    accepted = await _attach(again, turn, last)
    talk.need(accepted.get("last_sequence_number") == last, f"the last event is {accepted.get('last_sequence_number')}")
    more = await again.quiet()
    talk.need(not more, f"behind the last event came {[frame['type'] for frame in more]}")
    talk.need_quote(await again.go_on(turn, *turn.answers("joined")), "joined")


@probe("L9", basis="ours", shapes=["append"], needs=["attach"])
async def a_drop_in_the_midst_of_an_answer(talk: Talk) -> None:
    """The socket drops while the model speaks. It speaks on, and who joins with the cursor gets each further event, once."""
    client = await talk.socket()
    await client.send(client.opening(speak(60), say("Done."), tokens_per_second=30))
    seen: list[Frame] = []
    while len(seen) < 12:
        seen.append(await client.hear())
    await client.drop()
    again = await talk.socket()
    response_id = seen[0]["response"]["id"]
    await again.send({"type": "response.attach", "response_id": response_id, "starting_after": 11})
    await again.until("response.attach.accepted")
    rest = await again.ends()
    numbers = [frame["sequence_number"] for frame in (*seen, *rest)]
    talk.need(numbers == [*range(len(numbers))], f"the numbers are {numbers}")


@probe("L9", basis="ours", shapes=["append"], needs=["attach"])
async def two_who_attach(talk: Talk) -> None:
    """Another client joins: the first is told ``attached_elsewhere``, and its output is refused with ``stale_epoch``; the
    second one's is taken (docs/append.md, *One client at a time*)."""
    first, second = await talk.socket(), await talk.socket()
    turn = await first.begin(call(), quote())
    await _attach(second, turn, turn.last_number)
    lost = (await first.until("error"))[-1]
    talk.check_refusal(Refusal(frame=lost, status=lost.get("status")), ["attached_elsewhere"])
    await first.refused(turn, *turn.answers("from the first"), codes=["stale_epoch"])
    talk.need_quote(await second.go_on(turn, *turn.answers("from the second")), "from the second")


@probe("L9", basis="OpenAI", shapes=["http"], needs=["background", "stream"])
async def starting_after_at_the_edges(talk: Talk) -> None:
    """A background stream is taken up by ``GET …?stream=true&starting_after=N``: behind N come exactly the events above
    N, as they were (OpenAI, background mode). Behind the last one nothing comes but the end of the stream; a number that
    no event has is an error or an empty stream."""
    client = await talk.posting()
    turn = await client.open(say("In the background."), background=True, stream=True)
    events = talk.need_events(turn)
    last = turn.last_number
    for cursor in (0, 1, last - 1):
        rest = await _joined(talk, turn, cursor)
        talk.need(rest == list(events[cursor + 1 :]), f"behind {cursor} come other events than before")
    talk.need(await _joined(talk, turn, last) == [], "behind the last event come more")
    for cursor in (last + 1, HUGE):
        exchange = await client.request("GET", f"/responses/{turn.response_id}?stream=true&starting_after={cursor}")
        if talk.strict or exchange.status >= 400:
            answer = await client.read(exchange)
            talk.check_refusal(Refusal(frame=answer.json, status=answer.status), NO_CURSOR)
        else:
            none = await client.events(exchange)
            talk.need(isinstance(none, Turn) and not none.events, f"behind {cursor}, which is not there, come events")


@probe("L12", basis="OpenAI", shapes=["http"], needs=["background"])
async def a_poll_in_the_background(talk: Talk) -> None:
    """``background: true`` is answered at once with a Response that is under way; polled, it comes to its end, with its
    output (OpenAI, background mode)."""
    client = await talk.posting()
    turn = await client.open(say("Done behind your back."), background=True, stream=False, tokens_per_second=20)
    talk.need(turn.status in ("queued", "in_progress"), f"it began as {turn.status}")
    response = await client.until_ended(turn.response_id)
    talk.need(response["status"] == "completed", f"it ended as {response['status']}")
    told = Turn(response_id=turn.response_id, response=response)
    if told.text != "Done behind your back.":
        raise talk.beyond(f"say that it is done; it said {told.text}")


@probe("L14", basis="OpenAI", shapes=["http"], needs=["store"])
async def what_is_stored(talk: Talk) -> None:
    """``GET`` gives the Response as it ended, ``input_items`` what it was asked, and after ``DELETE`` there is nothing,
    neither to see nor to continue (OpenAI, ``responses`` endpoints)."""
    client = await talk.posting()
    frame = client.opening(say("Kept."))
    answer = await client.ask(frame)
    if isinstance(answer, Refusal):
        raise talk.failure(f"refused: {answer.message}")
    stored = await client.get(f"/responses/{answer.response_id}")
    talk.need(stored.get("output") == (answer.response or {}).get("output"), f"the output is stored as {stored.get('output')}")
    if talk.capabilities.input_items:
        listed = await client.get(f"/responses/{answer.response_id}/input_items")
        asked = [item.get("role") for item in listed.get("data") or ()]
        talk.need(asked == [item["role"] for item in frame["input"]], f"input_items are {listed}")
    gone = await client.call("DELETE", f"/responses/{answer.response_id}")
    talk.need(gone.status in (200, 204), f"DELETE was answered with {gone.status}")
    after = await client.call("GET", f"/responses/{answer.response_id}")
    talk.need(after.status == 404, f"what was deleted is answered with {after.status}")
    await client.refused_opening(
        say("Go on."), codes=["previous_response_not_found"], documented=True, previous_response_id=answer.response_id
    )


def _attaching(turn: Turn, cursor: int) -> Frame:
    return {"type": "response.attach", "response_id": turn.response_id, "starting_after": cursor}


async def _attach(client: SocketClient, turn: Turn, cursor: int) -> Frame:
    await client.send(_attaching(turn, cursor))
    return (await client.until("response.attach.accepted"))[-1]


async def _joined(talk: Talk, turn: Turn, cursor: int) -> list[Frame]:
    client = await talk.posting()
    exchange = await client.request("GET", f"/responses/{turn.response_id}?stream=true&starting_after={cursor}")
    talk.need(exchange.status == 200, f"starting_after={cursor} was answered with {exchange.status}")
    if "event-stream" not in exchange.headers.get("content-type", ""):
        await exchange.drop()
        raise NotOffered("GET with stream=true is not answered with events")
    rest = await client.events(exchange)
    return list(rest.events) if isinstance(rest, Turn) else [rest.frame]
