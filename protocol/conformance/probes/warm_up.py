"""``generate: false``: a Response that prepares the next one."""

from .base import probe
from .talk import Talk, call, quote, say
from .turn import Turn


def _need_warm(talk: Talk, turn: Turn) -> None:
    response = turn.response or {}
    talk.need_completed(turn)
    talk.need(response.get("output") == [] and not turn.items, f"a warm-up has the output {response.get('output')}")
    usage = response.get("usage") or {}
    talk.need(not usage.get("output_tokens"), f"a warm-up has sampled: {usage}")


@probe("L1", basis="OpenAI", shapes=["create"], needs=["warm_up", "chain"])
async def a_warm_up(talk: Talk) -> None:
    """A warm-up samples nothing: it completes with an empty ``output`` and an id (OpenAI, WebSocket mode). A create that
    names it, with an empty ``input`` and ``store: false`` like its predecessor, goes on from its input and its tools.
    Most servers generate (router-for-me/CLIProxyAPI, 6006 and 1901)."""
    client = await talk.socket()
    opening = client.opening(call(), quote())
    warm = await client.open(call(), quote(), generate=False, store=False)
    _need_warm(talk, warm)
    shown = [tool.get("name") for tool in (warm.response or {}).get("tools") or ()]
    talk.need(shown == [tool["name"] for tool in opening["tools"]], f"the warm-up has the tools {shown}")
    rest = {name: value for name, value in opening.items() if name != "input"}
    turn = await client.ask({**rest, "input": [], "previous_response_id": warm.response_id, "store": False})
    if not isinstance(turn, Turn):
        raise talk.failure(f"a warm-up can't be continued: {turn.code}: {turn.message}")
    talk.need([tool.get("name") for tool in (turn.response or {}).get("tools") or ()] == shown, "the tools are gone")
    if not turn.calls:
        raise talk.beyond("call a tool that it was warmed up with")


@probe("L1", basis="OpenAI", shapes=["create"], needs=["warm_up", "chain"])
async def a_warm_up_on_a_used_socket(talk: Talk) -> None:
    """The same behind a Response, on the same socket: some servers take a warm-up for one only in the first frame, and
    sample, and bill, later ones (router-for-me/CLIProxyAPI, 6006)."""
    client = await talk.socket()
    first = await client.open(say("Hello."))
    warm = await client.open(say("Never said."), generate=False)
    _need_warm(talk, warm)
    talk.need(first.response_id != warm.response_id, "two Responses with one id")
    talk.need_completed(await client.open(say("Now."), previous_response_id=warm.response_id))
