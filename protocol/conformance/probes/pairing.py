"""Calls and their outputs: which output belongs to which call, and what becomes of calls without one.

OpenAI's guides on function calling and on conversation state ask for an output for each call before the model goes on,
and for a call before each output. Its answers, both 400, are public through those who ran into them: ``No tool output
found for function call …`` (agentjido/req_llm, 455), ``No tool call found for function call output …``
(agentjido/req_llm, 426). Of an output of the wrong kind, or a second one, they say nothing: there the law is ours.
"""

from ..sayings import user
from .base import CHAINS, probe
from .talk import Talk, call, calls, quote, say
from .turn import output_of

MISSING = ("tool_output_missing",)
UNKNOWN = ("tool_call_not_found",)


@probe("L14", basis="OpenAI")
async def interrupt_while_a_tool_runs(talk: Talk) -> None:
    """The user speaks instead of the tool. A Response of the append shape takes the message, and still waits for the
    output. In a chain such a continuation is refused (OpenAI: each call needs its output), and the same with the output
    is not."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    message = user("Wait, what are you doing?")
    if talk.appends:
        waiting = await client.go_on(turn, message)
        talk.need(waiting.pending == [turn.calls[0]["call_id"]], f"after the message {waiting.pending} is waited for")
        last = await client.go_on(turn, *turn.answers("the tool's words"))
    else:
        await client.refused(turn, message, codes=MISSING)
        last = await client.go_on(turn, *turn.answers("the tool's words"), message)
    talk.need_quote(last, "the tool's words")


@probe("L14", basis="OpenAI")
async def interrupt_along_with_the_output(talk: Talk) -> None:
    """The user speaks while the tool runs, and the client sends both together. OpenAI's ``input`` is a list of items of
    any kind: both are taken, and the model reads the output."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    last = await client.go_on(turn, *turn.answers("the tool's words"), user("And hurry."))
    talk.need_completed(last)
    talk.need_quote(last, "the tool's words")


@probe("L14", basis="OpenAI")
async def only_one_of_two_outputs(talk: Talk) -> None:
    """Of two parallel calls one was answered. The append shape says which one it still waits for. A chain refuses
    (OpenAI: ``No tool output found for function call …``), and goes on with both."""
    client = await talk.client()
    turn = await client.begin(calls("read", "write"), quote("read"))
    first, second = turn.answers("what was read", "what was written")
    if talk.appends:
        waiting = await client.go_on(turn, first)
        talk.need(waiting.pending == [second["call_id"]], f"after one of two outputs {waiting.pending} is waited for")
        last = await client.go_on(turn, second)
    else:
        await client.refused(turn, first, codes=MISSING)
        last = await client.go_on(turn, first, second)
    talk.need_completed(last)
    talk.need_quote(last, "what was read")


@probe("L7", basis="ours", shapes=["append"])
async def outputs_one_at_a_time(talk: Talk) -> None:
    """Outputs come as the tools end, the last call's first, each in a frame of its own. The model goes on when all are
    there, as if they had come together (docs/append.md, *Calls and their results*)."""
    client = await talk.client()
    turn = await client.begin(calls("a", "b", "c"), quote("a"), quote("c"))
    outputs = turn.answers("from a", "from b", "from c")
    for number in (2, 1):
        waiting = await client.go_on(turn, outputs[number])
        left = [one["call_id"] for one in outputs[:number]]
        talk.need(list(waiting.pending) == left, f"after {3 - number} outputs {waiting.pending} is waited for, not {left}")
    last = await client.go_on(turn, outputs[0])
    talk.need_completed(last)
    talk.need_quote(last, "from a")
    talk.need_quote(last, "from c")


@probe("L5", basis="ours")
async def output_of_the_wrong_kind(talk: Talk) -> None:
    """A function's call is answered as if it were a custom tool's. It is refused, and the right kind is taken afterwards
    (docs/append.md, the table of outputs). OpenAI pairs outputs with calls of their own type, and documents no code."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    (right,) = turn.answers("of the right kind")
    wrong = {**right, "type": "custom_tool_call_output", "output": "of the wrong kind"}
    await client.refused(turn, wrong, codes=["tool_output_type_mismatch"])
    last = await client.go_on(turn, right)
    talk.need_quote(last, "of the right kind")


@probe("L5", basis="OpenAI")
async def an_orphan_output(talk: Talk) -> None:
    """An output of a call that nobody made, beside the right one. It is refused as a whole (OpenAI: ``No tool call found
    for function call output …``; the compliance suite of Open Responses counts on it), and the right one alone is taken."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    (right,) = turn.answers("of a call")
    orphan = {**right, "call_id": "call_nobody_made"}
    await client.refused(turn, right, orphan, codes=UNKNOWN)
    last = await client.go_on(turn, right)
    talk.need_quote(last, "of a call")


@probe("L14", basis="OpenAI")
async def an_orphan_output_in_a_first_request(talk: Talk) -> None:
    """A history that begins with an output, its call cut off, as naive pruning leaves it. OpenAI refuses: ``No tool call
    found for function call output …``."""
    client = await talk.client()
    orphan = {"type": "function_call_output", "call_id": "call_cut_off", "output": "?"}
    await client.refused_opening(say("Hello."), behind=[orphan], codes=UNKNOWN)
    await client.still_lives()


