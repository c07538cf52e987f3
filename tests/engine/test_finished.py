"""What is kept of a Response that has ended: its log as it is stored, and its tokens while there is room."""

import pytest

from engine.replayed import PackedLog
from engine.server import EVERYBODY
from engine.testing.servers import eventually

from .http_support import Json, body, events, post, served


def fresh(response: Json) -> int:
    usage: Json = response["usage"]
    tokens: int = usage["input_tokens"] - usage["input_tokens_details"]["cached_tokens"]
    return tokens


@pytest.mark.parametrize("room", [0, 1_000_000])
async def test_tokens_are_kept_while_there_is_room(room: int) -> None:
    async with served(finished_tokens=room) as running, running.client() as http:
        first = await post(http, "responses", body({"say": "One."}))
        await post(http, "responses", body({"say": "Two."}))
        third = await post(http, "responses", body({"say": "Three."}, previous_response_id=first["id"]))
    assert third["usage"]["input_tokens"] > first["usage"]["total_tokens"]
    assert (fresh(third) == third["usage"]["input_tokens"]) == (room == 0)


async def test_the_log_of_an_ended_response_is_what_is_stored() -> None:
    async with served() as running, running.client() as http:
        response = await post(http, "responses", body({"say": "One."}))
        held = running.server.engine.held(EVERYBODY, response["id"])
        assert held is not None
        await eventually(lambda: isinstance(held.log, PackedLog))
        async with events(http, "GET", f"responses/{response['id']}", params={"stream": "true"}) as stream:
            replayed = await stream.rest()
        assert [event["sequence_number"] for event in replayed] == list(range(held.log.last + 1))
        assert replayed[-1]["response"] == response
