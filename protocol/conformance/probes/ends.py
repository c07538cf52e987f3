"""How a Response ends: cut, failed, cancelled, or left alone."""

from ...events import TERMINAL
from .base import SOCKETS, probe
from .clients import SocketClient
from .talk import NotOffered, Talk, Turn, call, quote, say, speak
from .turn import Refusal

FEW = 16
"""The fewest that OpenAI takes for ``max_output_tokens``."""
CUT = "a long text that goes on and on, " * 8


@probe("L2", basis="OpenAI")
async def a_text_cut_by_the_token_limit(talk: Talk) -> None:
    """The answer is longer than ``max_output_tokens``: the Response is ``incomplete``, its reason ``max_output_tokens``,
    and so is its last item (OpenAI, ``incomplete_details``; Open Responses). Clients take a text that is called
    ``completed`` for whole (jundot/omlx, 2817; vllm-project/vllm, 57998)."""
    client = await talk.client()
    turn = await client.open(say(CUT), max_output_tokens=FEW)
    _need_cut(talk, turn)
    talk.need(not talk.adapter.obeys or CUT.startswith(turn.text), f"it said {turn.text!r}")
    await client.still_lives()


@probe("L2", basis="OpenAI")
async def arguments_cut_by_the_token_limit(talk: Talk) -> None:
    """The limit falls into a call's arguments. The call is ``incomplete`` or left out, never a whole call with half a
    JSON text; no tool is run, and the Response can be continued without an output for it (vllm-project/vllm, 57998 and
    37937)."""
    client = await talk.client()
    turn = await client.open(call("write", '{"text": "' + CUT + '"}'), max_output_tokens=FEW)
    _need_cut(talk, turn)
    talk.need(not turn.calls, f"a call that was cut is called whole: {turn.calls}")
    if talk.capabilities.chain:
        talk.need_completed(await client.open(say("Shorter."), previous_response_id=turn.response_id))


@probe("L2", basis="OpenAI")
async def a_model_that_fails(talk: Talk) -> None:
    """The model breaks in the midst of its answer. The Response ends as ``failed``, with ``error.code`` and
    ``error.message``; what was said before is in it, and the next one works."""
    if not talk.adapter.obeys:
        raise NotOffered("a model that fails when told to")
    client = await talk.client()
    answer = await client.ask(client.opening(say("So far."), {"fail": {"message": "as asked"}}))
    if isinstance(answer, Refusal):
        talk.need(not talk.strict, "the failure of a model is no refusal")
        talk.check_refusal(answer, [])
    else:
        error = (answer.response or {}).get("error") or {}
        talk.need(answer.status == "failed", f"the Response ended as {answer.status}")
        talk.need(error.get("code") and error.get("message"), f"the error is {error}")
        talk.need("So far." in answer.text, f"what was said is lost: {answer.items}")
    await client.still_lives()


@probe("L10", basis="ours", shapes=SOCKETS, needs=["cancel"])
async def cancel_at_the_last_delta(talk: Talk) -> None:
    """The client cancels when it has read the whole answer, and before the end. Either wins: the Response is
    ``cancelled``, or it is ``completed`` and the cancel is refused; never both, and never neither (docs/append.md,
    ``response.cancel``)."""
    client = await talk.socket()
    await client.send(client.opening(say("One two three four."), tokens_per_second=20))
    frames = await client.until("response.created")
    response_id, said = frames[-1]["response"]["id"], ""
    while said != "One two three four.":
        (delta,) = (await client.until("response.output_text.delta", *TERMINAL))[-1:]
        if delta["type"] in TERMINAL:
            raise talk.beyond("say four words")
        said += delta["delta"]
    await client.send({"type": "response.cancel", "response_id": response_id})
    await _one_winner(talk, client)


@probe("L10", basis="ours", shapes=SOCKETS, needs=["cancel"])
async def cancel_after_the_end(talk: Talk) -> None:
    """A cancel that comes too late is refused, and changes nothing (docs/append.md). The socket lives."""
    client = await talk.socket()
    turn = await client.open(say("Done."))
    answer = await client.ask({"type": "response.cancel", "response_id": turn.response_id})
    client.must_refuse(answer, ["response_not_active"])
    await client.still_lives()


