"""Events: what each has, how they are numbered, and that what is said twice is the same."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import trio

from ...events import TERMINAL
from ..transport import Closed, Frame
from .base import SHAPES, SOCKETS, probe
from .clients import HttpClient, SocketClient
from .talk import NotOffered, Pings, Talk, Turn, call, calls, quote, say, speak

DONE = "response.output_item.done"


async def a_rollout(talk: Talk) -> list[Turn]:
    """Something of each kind: a message, a call with arguments, and an answer."""
    client = await talk.client()
    turn = await client.begin(say("I look around."), call("read", '{"path": "README.md"}'), quote())
    return [turn, await client.go_on(turn, *turn.answers("what was read"))]


def responses_of(talk: Talk, turns: Sequence[Turn]) -> list[tuple[list[Frame], Frame]]:
    """The events of each Response, and the object at its end."""
    logs = [list(talk.need_events(turn)) for turn in turns]
    if talk.appends:
        logs = [[event for log in logs for event in log]]
        turns = turns[-1:]
    return [(log, turn.response or {}) for log, turn in zip(logs, turns, strict=True)]


@probe("L3", basis="OpenAI")
async def sequence_numbers(talk: Talk) -> None:
    """Each event has a ``sequence_number``; within a Response they are 0, 1, 2, … (OpenAI, streaming events; they are the
    cursor of ``starting_after``). Servers leave them out, or repeat them (BerriAI/litellm, 28899; Blaizzy/mlx-vlm, 494)."""
    for events, _ in responses_of(talk, await a_rollout(talk)):
        numbers = [event.get("sequence_number") for event in events]
        wrong = next((at for at, number in enumerate(numbers) if number != at), None)
        talk.need(wrong is None, f"event {wrong} has the number {numbers[wrong or 0]}: {events[wrong or 0].get('type')}")


@probe("L4", basis="OpenAI")
async def item_ids_stay_the_same(talk: Talk) -> None:
    """An item has one id: where it is added, in its deltas, where it is done, and in the final output; and no two have
    the same (OpenAI, streaming events: ``item_id``). Servers make a new one for each event (BerriAI/litellm, 36375;
    vllm-project/vllm, 23218)."""
    for events, response in responses_of(talk, await a_rollout(talk)):
        ids: dict[int, str] = {}
        for event in events:
            if "output_index" in event:
                item_id = str(event["item"].get("id") if "item" in event else event.get("item_id"))
                first = ids.setdefault(event["output_index"], item_id)
                same = item_id not in ("", "None") and item_id == first
                talk.need(same, f"{event['type']}: the id {first} has become {item_id}")
        final = [item.get("id") for item in response.get("output") or ()]
        talk.need(final == [ids[index] for index in sorted(ids)], f"the final output has the ids {final}, the events had {ids}")
        talk.need(len(set(final)) == len(final), f"two items have one id: {final}")


@probe("L4", basis="OpenAI")
async def output_index_is_the_place(talk: Talk) -> None:
    """``output_index`` is an item's place in ``response.output``, also where a turn has several (OpenAI, streaming
    events). Servers that say 0 of all make clients join the arguments of parallel calls (BerriAI/litellm, 21337;
    maximhq/bifrost, 1829)."""
    for events, response in responses_of(talk, await a_rollout(talk)):
        done = {event["output_index"]: event["item"].get("id") for event in events if event["type"] == DONE}
        places = {at: item.get("id") for at, item in enumerate(response.get("output") or ())}
        talk.need(done == places, f"items were done at {done}, and are at {places}")


@probe("L4", basis="OpenAI")
async def each_item_is_announced(talk: Talk) -> None:
    """Whatever is in the final output was added, and was done, once each and in this order, also a call without
    arguments, or an item that came in one piece (vllm-project/vllm, 48274; BerriAI/litellm, 36375)."""
    for events, response in responses_of(talk, await a_rollout(talk)):
        for at, item in enumerate(response.get("output") or ()):
            said = [one["type"].rpartition(".")[2] for one in events if "item" in one and one.get("output_index") == at]
            talk.need(said == ["added", "done"], f"of item {at}, a {item.get('type')}, the events say {said}")


@probe("L4", basis="OpenAI")
async def deltas_make_the_whole(talk: Talk) -> None:
    """The deltas of a text, joined, are the text of its ``done``, of its part and of its item; the same holds for
    arguments. Servers leave the last ones empty (agentgateway/agentgateway, 2281), leave out
    ``response.output_text.done`` (ogx-ai/ogx, 5309), or say only the last token (vllm-project/vllm, 30223)."""
    for events, _ in responses_of(talk, await a_rollout(talk)):
        for done in (event for event in events if event["type"] == DONE):
            item, at = done["item"], done["output_index"]
            here = [event for event in events if event.get("output_index") == at]
            deltas = "".join(event["delta"] for event in here if event["type"].endswith((".delta",)))
            parts = item.get("content") or () if item["type"] == "message" else ()
            whole = "".join(part.get("text", "") for part in parts) or item.get("arguments", "")
            talk.need(deltas == whole, f"the deltas of item {at} say {deltas!r}, the item {whole!r}")
            kind = "response.output_text.done" if parts else "response.function_call_arguments.done"
            names = ("text", "arguments", "refusal")
            told = ["".join(str(event.get(name, "")) for name in names) for event in here if event["type"] == kind]
            talk.need("".join(told) == whole, f"{kind} of item {at} says {told}, the item {whole!r}")


@probe("L4", basis="OpenAI")
async def the_end_has_all_the_output(talk: Talk) -> None:
    """``response.completed`` has in ``output`` each item as it was done. Many clients read nothing else, and show an
    empty answer where it is ``[]`` or null (QuantumNous/new-api, 4362; openai/openai-python, 3312; vllm-project/vllm,
    30223)."""
    for events, response in responses_of(talk, await a_rollout(talk)):
        done = [event["item"] for event in events if event["type"] == DONE]
        talk.need(response.get("output") == done, f"the end has the output {response.get('output')}, done were {done}")


@probe("L2", basis="OpenAI")
async def nothing_follows_the_end(talk: Talk) -> None:
    """A Response has one terminal event, its last. On a socket what comes behind it (a ``[DONE]``, a ``response.done`` of
    one's own, a second end after an error) is taken for the next turn's."""
    client = await talk.client()
    turn = await client.open(say("That is all."))
    ends = [event["type"] for event in talk.need_events(turn) if event["type"] in TERMINAL]
    talk.need(ends == [turn.events[-1]["type"]], f"the ends {ends}, and last {turn.events[-1]['type']}")
    if isinstance(client, SocketClient):
        more = await client.quiet()
        talk.need(not more, f"after the end came {[frame.get('type') for frame in more]}")
    await client.still_lives()


@probe("L4", basis="OpenAI")
async def what_begins_has_not_ended(talk: Talk) -> None:
    """``response.created`` and ``response.in_progress`` have a Response that is under way: its status, an empty
    ``output`` and no ``usage``; its id is the same to the end. Some servers send the finished object, and clients stop
    there (github/copilot-sdk, 2010)."""
    for events, response in responses_of(talk, await a_rollout(talk)):
        talk.need(events[0]["type"] == "response.created", f"the first event is {events[0]['type']}")
        for event in events:
            if event["type"] in ("response.created", "response.in_progress"):
                told = {name: event["response"].get(name) for name in ("status", "output", "usage", "id")}
                right = told["status"] in ("queued", "in_progress") and told["output"] == [] and not told["usage"]
                talk.need(right and told["id"] == response.get("id"), f"{event['type']} says {told}")


@probe("L15", basis="OpenAI")
async def usage_is_there(talk: Talk) -> None:
    """Each Response ends with ``usage``: tokens in and out, not 0, a total that is their sum, and both details. Clients
    fail where it is null or lacks the details (openai/openai-agents-python, 1179; BerriAI/litellm, 28899)."""
    for turn in await a_rollout(talk):
        if turn.response is None:
            continue
        usage = turn.response.get("usage") or {}
        counts: list[Any] = [usage.get(name) for name in ("input_tokens", "output_tokens", "total_tokens")]
        talk.need(all(type(count) is int and count > 0 for count in counts), f"usage is {usage}")
        talk.need(counts[0] + counts[1] == counts[2], f"the total is not the sum: {usage}")
        details = (usage.get("input_tokens_details") or {}), (usage.get("output_tokens_details") or {})
        named = "cached_tokens" in details[0] and "reasoning_tokens" in details[1]
        talk.need(named and details[0]["cached_tokens"] <= counts[0], f"the details of usage: {usage}")


@probe("L4", basis="OpenAI")
async def parallel_calls_keep_their_own_arguments(talk: Talk) -> None:
    """Two calls of one turn have their own items, ``call_id``, name and arguments. Servers give both the arguments of
    one, or join them (Soju06/codex-lb, 542; maximhq/bifrost, 1829)."""
    client = await talk.client()
    both = {"calls": [{"name": "read", "arguments": '{"path":"a"}'}, {"name": "write", "arguments": '{"path":"b","text":"c"}'}]}
    turn = await client.begin(both, say("Done."))
    made = [(one["name"], one["arguments"]) for one in turn.calls]
    wanted = [("read", '{"path":"a"}'), ("write", '{"path":"b","text":"c"}')]
    talk.need(len({one["call_id"] for one in turn.calls}) == len(made), f"two calls have one call_id: {turn.calls}")
    if made != wanted:
        raise talk.beyond(f"call {wanted}; it called {made}")
    for name, arguments in made:
        json.loads(arguments)
        talk.need(Counter(made)[name, arguments] == 1, f"a call was made twice: {made}")
    talk.need_completed(await client.go_on(turn, *turn.answers("1", "2")))


@probe("L4", basis="OpenAI")
async def the_grammar_of_a_rollout(talk: Talk) -> None:
    """All events of a rollout with a message, two calls and an answer are in the order that OpenAI documents: created, in
    progress; for each item added, what is inside, done; the end. ``protocol.grammar`` has the rules; one is stricter than
    OpenAI's words: what a model speaks comes one item after the other."""
    client = await talk.client()
    turn = await client.begin(say("I look."), calls("read", "write"), say("Done."))
    talk.need_events(turn)
    await client.go_on(turn, *turn.answers("1", "2"))
    for breach in talk.breaches:
        raise talk.failure(breach.message, breach.law)


@probe("L4", basis="Open Responses", shapes=["http"], needs=["stream"])
async def server_sent_events(talk: Talk) -> None:
    """A stream is ``text/event-stream``; each event's ``event`` line is the ``type`` of its data, which is one line of
    JSON, and the last data is ``[DONE]`` (Open Responses; OpenAI's streams have the first, and clients bear the second)."""
    client = await talk.posting()
    exchange = await client.request("POST", "/responses", {**body_of(client), "stream": True})
    kind = exchange.headers.get("content-type", "")
    talk.need(exchange.status == 200 and kind.startswith("text/event-stream"), f"{exchange.status}, {kind}")
    last = ""
    with talk.patience("a stream"):
        while (event := await exchange.next_event()) is not None:
            last = event.data
            if last != "[DONE]":
                told = json.loads(last).get("type")
                talk.need(event.event == told, f"an event of type {told} has the line event: {event.event}")
    talk.need(last == "[DONE]", f"the last data is {last[:80]}")


@probe("L8", basis="OpenAI", shapes=["http"], needs=["stream"])
async def json_and_events_say_the_same(talk: Talk) -> None:
    """The same request, once as JSON and once as events: the same kinds of items, the same fields of the Response, and of
    a model that obeys the same words (BerriAI/litellm and others translate the two on different ways)."""
    client = await talk.posting()
    streamed = await client.open(say("The same."), stream=True)
    whole = await client.open(say("The same."), stream=False)
    one, other = streamed.response or {}, whole.response or {}
    talk.need(set(one) == set(other), f"fields that only one has: {sorted(set(one) ^ set(other))}")
    if talk.adapter.obeys:
        talk.need(streamed.text == whole.text == "The same.", f"events say {streamed.text!r}, JSON says {whole.text!r}")
    talk.need(one.get("status") == other.get("status"), f"{one.get('status')} and {other.get('status')}")


@probe("L13", basis="OpenAI", shapes=SOCKETS, needs=["lanes"])
async def a_stream_id_on_every_event(talk: Talk) -> None:
    """Each event of a Response that was created with a ``stream_id`` has it, and no event of the default lane has one
    (OpenAI, WebSocket mode, lanes). Two that run side by side are told apart by nothing else."""
    client = await talk.socket()
    for named in ({"stream_id": "one"}, {"stream_id": "two"}, {}):
        await client.send({**client.opening(speak(30), tokens_per_second=100), **named})
    events = await client.ends(times=3)
    for lane in ("one", "two", None):
        mine = [event for event in events if event.get("stream_id") == lane]
        numbers = [event.get("sequence_number") for event in mine]
        talk.need(numbers == [*range(len(mine))], f"the events of lane {lane} have the numbers {numbers}")
        talk.need(mine and mine[-1]["type"] == "response.completed", f"lane {lane} has no end")


@probe("L12", basis="OpenAI", shapes=SOCKETS)
async def two_creates_on_one_lane(talk: Talk) -> None:
    """A create that comes while a Response runs on the same lane waits, and runs when that has ended: first in, first
    out, never interleaved, none refused (OpenAI, WebSocket mode)."""
    client = await talk.socket()
    for _ in range(3):
        await client.send(client.opening(speak(20), tokens_per_second=100))
    events = await client.ends(times=3)
    kinds = [event["type"] for event in events if event["type"] == "response.created" or event["type"] in TERMINAL]
    talk.need(kinds == ["response.created", "response.completed"] * 3, f"they began and ended as {kinds}")


@probe("L12", basis="ours", shapes=SOCKETS)
async def a_ping_while_streaming(talk: Talk) -> None:
    """A ping is answered while the model speaks (RFC 6455: as soon as is practical): clients take a socket without pongs
    for dead."""
    client = await talk.socket()
    if not isinstance(client.socket, Pings):
        raise NotOffered("the transport can't send pings")
    await client.send(client.opening(speak(100), tokens_per_second=50))
    await client.until("response.created")
    pong, began = trio.Event(), trio.current_time()

    async def ping(socket: Pings) -> None:
        with suppress(Closed):  # then there will be no end either
            await socket.ping()
            pong.set()

    async with trio.open_nursery() as nursery:  # who doesn't read doesn't hear the pong either
        nursery.start_soon(ping, client.socket)
        await client.ends()
        spoke_for, in_time = trio.current_time() - began, pong.is_set()
        with talk.patience("a pong"):
            await pong.wait()
    talk.need(in_time or spoke_for < 1, "the pong came when the model had spoken")


@probe("L14", basis="Open Responses", shapes=SHAPES)
async def null_and_not_left_out(talk: Talk) -> None:
    """A whole Response has all its fields: what it has no value for is null, not missing (Open Responses,
    ``ResponseResource``; typed clients of OpenAI's own schema count on most of them)."""
    client = await talk.client()
    turn = await client.open(say("Whole."))
    missing = [name for name in FIELDS if name not in (turn.response or {})]
    talk.need(not missing, f"the Response has no {', '.join(missing)}")
    for item in turn.items:
        lacks = [name for name in ("id", "type", "status", "role", "content") if item["type"] == "message" and name not in item]
        talk.need(not lacks, f"a message has no {', '.join(lacks)}")


FIELDS = [
    "id",
    "object",
    "created_at",
    "completed_at",
    "status",
    "incomplete_details",
    "model",
    "previous_response_id",
    "instructions",
    "output",
    "error",
    "tools",
    "tool_choice",
    "truncation",
    "parallel_tool_calls",
    "text",
    "top_p",
    "temperature",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "store",
    "background",
    "metadata",
]


def body_of(client: HttpClient) -> Frame:
    """The body of a small create."""
    return {name: value for name, value in client.opening(say("Hello.")).items() if name != "type"}
