"""Texts and numbers: nothing is split, rounded or written anew on its way."""

from ..transport import Frame
from .base import probe
from .clients import encoded
from .talk import Talk, call, quote, say

FAMILY = "👩‍👩‍👧‍👦 e\u0301 नमस्ते 🏳️‍🌈 é 🎹"
BIG = 2**63
EXACT = 2**53 + 1
"""The first integer that a double can't hold."""


@probe("L4", basis="OpenAI")
async def emoji_one_token_at_a_time(talk: Talk) -> None:
    """Characters that are several tokens, families of them joined, marks that combine: the deltas have no half of a
    character and no U+FFFD, and nothing is composed or decomposed. Servers that decode token by token break them
    (Blaizzy/mlx-vlm, 1076; Luce-Org/lucebox, 641)."""
    client = await talk.client()
    turn = await client.open(say(FAMILY), tokens_per_second=100)
    for event in talk.need_events(turn):
        if event["type"] == "response.output_text.delta":
            _need_whole(talk, event["delta"])
    _need_whole(talk, turn.text)
    if turn.text != FAMILY:
        raise talk.beyond(f"say {FAMILY}; it said {turn.text}")


@probe("L4", basis="OpenAI")
async def emoji_in_arguments(talk: Talk) -> None:
    """The same in a call's arguments, written as themselves or as JSON's escapes: they arrive as the model wrote them."""
    client = await talk.client()
    arguments = '{"path": "' + FAMILY + '", "escaped": "\\ud83c\\udfb9"}'
    turn = await client.begin(call("read", arguments), say("Done."), tokens_per_second=100)
    for event in turn.events:
        if event["type"] == "response.function_call_arguments.delta":
            _need_whole(talk, event["delta"])
    made = turn.calls[0]["arguments"]
    if made != arguments:
        raise talk.beyond(f"call with {arguments}; it called with {made}")


@probe("L14", basis="ours")
async def an_unpaired_surrogate_in_an_output(talk: Talk) -> None:
    """A tool's output has half a surrogate pair as an escape, as JavaScript writes a text that was cut in the midst of a
    character. No UTF-8 can say it: it is refused (docs/errors.md), and nothing is lost. RFC 8259 leaves open what becomes
    of it; a server may take it, too, but not fall over."""
    client = await talk.client()
    turn = await client.begin(call(), quote())
    (good,) = turn.answers("mended")
    answer = await client.ask(_with(client.following(turn, {**good, "output": "MARK"}), '"MARK"', '"cut \\ud800 off"'))
    if not talk.strict and not hasattr(answer, "code"):
        return
    client.must_refuse(answer, ["invalid_json"])
    last = await client.go_on(turn, good)
    talk.need_quote(last, "mended")


@probe("L14", basis="ours")
async def nan_is_no_json(talk: Talk) -> None:
    """``NaN`` stands where a number should. It is no JSON (RFC 8259), and is refused; the connection lives on. Python
    writes and reads it without a word, so it reaches a server, and would leave it where the next parser fails."""
    client = await talk.client()
    frame = client.opening(say("Hello."), temperature=1234)
    client.must_refuse(await client.ask(_with(frame, "1234", "NaN")), ["invalid_json"])
    await client.still_lives()


@probe("L14", basis="OpenAI")
async def large_integers_in_arguments(talk: Talk) -> None:
    """``arguments`` is a text of JSON, and stays as the model wrote it: integers beyond 2^53 and 2^63, blanks, the order
    of keys. Whoever parses and writes it anew rounds ids and breaks what is signed."""
    client = await talk.client()
    arguments = f'{{"id": {EXACT}, "max":  {BIG}, "far": {10**30}, "tiny": 1e-7, "a": 1.0}}'
    turn = await client.begin(call("read", arguments), say("Done."))
    made = turn.calls[0]["arguments"]
    if made != arguments:
        raise talk.beyond(f"call with {arguments}; it called with {made}")


@probe("L14", basis="ours")
async def large_integers_in_a_schema(talk: Talk) -> None:
    """The Response shows the tools of its request (OpenAI, ``tools``): a schema's ``maximum`` of 2^53 + 1 is the same
    there, and not the double next to it. RFC 8259 leaves numbers that large to the implementation, so that it must be so
    is our law."""
    client = await talk.client()
    schema = {"type": "object", "properties": {"id": {"type": "integer", "maximum": EXACT}}, "required": ["id"]}
    tool = {"type": "function", "name": "read", "description": "Reads.", "parameters": schema, "strict": False}
    turn = await client.open(say("Hello."), tools=[tool])
    shown = (turn.response or {}).get("tools") or [{}]
    talk.need(shown[0].get("parameters") == schema, f"the Response shows the tool as {shown[0]}")


@probe("L14", basis="OpenAI")
async def metadata_comes_back(talk: Talk) -> None:
    """``metadata`` is the client's own: 16 pairs of texts, given back as they were, in whatever alphabet (OpenAI,
    ``metadata``)."""
    client = await talk.client()
    pairs = {**{f"ключ-{at}": FAMILY for at in range(15)}, "x" * 64: "y" * 512}
    turn = await client.open(say("Hello."), metadata=pairs)
    talk.need((turn.response or {}).get("metadata") == pairs, f"metadata is {(turn.response or {}).get('metadata')}")


def _need_whole(talk: Talk, text: str) -> None:
    broken = any(char == "\ufffd" or "\ud800" <= char <= "\udfff" for char in text)
    talk.need(not broken, f"a character was split: {text!a}")


def _with(frame: Frame, mark: str, text: str) -> str:
    """``frame`` as text, with ``text`` instead of ``mark``."""
    said = encoded(frame)
    assert said.count(mark) == 1
    return said.replace(mark, text)