@probe("L5", basis="ours")
async def two_results_in_one_frame(talk: Talk) -> None:
    """One call, and two different results for it at once. Which one counts can't be known, so neither does
    (docs/append.md: an append applies whole or not at all; docs/create.md, *Pairing*)."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    (one,) = turn.answers("one")
    await client.refused(turn, one, {**one, "output": "another"}, codes=["tool_output_conflict"])
    last = await client.go_on(turn, one)
    talk.need_quote(last, "one")


@probe("L5", basis="ours", shapes=["append"])
async def another_result_for_an_answered_call(talk: Talk) -> None:
    """A call that was answered is answered again, differently, while another one is still open: ``tool_output_conflict``,
    and the first result is what the model reads (docs/append.md, *The same again*)."""
    client = await talk.client()
    turn = await client.begin(calls("read", "write"), quote("read"))
    first, second = turn.answers("the first result", "ok")
    await client.go_on(turn, first)
    await client.refused(turn, {**first, "output": "a second result"}, codes=["tool_output_conflict"])
    last = await client.go_on(turn, second)
    talk.need_quote(last, "the first result")


@probe("L14", basis="ours")
async def call_ids_used_again_in_a_later_turn(talk: Talk) -> None:
    """Clients number calls within a turn, so a history has ``call_0`` twice, each time with its output. Each output
    belongs to the call before it (docs/create.md, *Pairing*). Servers that keep one map of ids bind both to the last one,
    and show the model a result of another tool (openai/gpt-oss, issue 308)."""
    client = await talk.client()
    history = [
        {"type": "function_call", "call_id": "call_0", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_0", "output": "what was read"},
        {"type": "function_call", "call_id": "call_0", "name": "write", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_0", "output": "what was written"},
    ]
    turn = await client.open(call("read"), call("write"), quote("read"), quote("write"), behind=history)
    talk.need_completed(turn)
    talk.need_quote(turn, "what was read")
    talk.need_quote(turn, "what was written")


@probe("L14", basis="OpenAI")
async def a_message_between_a_call_and_its_output(talk: Talk) -> None:
    """The user spoke while the tool ran, and the history has it there. OpenAI pairs by ``call_id``, not by place: it is
    taken. Servers that translate to Chat Completions pass on a list that their upstream refuses."""
    client = await talk.client()
    history = [
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
        user("Are you there?"),
        {"type": "function_call_output", "call_id": "call_1", "output": "what was read"},
    ]
    turn = await client.open(call("read"), quote(), behind=history)
    talk.need_completed(turn)
    talk.need_quote(turn, "what was read")


@probe("L14", basis="OpenAI")
async def a_call_without_output_in_a_history(talk: Talk) -> None:
    """An agent was killed while its tool ran, and sends what it has. OpenAI refuses: ``No tool output found for function
    call …``; nothing is made up for it."""
    client = await talk.client()
    cut = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}
    await client.refused_opening(call("read"), say("Hello."), behind=[cut, user("Go on.")], codes=MISSING)
    await client.still_lives()


@probe("L5", basis="OpenAI")
async def an_output_named_by_the_items_id(talk: Talk) -> None:
    """A call has an ``id``, of the item, and a ``call_id``. Outputs name the latter (OpenAI, function calling); a client
    that takes the wrong one is told so."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    (right,) = turn.answers("rightly named")
    item_id = turn.calls[0].get("id")
    talk.need(item_id, f"a call without an id: {turn.calls[0]}")
    if item_id != right["call_id"]:
        await client.refused(turn, {**right, "call_id": item_id}, codes=UNKNOWN)
    last = await client.go_on(turn, right)
    talk.need_quote(last, "rightly named")


@probe("L14", basis="OpenAI")
async def an_output_of_content_parts(talk: Talk) -> None:
    """OpenAI's ``function_call_output.output`` is a text or a list of ``input_text``, ``input_image`` and ``input_file``;
    tools of MCP servers give lists. Servers refuse them, or show the model Python's or JSON's idea of a list
    (vllm-project/vllm, 54786; ogx-ai/ogx, 4978)."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    parts = [{"type": "input_text", "text": "the first part, "}, {"type": "input_text", "text": "the second part"}]
    last = await client.go_on(turn, output_of(turn.calls[0], parts))
    talk.need_completed(last)
    talk.need_quote(last, "the first part, the second part")


@probe("L14", basis="OpenAI")
async def an_empty_output(talk: Talk) -> None:
    """Many tools say nothing when all is well. An empty text is an output: the call is answered."""
    client = await talk.client()
    turn = await client.begin(call(), say("Well."))
    last = await client.go_on(turn, *turn.answers(""))
    talk.need_completed(last)


@probe("L14", basis="OpenAI")
async def a_custom_tool(talk: Talk) -> None:
    """A custom tool takes free text, which is no JSON, and comes as ``custom_tool_call`` with ``input``; its output is a
    ``custom_tool_call_output`` (OpenAI, function calling, *Custom tools*)."""
    client = await talk.client()
    text = "*** Begin Patch\n+ {not: json}\n*** End Patch"
    turn = await client.begin(call("patch", text, kind="custom_tool_call"), quote())
    (made,) = turn.calls
    talk.need(made["type"] == "custom_tool_call", f"a custom tool was called by a {made['type']}")
    talk.need(not talk.adapter.obeys or made["input"] == text, f"the input has changed: {made['input']!r}")
    last = await client.go_on(turn, *turn.answers("patched"))
    talk.need_quote(last, "patched")


@probe("L5", basis="OpenAI", shapes=CHAINS)
async def the_same_continuation_twice(talk: Talk) -> None:
    """The answer to a continuation was lost with its connection, and the client sends it again. Both name the same
    Response by ``previous_response_id``, and each is a Response of its own (OpenAI, *Conversation state*; forks)."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    items = turn.answers("what was read")
    first = await client.go_on(turn, *items)
    again = await talk.client()
    second = await again.go_on(turn, *items)
    talk.need_quote(second, "what was read")
    talk.need(first.response_id != second.response_id, "two Responses with one id")
    talk.need(len(first.items) == len(second.items), f"{len(first.items)} items, and then {len(second.items)}")