@probe("L10", basis="ours", shapes=SOCKETS, needs=["cancel"])
async def cancel_in_the_midst(talk: Talk) -> None:
    """A cancel takes effect while the model speaks: the Response ends as ``cancelled`` long before it would have, its
    item as ``incomplete``, and the next one begins. Peers read the cancel when the turn is over."""
    client = await talk.socket()
    await client.send(client.opening(speak(2000), tokens_per_second=20))
    created = (await client.until("response.created"))[-1]
    await client.until("response.output_text.delta")
    await client.send({"type": "response.cancel", "response_id": created["response"]["id"]})
    end = (await client.ends())[-1]["response"]
    talk.need(end.get("status") == "cancelled", f"the Response ended as {end.get('status')}")
    talk.need(end["output"][-1]["status"] == "incomplete", f"its last item is {end['output'][-1]['status']}")
    await client.still_lives()


@probe("L10", basis="ours", shapes=["append"], needs=["cancel"])
async def cancel_while_a_tool_is_awaited(talk: Talk) -> None:
    """A parked Response is cancelled: it ends at once, and the tool's output comes too late (``response_not_active``)."""
    client = await talk.socket()
    turn = await client.begin(call(), quote())
    end = await client.ask({"type": "response.cancel", "response_id": turn.response_id})
    talk.need(isinstance(end, Turn) and end.status == "cancelled", "a parked Response was not cancelled")
    await client.refused(turn, *turn.answers("too late"), codes=["response_not_active"])
    await client.still_lives()


@probe("L10", basis="ours", shapes=["append"])
async def an_append_after_the_end(talk: Talk) -> None:
    """An output and a message for a Response that has ended are refused with ``response_not_active``; what ended is not
    opened again."""
    client = await talk.socket()
    turn = await client.begin(call(), quote())
    last = await client.go_on(turn, *turn.answers("in time"))
    talk.need_completed(last)
    await client.refused(turn, {"type": "message", "role": "user", "content": "One more thing."}, codes=["response_not_active"])
    await client.still_lives()


@probe("L10", basis="OpenAI", shapes=["http"], needs=["background"])
async def cancel_in_the_background(talk: Talk) -> None:
    """``POST …/cancel`` ends a background Response; a second cancel is no error, and answers with the same (OpenAI,
    background mode: cancelling twice is idempotent)."""
    client = await talk.posting()
    body = client.opening(speak(2000), tokens_per_second=20, background=True, stream=False)
    begun = await client.ask(body)
    if not isinstance(begun, Turn) or begun.status not in ("queued", "in_progress"):
        raise talk.failure("the background Response did not begin")
    answers = [await client.call("POST", f"/responses/{begun.response_id}/cancel") for _ in range(2)]
    told = [(answer.status, answer.json.get("status")) for answer in answers]
    talk.need(told == [(200, "cancelled")] * 2, f"the cancels were answered with {told}")


@probe("L2", basis="OpenAI", shapes=["http"], needs=["stream", "store"])
async def a_stream_that_is_dropped(talk: Talk) -> None:
    """The client goes away in the midst of a stream. The Response comes to an end, whichever (OpenAI: dropping the
    connection cancels it): it must not be ``in_progress`` for ever, as ogx's is."""
    client = await talk.posting()
    body = {**client.opening(speak(300), tokens_per_second=100), "stream": True}
    body.pop("type")
    exchange = await client.request("POST", "/responses", body)
    with talk.patience("the first event"):
        first = await exchange.next_event()
    if first is None:
        raise talk.failure("a stream without events", "L2")
    response_id = client.parsed(first.data)["response"]["id"]
    talk.story.did(client.name, "drops its connection")
    await exchange.drop()
    await client.until_ended(response_id, gone=True)


def _need_cut(talk: Talk, turn: Turn) -> None:
    if turn.status == "completed" and not talk.adapter.obeys:
        raise talk.beyond(f"say more than {FEW} tokens")
    reason = ((turn.response or {}).get("incomplete_details") or {}).get("reason")
    talk.need((turn.status, reason) == ("incomplete", "max_output_tokens"), f"the Response is {turn.status}, reason {reason}")
    statuses = [item.get("status") for item in turn.items]
    talk.need(statuses[-1:] in ([], ["incomplete"]) and "completed" not in statuses[-1:], f"its items are {statuses}")


async def _one_winner(talk: Talk, client: SocketClient) -> None:
    frames = [*await client.ends(), *await client.quiet()]
    ends = [frame["response"]["status"] for frame in frames if frame["type"] in TERMINAL]
    errors = [frame for frame in frames if frame["type"] == "error"]
    talk.need(len(ends) == 1, f"the ends {ends}")
    if ends == ["completed"]:
        talk.need(len(errors) == 1, f"the Response is completed, and the cancel had {len(errors)} answers")
        talk.check_refusal(Refusal(frame=errors[0], status=errors[0].get("status")), ["response_not_active"])
    else:
        talk.need(ends == ["cancelled"] and not errors, f"ended as {ends}, with {len(errors)} errors")
