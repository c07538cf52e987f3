"""A policy at work: a blocked append, which changes nothing, and a redacted one. Run it: python examples/policy.py

The rules are those of ``policy.toml``: a message with a card number is refused, an access key is redacted.
"""

import json
from pathlib import Path

import trio

from engine.client import Client, RolloutError, connect
from engine.serving import Options, running
from protocol.client import RunCall

RULES = Path(__file__).parent / "policy.toml"
PROGRAM = {
    "program": [
        {"call": {"name": "read_config"}},
        {"say": "The model was given: {{output_of:read_config}}"},
    ]
}
TOOL = {"type": "function", "name": "read_config"}

# Made up, all of it.
CARD = {"type": "message", "role": "user", "content": "By the way, my card is 4111 1111 1111 1111."}
SECRET = "region = eu-west-1, key = AKIAABCDEFGHIJKLMNOP"


async def send_what_is_blocked(client: Client) -> str:
    """Answer the call in one append with a card number. Returns the id of the Response, which lives on."""
    async with client.rollout(model="scripted", input=json.dumps(PROGRAM), tools=[TOOL]) as rollout:
        rollout.leave_running()
        try:
            async for event in rollout:
                for notice in event.notices:
                    if isinstance(notice, RunCall):
                        output = {"type": "function_call_output", "call_id": notice.item["call_id"], "output": "a = 1"}
                        await rollout.append(output, CARD)
        except RolloutError as refused:
            print(f"refused: {refused}")
    assert rollout.state.response_id is not None
    return rollout.state.response_id


async def send_what_is_redacted(client: Client, response_id: str) -> str:
    """The call still waits: nothing of the refused append counts. Returns what the model says."""
    async with client.attach(response_id) as rollout:
        async for event in rollout:
            for notice in event.notices:
                if isinstance(notice, RunCall):
                    print(f"{notice.item['name']} still waits for its result; sent: {SECRET}")
                    await rollout.answer(notice.item, SECRET)
    return rollout.result().text


async def main() -> None:
    options = Options(port=0, data=":memory:", policy=str(RULES))
    async with running(options) as server, connect(server.url) as client:
        response_id = await send_what_is_blocked(client)
        print(await send_what_is_redacted(client, response_id))
        [row] = await server.database.rows()
        print(f"in the ledger: 1 Response, {row['status']}, flags: {row['flags']}")


trio.run(main)
