"""What a rollout knows of its past: chains, histories that the client keeps, and what is not handed on."""

from ..transport import Frame
from .base import CHAINS, probe
from .talk import NotOffered, Talk, Turn, call, quote, say

NOT_FOUND = ("previous_response_not_found",)
NOBODYS = "resp_00000000000000000000000000000000"
MANY = 110
"""A gateway forgets what is older than 100 Responses, without a word."""
LONG = "Always answer in whole sentences, and never say anything that you would not say to a friend. " * 40


@probe("L14", basis="OpenAI")
async def three_turn_memory_with_store_false(talk: Talk) -> None:
    """Nothing is stored, and the answer of the third turn quotes what the first one's tool returned. On a socket its
    memory does it (OpenAI, WebSocket mode: ``store: false`` continues from the connection's cache); over HTTP the client
    sends the whole history (OpenAI, conversation state). Servers lose it without a word: codex-rosetta, litellm over Chat
    Completions, mlx-vlm (issue 1046)."""
    client = await talk.client()
    steps = call("first"), call("second"), quote("first")
    turn = await client.begin(*steps, store=False)
    if talk.shape == "http":
        history: list[Frame] = []
        for text in ("the first secret", "another"):
            history += [*turn.items, *turn.answers(text)]
            turn = await client.open(*steps, behind=history, store=False)
    else:
        stored = {} if talk.appends else {"store": False}
        turn = await client.go_on(turn, *turn.answers("the first secret"), **stored)
        turn = await client.go_on(turn, *turn.answers("another"), **stored)
    talk.need_quote(turn, "the first secret")


@probe("L14", basis="OpenAI")
async def own_output_sent_back(talk: Talk) -> None:
    """A client that keeps the history itself adds ``response.output`` to its input, as it came: messages with
    ``output_text``, ids and statuses, reasoning, calls (OpenAI, conversation state). Servers refuse their own items
    (danny-avila/LibreChat, 11814; vllm-project/vllm, 33089)."""
    client = await talk.client()
    steps = {"reason": "I should look."}, say("Let me look."), call(), quote()
    turn = await client.begin(*steps)
    fresh = await talk.client()
    again = await fresh.open(*steps, behind=[*turn.items, *turn.answers("what was read")])
    talk.need_completed(again)
    talk.need_quote(again, "what was read")


@probe("L14", basis="OpenAI", needs=["chain"])
async def a_second_question(talk: Talk) -> None:
    """The simplest chain: an answer, and a question that continues it. The second Response names the first in
    ``previous_response_id``, has an id of its own, and its ``input_tokens`` count what came before, too (OpenAI: all
    input tokens of a chain are billed). Servers take the field and ignore it (Blaizzy/mlx-vlm, 1046)."""
    client = await talk.client()
    first = await client.open(say("A long answer: " + "word " * 200))
    second = await client.open(say("Yes."), previous_response_id=first.response_id)
    talk.need_completed(second)
    talk.need(second.response_id != first.response_id, "two Responses with one id")
    named = (second.response or {}).get("previous_response_id")
    talk.need(named == first.response_id, f"previous_response_id is {named}, not {first.response_id}")
    usage, before = (second.response or {}).get("usage") or {}, (first.response or {}).get("usage") or {}
    least = before.get("output_tokens", 0) // 2
    talk.need(usage.get("input_tokens", 0) > least, f"the model has read {usage}, before it was said {before}")


@probe("L14", basis="OpenAI", needs=["chain"])
async def instructions_are_not_handed_on(talk: Talk) -> None:
    """``instructions`` of a Response do not count for those that continue it (OpenAI, ``instructions``): the next one
    shows none, and its model has not read them. Servers store them with the messages (vllm-project/vllm, 37697;
    sgl-project/sglang, 23662)."""
    client = await talk.client()
    first = await client.open(say("One."), instructions=LONG)
    second = await client.open(say("Two."), previous_response_id=first.response_id)
    shown = (second.response or {}).get("instructions")
    talk.need(not shown, f"the second Response shows the instructions {str(shown)[:80]!r}")
    read = [((turn.response or {}).get("usage") or {}).get("input_tokens", 0) for turn in (first, second)]
    talk.need(read[1] < read[0], f"with {len(LONG)} characters of instructions {read[0]} tokens were read, without {read[1]}")


@probe("L14", basis="OpenAI", shapes=CHAINS, needs=["chain"])
async def a_hundred_and_ten_turns(talk: Talk) -> None:
    """A long chain still knows its beginning: nothing falls out at the front without an error (``truncation`` is
    ``disabled`` by default). smg loses what is more than 100 Responses back."""
    if not talk.adapter.obeys:
        raise NotOffered("a model that calls a hundred times when told to")
    client = await talk.client()
    turn = await client.begin(call("first"), {"repeat": MANY - 1, "steps": [call("more")]}, quote("first"))
    for number in range(MANY):
        turn = await client.go_on(turn, *turn.answers("the first secret" if number == 0 else f"more {number}"))
    talk.need_quote(turn, "the first secret")


