"""Clients beside each other: nobody sees what is another's, and nobody's mistake disturbs another."""

import json

import trio

from ...events import TERMINAL
from .base import SOCKETS, probe
from .clients import Client, HttpClient, SocketClient
from .memory import NOBODYS, NOT_FOUND
from .talk import Talk, call, quote, say, speak
from .turn import Refusal, Turn

NOBODY_ELSES = "resp_ffffffffffffffffffffffffffffffff"


@probe("L13", basis="ours", needs=["chain"])
async def a_strangers_id(talk: Talk) -> None:
    """What is another's is answered as what nobody has: the same status, code and words, for each request that names a
    Response; so nobody can find out which ids there are, and what has them is as it was (docs/errors.md). OpenAI says
    only what is answered for an unknown ``previous_response_id``. With one key, two invented ids are compared."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    stranger = await talk.stranger()
    theirs = NOBODY_ELSES if stranger is None else turn.response_id
    asking = stranger or await talk.client()
    told, unknown = await _answers(talk, asking, theirs), await _answers(talk, asking, NOBODYS)
    for name, answer in told.items():
        talk.need(answer == unknown[name], f"{name} of a stranger's id: {answer}; of an unknown one: {unknown[name]}")
    last = await client.go_on(turn, *turn.answers("still hers"))
    talk.need_quote(last, "still hers")


@probe("L13", basis="OpenAI")
async def two_clients_at_once(talk: Talk) -> None:
    """Two clients run the same rollout at the same moment, and each quotes what its own tool has returned
    (vllm-project/vllm, 13408: answers of one request in another's)."""
    clients = {"a": await talk.client(), "b": await talk.client()}

    async def play(name: str, client: Client) -> None:
        turn = await client.begin(call(), quote(), {"say": {"tokens": 20}}, tokens_per_second=100)
        last = await client.go_on(turn, *turn.answers(f"the secret of {name}"))
        other = "b" if name == "a" else "a"
        talk.need(f"the secret of {other}" not in last.text, f"{name} was told the secret of {other}")
        talk.need_quote(last, f"the secret of {name}")

    async with trio.open_nursery() as nursery:
        for name, client in clients.items():
            nursery.start_soon(play, name, client)


@probe("L13", basis="ours", shapes=SOCKETS)
async def a_bad_frame_beside_a_stream(talk: Talk) -> None:
    """In the midst of an answer the client sends what is no JSON. It is told so, and the answer goes on to its end,
    whole."""
    client = await talk.socket()
    await client.send(client.opening(speak(60), tokens_per_second=30))
    await client.until("response.created")
    await client.send('{"type": "response.create", ')
    frames = await client.ends()
    frames += [] if any(frame["type"] == "error" for frame in frames) else await client.until("error")
    errors = [frame for frame in frames if frame["type"] == "error"]
    talk.need(len(errors) == 1, f"one bad frame had {len(errors)} errors")
    talk.check_refusal(Refusal(frame=errors[0], status=errors[0].get("status")), ["invalid_json"])
    end = next(frame["response"] for frame in frames if frame["type"] in TERMINAL)
    talk.need(end.get("status") == "completed", f"the answer ended as {end.get('status')}")


@probe("L13", basis="OpenAI", shapes=SOCKETS, needs=["lanes"])
async def a_stream_id_that_is_none(talk: Talk) -> None:
    """An empty ``stream_id``, or one with a blank, is refused with ``invalid_stream_id`` (OpenAI, WebSocket mode); other
    lanes go on."""
    client = await talk.socket()
    await client.send({**client.opening(speak(30), tokens_per_second=30), "stream_id": "good"})
    await client.until("response.created")
    for lane in ("", "a b", "x" * 257):
        await client.send({**client.opening(say("Never.")), "stream_id": lane})
        error = (await client.until("error"))[-1]
        talk.check_refusal(Refusal(frame=error, status=error.get("status")), ["invalid_stream_id"], documented=True)
    await client.ends()


@probe("L13", basis="OpenAI", shapes=SOCKETS, needs=["lanes"])
async def the_thirty_third_lane(talk: Talk) -> None:
    """A socket may name 32 lanes; the next is refused with ``websocket_stream_limit_reached``, and the others can be used
    again (OpenAI, WebSocket mode, with this code)."""
    client = await talk.socket()
    for number in range(32):
        await client.open(say("Hello."), stream_id=f"lane-{number}")
    wanted = ["websocket_stream_limit_reached"]
    await client.refused_opening(say("Hello."), codes=wanted, documented=True, stream_id="lane-33")
    talk.need_completed(await client.open(say("Again."), stream_id="lane-0"))


async def _answers(talk: Talk, client: Client, response_id: str) -> dict[str, str]:
    """What each request that names ``response_id`` is answered with."""
    answer = await client.ask(client.opening(say("Mine."), previous_response_id=response_id))
    client.must_refuse(answer, NOT_FOUND, documented=True)
    answers = {"previous_response_id": answer}
    if isinstance(client, SocketClient):
        for name in [*(["append"] if talk.appends else []), *(["attach", "cancel"] if talk.appends else [])]:
            if name == "append" or getattr(talk.capabilities, name):
                frame = {"type": f"response.{name}", "response_id": response_id}
                answers[name] = await client.ask({**frame, **({"input": [OUTPUT]} if name == "append" else {})})
    elif isinstance(client, HttpClient) and talk.capabilities.store:
        for method, path in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")):
            told = await client.call(method, f"/responses/{response_id}{path}")
            answers[f"{method} {path}"] = Refusal(frame=told.json, status=told.status)
    for name, one in answers.items():
        talk.need(isinstance(one, Refusal) and one.status != 200, f"{name} of {response_id} was not refused")
    return {name: _shown(one).replace(response_id, "ID") for name, one in answers.items()}


OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "?"}


def _shown(answer: Turn | Refusal) -> str:
    return f"{answer.status} {json.dumps(answer.frame, sort_keys=True)}" if isinstance(answer, Refusal) else ""