@probe("L13", basis="OpenAI", needs=["chain"])
async def an_unknown_previous_response(talk: Talk) -> None:
    """``previous_response_id`` names what nobody has: ``previous_response_not_found``, by which clients know to send the
    whole history (OpenAI, WebSocket mode; the connection lives). Over HTTP OpenAI has the same code."""
    client = await talk.client()
    await client.refused_opening(say("Hello."), codes=NOT_FOUND, documented=True, previous_response_id=NOBODYS)
    await client.still_lives()


@probe("L13", basis="OpenAI", shapes=CHAINS, needs=["chain"])
async def store_false_is_not_found_elsewhere(talk: Talk) -> None:
    """What was not stored is in the memory of its connection only: another one that names it is told
    ``previous_response_not_found`` (OpenAI, WebSocket mode; the suite of Open Responses tests it). Over HTTP there is no
    such memory at all."""
    client = await talk.client()
    turn = await client.open(say("Not kept."), store=False)
    other = await talk.client()
    before = turn.response_id
    await other.refused_opening(say("Hello."), codes=NOT_FOUND, documented=True, previous_response_id=before)
    await other.still_lives()


@probe("L14", basis="OpenAI", shapes=["create"], needs=["chain"])
async def a_failed_continuation_is_forgotten(talk: Talk) -> None:
    """A continuation that is refused makes its connection forget the Response that it named; as that was not stored, it
    is gone: the next try is told ``previous_response_not_found`` (OpenAI, WebSocket mode: a failed continuation evicts;
    the suite of Open Responses tests it). A client can't tell how much of a failed turn the server has taken in."""
    client = await talk.socket()
    turn = await client.open(say("Not kept."), store=False)
    orphan = {"type": "function_call_output", "call_id": "call_nobody_made", "output": "?"}
    await client.refused(turn, orphan, codes=["tool_call_not_found"], store=False)
    before: Frame = {"previous_response_id": turn.response_id, "store": False}
    await client.refused_opening(say("Hello."), codes=NOT_FOUND, documented=True, **before)
    await client.still_lives()


@probe("L13", basis="OpenAI", shapes=["create"], needs=["chain", "lanes"])
async def a_failed_fork_leaves_its_parent(talk: Talk) -> None:
    """The same mistake on another lane than the one that made the Response: its own lane can still go on from it, though
    nothing is stored (OpenAI, WebSocket mode, lanes)."""
    client = await talk.socket()
    turn = await client.open(say("Not kept."), store=False, stream_id="own")
    orphan = {"type": "function_call_output", "call_id": "call_nobody_made", "output": "?"}
    await client.refused(turn, orphan, codes=["tool_call_not_found"], store=False, stream_id="fork")
    own: Frame = {"previous_response_id": turn.response_id, "store": False, "stream_id": "own"}
    talk.need_completed(await client.open(say("Still here."), **own))


@probe("L14", basis="OpenAI", shapes=["http"], needs=["conversations"])
async def a_conversation(talk: Talk) -> None:
    """A Response that names a ``conversation`` begins with its items, and adds its own to them when it has ended (OpenAI,
    conversation state): the second one's model has read the first one's words."""
    client = await talk.posting()
    made = await client.call("POST", "/conversations", {})
    talk.need(made.status == 200, f"POST /conversations was answered with {made.status}")
    turn = await client.begin(call(), quote(), conversation=made.json["id"])
    frame = client.opening(call(), quote(), conversation=made.json["id"])
    answer = await client.ask({**frame, "input": turn.answers("kept by the conversation")})
    if not isinstance(answer, Turn):
        raise talk.failure(f"refused: {answer.code}: {answer.message}")
    talk.need_quote(answer, "kept by the conversation")
    listed = await client.get(f"/conversations/{made.json['id']}/items?order=asc")
    kinds = [item.get("type") for item in listed.get("data") or ()]
    wanted = ["message", "function_call", "function_call_output", "message"]
    talk.need([kind for kind in kinds if kind in wanted] == wanted, f"the conversation has {kinds}")


@probe("L8", basis="OpenAI")
async def tool_choice_none(talk: Talk) -> None:
    """With ``tool_choice: "none"`` no tool is called, though tools are offered (OpenAI, function calling)."""
    client = await talk.client()
    turn = await client.open(call("read"), say("Without tools."), tool_choice="none")
    talk.need_completed(turn)
    talk.need(not turn.calls, f"it called {turn.calls}")


@probe("L8", basis="OpenAI")
async def one_call_at_a_time(talk: Talk) -> None:
    """With ``parallel_tool_calls: false`` a turn has one call at most (OpenAI, function calling)."""
    client = await talk.client()
    turn = await client.open({"calls": [{"name": "read"}, {"name": "write"}]}, say("Done."), parallel_tool_calls=False)
    talk.need(len(turn.calls) <= 1, f"a turn with {len(turn.calls)} calls")
    if turn.calls and not talk.appends:
        turn = await client.go_on(turn, *turn.answers("ok"), parallel_tool_calls=False)
        talk.need(len(turn.calls) <= 1, f"a turn with {len(turn.calls)} calls")
