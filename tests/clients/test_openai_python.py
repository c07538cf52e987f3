"""An unmodified openai-python against ``sostenuto serve``: HTTP, server-sent events, WebSockets, lanes."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import (
    APIConnectionError,
    AsyncOpenAI,
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    OpenAI,
    pydantic_function_tool,
)
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
    ResponsesWebSocketSession,
)
from pydantic import BaseModel
from websockets.exceptions import InvalidStatus

from .matrix import shows
from .programs import ANSWER, MADE, ROLLOUT, SECONDS, TOOLS, Hands, Serving, Wire, call, program, roll, serving

NAME = "scripted"
LIMITS = ResponsesWebSocketLimits(
    max_lanes=33, max_events_per_lane=1000, max_events=10_000, max_bytes_per_lane=10**7, max_bytes=10**8
)


@pytest.fixture
def client(server: Serving) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.url, api_key="any", max_retries=0, timeout=SECONDS) as one:
        yield one


class Sum(BaseModel):
    """The tool's arguments."""

    a: int
    b: int


class Answer(BaseModel):
    """What the model is asked for."""

    city: str
    degrees: float


# ---- HTTP: one Response


@shows("openai-python", "http", "`create`")
def test_a_response_as_json(client: OpenAI) -> None:
    response = client.responses.create(
        model=NAME,
        input=program({"reason": "Be polite."}, {"say": "Hello, wörld!"}),
        instructions="Be brief.",
        metadata={"a": "b"},
    )
    assert response.output_text == "Hello, wörld!"
    assert response.status == "completed"
    assert response.instructions == "Be brief."
    assert response.metadata == {"a": "b"}
    reasoning, message = response.output
    assert reasoning.type == "reasoning"
    assert [part.text for part in reasoning.summary] == ["Be polite."]
    assert message.type == "message"
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.output_tokens_details.reasoning_tokens > 0


@shows("openai-python", "http", "`create(stream=True)`")
def test_a_response_as_events(client: OpenAI) -> None:
    with client.responses.create(model=NAME, input=program({"say": "Hello there, you."}), stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello there, you."
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "Hello there, you."


@shows("openai-python", "http", "`stream()`")
def test_the_stream_helper_with_text(client: OpenAI) -> None:
    with client.responses.stream(model=NAME, input=program({"reason": "Hm."}, {"say": "Hello there, you."})) as stream:
        deltas = [event for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert deltas[-1].snapshot == "Hello there, you."
    assert final.output_text == "Hello there, you."


@shows("openai-python", "http", "`stream()`")
def test_the_stream_helper_with_tool_calls(client: OpenAI) -> None:
    steps = {"calls": [{"name": "Sum", "arguments": {"a": 1, "b": 2}}, {"name": "Sum", "arguments": {"a": 3, "b": 4}}]}
    with client.responses.stream(model=NAME, input=program(steps), tools=[pydantic_function_tool(Sum)]) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert json.loads(snapshots[-1]) == {"a": 3, "b": 4}
    calls = [item for item in final.output if item.type == "function_call"]
    assert [one.parsed_arguments for one in calls] == [Sum(a=1, b=2), Sum(a=3, b=4)]


@shows("openai-python", "http", "`parse` (structured output)")
def test_structured_output(client: OpenAI) -> None:
    said = json.dumps({"city": "Graz", "degrees": 21.5})
    parsed = client.responses.parse(model=NAME, input=program({"say": said}), text_format=Answer)
    assert parsed.output_parsed == Answer(city="Graz", degrees=21.5)
    with client.responses.stream(model=NAME, input=program({"say": said}), text_format=Answer) as stream:
        stream.until_done()
        assert stream.get_final_response().output_parsed == Answer(city="Graz", degrees=21.5)
    wrong = client.responses.create(
        model=NAME,
        input=program({"say": json.dumps({"city": "Graz"})}),
        text={"format": {"type": "json_schema", "name": "answer", "schema": Answer.model_json_schema()}},
    )
    assert wrong.status == "failed"
    assert wrong.error is not None
    assert "'degrees' is a required property" in wrong.error.message


@shows("openai-python", "http", "an answer cut short")
def test_an_answer_that_is_cut(client: OpenAI) -> None:
    response = client.responses.create(model=NAME, input=program({"say": {"tokens": 50}}), max_output_tokens=20)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"
    assert response.usage is not None
    assert response.usage.output_tokens == 20


# ---- HTTP: rollouts


@shows("openai-python", "http", "a rollout with parallel calls, by `previous_response_id`")
def test_a_rollout_as_a_chain(client: OpenAI) -> None:
    hands = Hands()
    responses = roll(client.responses.create, hands)
    assert hands.ran == MADE
    assert [len(response.output) for response in responses] == [5, 1, 1]
    assert responses[-1].output_text == ANSWER
    assert [one.previous_response_id for one in responses] == [None, *(one.id for one in responses[:-1])]
    assert {one.engine["shape"] for one in responses} == {"http"}


@shows("openai-python", "http", "a rollout with the whole history each time, `store=False`")
@pytest.mark.parametrize("streamed", [False, True])
def test_a_rollout_with_the_whole_history(client: OpenAI, streamed: bool) -> None:
    def create(history: list[Any]) -> Any:
        fields: Any = {"model": NAME, "input": history, "tools": TOOLS, "store": False}
        if not streamed:
            return client.responses.create(**fields)
        with client.responses.stream(**fields) as stream:
            return stream.get_final_response()

    hands, history = Hands(), [{"role": "user", "content": ROLLOUT}]
    for _ in range(3):
        response = create(history)
        history += [item.model_dump(mode="json", exclude_unset=True) for item in response.output]
        history += hands.results(response.output)
    assert hands.ran == MADE
    assert response.output_text == ANSWER


@shows("openai-python", "http", "`parallel_tool_calls=False`")
def test_one_call_a_turn(client: OpenAI) -> None:
    hands = Hands()
    responses = roll(client.responses.create, hands, parallel_tool_calls=False)
    assert hands.ran == MADE
    assert [sum("call" in item.type for item in response.output) for response in responses] == [1, 1, 1, 1, 0]


@shows("openai-python", "http", "a rollout in asyncio")
def test_a_rollout_in_asyncio(server: Serving) -> None:
    async def main() -> list[str]:
        async with AsyncOpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
            hands = Hands()
            response = await client.responses.create(model=NAME, input=ROLLOUT, tools=TOOLS)
            while results := hands.results(response.output):
                async with client.responses.stream(
                    model=NAME,
                    previous_response_id=response.id,
                    input=results,
                    tools=TOOLS,
                ) as stream:
                    response = await stream.get_final_response()
            return [*hands.ran, response.output_text]

    assert asyncio.run(main()) == [*MADE, ANSWER]


@shows("openai-python", "http", "hosted `file_search`")
def test_a_hosted_tool(client: OpenAI) -> None:
    steps = call("file_search", {"query": "pedal"}), {"say": "It says: {{output}}"}
    response = client.responses.create(
        model=NAME, input=program(*steps), tools=[{"type": "file_search", "vector_store_ids": ["files"]}]
    )
    search = response.output[0]
    assert search.type == "file_search_call"
    assert search.results is not None
    assert search.results[0].filename == "pedal.md"
    assert "holds what sounds" in response.output_text


# ---- HTTP: Responses that are stored, or run in the background


@shows("openai-python", "http", "`retrieve`, `delete`, `input_items`")
def test_stored_responses(client: OpenAI) -> None:
    first = client.responses.create(
        model=NAME, input=program(call("add", {"a": 1, "b": 2}), {"say": "{{output}}"}), tools=TOOLS
    )
    results = Hands().results(first.output)
    second = client.responses.create(model=NAME, input=results, previous_response_id=first.id, tools=TOOLS)
    found = client.responses.retrieve(second.id)
    assert found.output_text == second.output_text == "3"
    page = client.responses.input_items.list(second.id, order="asc", limit=1)
    items = list(page)  # follows the pages
    assert [item.type for item in items] == ["function_call_output"]
    assert client.responses.delete(second.id) is None
    with pytest.raises(NotFoundError):
        client.responses.retrieve(second.id)


@shows("openai-python", "http", "`retrieve(stream=True, starting_after=…)`")
def test_the_events_of_a_stored_response(client: OpenAI) -> None:
    with client.responses.create(model=NAME, input=program({"say": "Hello there, you."}), stream=True) as stream:
        events = list(stream)
    first = events[0]
    assert first.type == "response.created"
    with client.responses.retrieve(first.response.id, stream=True, starting_after=3) as again:
        assert list(again) == events[4:]
    with client.responses.stream(response_id=first.response.id) as helper:
        assert helper.get_final_response().output_text == "Hello there, you."


@shows("openai-python", "http", "`background=True`, polled, streamed and cancelled")
def test_responses_in_the_background(client: OpenAI) -> None:
    slow = program({"say": {"tokens": 40}}, tokens_per_second=100)
    response = client.responses.create(model=NAME, input=slow, background=True)
    assert response.status in ("queued", "in_progress")
    assert response.background is True
    deadline = time.monotonic() + SECONDS
    while response.status in ("queued", "in_progress"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        response = client.responses.retrieve(response.id)
    assert response.status == "completed"

    endless = program({"say": {"tokens": 100_000}}, tokens_per_second=100)
    with client.responses.create(model=NAME, input=endless, background=True, stream=True) as stream:
        created = next(stream)
    assert created.type == "response.created"
    with client.responses.retrieve(created.response.id, stream=True, starting_after=0) as stream:
        assert next(stream).sequence_number == 1
        cancelled = client.responses.cancel(created.response.id)
        assert cancelled.status == "cancelled"
        assert list(stream)[-1].sequence_number > 1  # it ends
    assert client.responses.cancel(created.response.id).status == "cancelled"


# ---- HTTP: beside Responses


@shows("openai-python", "http", "`models`, `input_tokens.count`, `compact`")
def test_the_other_endpoints(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).id == NAME
    text = program({"say": "Hello."})
    response = client.responses.create(model=NAME, input=text)
    assert response.usage is not None
    assert client.responses.input_tokens.count(model=NAME, input=text).input_tokens == response.usage.input_tokens
    window = client.responses.compact(model=NAME, previous_response_id=response.id)
    assert window.output[-1].type == "compaction"
    # Its type for a user's message is that of the assistant's: without ``warnings=False`` it warns of itself.
    more: Any = [item.model_dump(mode="json", exclude_unset=True, warnings=False) for item in window.output]
    again = client.responses.create(model=NAME, input=[*more, {"role": "user", "content": program({"say": "On."})}])
    assert again.output_text == "On."


@shows("openai-python", "http", "`conversations`")
def test_conversations(client: OpenAI) -> None:
    conversation = client.conversations.create(metadata={"topic": "sums"})
    steps = program(call("add", {"a": 2, "b": 2}), {"say": "{{output}}"})
    first = client.responses.create(model=NAME, conversation=conversation.id, input=steps, tools=TOOLS)
    results = Hands().results(first.output)
    second = client.responses.create(model=NAME, conversation=conversation.id, input=results, tools=TOOLS)
    assert second.output_text == "4"
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [item.type for item in items] == ["message", "function_call", "function_call_output", "message"]
    assert client.conversations.retrieve(conversation.id).metadata == {"topic": "sums"}
    assert client.conversations.delete(conversation.id).deleted


@shows("openai-python", "http", "a rollout that names what was said before by `item_reference`")
@pytest.mark.parametrize("kind", [{"type": "item_reference"}, {}, {"type": None}])
def test_items_by_their_ids(client: OpenAI, kind: dict[str, Any]) -> None:
    history: list[Any] = [{"role": "user", "content": program(call("add", {"a": 2, "b": 2}), {"say": "{{output}}"})}]
    first = client.responses.create(model=NAME, input=history, tools=TOOLS)
    history += [*({**kind, "id": item.id} for item in first.output), *Hands().results(first.output)]
    second = client.responses.create(model=NAME, input=history, tools=TOOLS)
    assert second.output_text == "4"
    assert [item.type for item in client.responses.input_items.list(second.id, order="asc")] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    client.responses.delete(first.id)
    with pytest.raises(NotFoundError) as refused:
        client.responses.create(model=NAME, input=history, tools=TOOLS)
    assert (refused.value.code, refused.value.param) == ("item_not_found", "input[1].id")


# ---- errors


@shows("openai-python", "http", "errors, as its exceptions")
def test_errors_are_its_exceptions(client: OpenAI, tmp_path: Path) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=NAME, input="x", temperature=7)
    assert (refused.value.code, refused.value.param, refused.value.type) == (
        "invalid_value",
        "temperature",
        "invalid_request_error",
    )
    with pytest.raises(BadRequestError) as refused:
        client.responses.create(model=NAME, input="x", previous_response_id="resp_nobody")
    assert refused.value.code == "previous_response_not_found"
    with pytest.raises(NotFoundError) as unknown:
        client.responses.create(model="nobody", input="x")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(NotFoundError):
        client.responses.retrieve("resp_nobody")
    with pytest.raises(BadRequestError), client.responses.stream(model=NAME, input="x", top_p=7) as stream:
        stream.until_done()
    with serving(tmp_path, "--key", "secret") as locked:
        with OpenAI(base_url=locked.url, api_key="guess") as stranger, pytest.raises(AuthenticationError):
            stranger.responses.create(model=NAME, input="x")
        with OpenAI(base_url=locked.url, api_key="secret") as friend:
            assert friend.responses.create(model=NAME, input=program({"say": "Hi."})).output_text == "Hi."
    with OpenAI(base_url=locked.url, api_key="any", max_retries=0) as late, pytest.raises(APIConnectionError):
        late.models.list()


@shows("openai-python", "http", "errors, as its exceptions")
def test_a_model_that_fails(client: OpenAI) -> None:
    steps = program({"say": "Well"}, {"fail": {"fault": "busy", "message": "no room"}})
    response = client.responses.create(model=NAME, input=steps)
    assert response.status == "failed"
    assert response.error is not None
    assert (response.error.code, response.error.message) == ("rate_limit_exceeded", "no room")
    with client.responses.create(model=NAME, input=steps, stream=True) as stream:
        last = list(stream)[-1]
    assert last.type == "response.failed"
    assert last.response.output_text == "Well"


# ---- WebSockets


def final(events: Iterator[Any]) -> Any:
    """Read events up to the terminal one, and return its Response."""
    for event in events:
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            return event.response
        assert event.type != "error", event
    raise AssertionError("the connection has ended")


def roll_over(connection: Any, hands: Hands, **fields: Any) -> list[Any]:
    def create(**body: Any) -> Any:
        connection.response.create(**body)
        return final(connection)

    return roll(create, hands, **fields)


@shows("openai-python", "create", "`connect()`: a rollout with parallel calls")
@pytest.mark.parametrize("store", [True, False])
def test_a_rollout_over_a_websocket(client: OpenAI, store: bool) -> None:
    hands = Hands()
    with client.responses.connect() as connection:
        responses = roll_over(connection, hands, store=store)
    assert hands.ran == MADE
    assert [len(response.output) for response in responses] == [5, 1, 1]
    assert responses[-1].output_text == ANSWER
    assert {one.engine["shape"] for one in responses} == {"create"}
    if store:
        assert client.responses.retrieve(responses[-1].id).output_text == ANSWER
    else:
        with pytest.raises(NotFoundError):
            client.responses.retrieve(responses[-1].id)


@shows("openai-python", "create", "a rollout that names what was said before by `item_reference`, stored or not")
@pytest.mark.parametrize("store", [True, False])
def test_items_by_their_ids_over_a_websocket(client: OpenAI, store: bool) -> None:
    hands = Hands()
    history: list[Any] = [{"role": "user", "content": ROLLOUT}]
    with client.responses.connect() as connection:
        while True:
            connection.response.create(model=NAME, input=history, tools=TOOLS, store=store)
            response = final(connection)
            results = hands.results(response.output)
            if not results:
                break
            history += [*({"type": "item_reference", "id": item.id} for item in response.output), *results]
    assert hands.ran == MADE
    assert response.output_text == ANSWER


@shows("openai-python", "create", "`connect()` in asyncio, with handlers")
def test_a_rollout_over_a_websocket_in_asyncio(server: Serving) -> None:
    async def main() -> list[str]:
        hands, said = Hands(), ""

        async def go_on(event: Any) -> None:
            nonlocal said
            results = hands.results(event.response.output)
            if results:
                await connection.response.create(
                    model=NAME,
                    previous_response_id=event.response.id,
                    input=results,
                    tools=TOOLS,
                    store=False,
                )
            else:
                said = event.response.output_text
                await connection.close()

        async with AsyncOpenAI(base_url=server.url, api_key="any") as client, client.responses.connect() as connection:
            connection.on("response.completed", go_on)
            await connection.response.create(model=NAME, input=ROLLOUT, tools=TOOLS, store=False)
            await connection.dispatch_events()
        return [*hands.ran, said]

    assert asyncio.run(main()) == [*MADE, ANSWER]


@shows("openai-python", "create", "a warm-up (`generate=False`)")
def test_a_warm_up(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model=NAME, input=program({"say": "Warm."}), store=False, generate=False)
        warm = final(connection)
        assert warm.output == []
        assert warm.usage.output_tokens == 0
        connection.response.create(model=NAME, input=[], store=False, previous_response_id=warm.id)
        response = final(connection)
    assert response.output_text == "Warm."
    assert response.usage.input_tokens_details.cached_tokens == warm.usage.input_tokens


@shows("openai-python", "create", "steering")
def test_steering(client: OpenAI) -> None:
    slow = program({"repeat": 1000, "steps": [{"say": {"tokens": 5}}]}, tokens_per_second=100)
    with client.responses.connect() as connection:
        connection.response.create(model=NAME, input=slow, store=False)
        created = connection.recv()
        assert created.type == "response.created"
        connection.response.steer(previous_response_id=created.response.id, input=program({"say": "As you like."}))
        accepted = next(event for event in connection if event.type.startswith("response.steer"))
        assert accepted.type == "response.steer.accepted"
        steered = final(connection)
        assert steered.status == "incomplete"
        assert steered.incomplete_details.reason == "steered"
        successor = final(connection)
    assert successor.previous_response_id == created.response.id
    assert successor.output_text == "As you like."


@shows("openai-python", "create", "errors leave the connection open")
def test_errors_over_a_websocket(client: OpenAI, tmp_path: Path) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model=NAME, input="x", previous_response_id="resp_nobody", store=False)
        error = connection.recv()
        assert error.type == "error"
        assert (error.status, error.error.code) == (400, "previous_response_not_found")
        connection.response.create(model=NAME, input="x", background=True)
        error = connection.recv()
        assert error.type == "error"
        assert (error.error.code, error.error.param) == ("unsupported_parameter", "background")
        connection.response.create(model=NAME, input=program({"say": "Still here."}))
        assert final(connection).output_text == "Still here."
    with (
        serving(tmp_path, "--key", "secret") as locked,
        OpenAI(base_url=locked.url, api_key="guess") as stranger,
        pytest.raises(InvalidStatus, match="401"),
        stranger.responses.connect(),
    ):
        pass


@shows("openai-python", "create", "lanes (`ResponsesWebSocketSession`)")
def test_lanes(client: OpenAI) -> None:
    def body(text: str, rate: float) -> Any:
        return {
            "type": "response.create",
            "model": NAME,
            "input": program({"say": text}, tokens_per_second=rate),
            "store": False,
        }

    with client.responses.connect() as connection, ResponsesWebSocketSession(connection, limits=LIMITS) as session:
        slow, fast = session.lane("slow"), session.lane("fast")
        slow.send(body("I take my time, since there is no hurry.", 20))
        fast.send(body("I am quick.", 1000))
        quick = fast.get_final_response(timeout=SECONDS)
        assert quick.output_text == "I am quick."
        assert slow.recv(timeout=SECONDS).type == "response.created"  # it began, and has not ended
        fast.send({**body("x", 1), "previous_response_id": "resp_nobody"})
        with pytest.raises(ResponsesWebSocketError) as refused:
            fast.get_final_response(timeout=SECONDS)
        assert refused.value.event.stream_id == "fast"
        assert slow.get_final_response(timeout=SECONDS).output_text == "I take my time, since there is no hurry."
        session.default.send(body("And I have no name.", 1000))
        assert session.default.get_final_response(timeout=SECONDS).output_text == "And I have no name."


@shows("openai-python", "create", "lanes in asyncio, each with a rollout")
def test_rollouts_on_lanes_in_asyncio(server: Serving) -> None:
    async def rollout(lane: Any) -> list[str]:
        hands = Hands()
        body = {"type": "response.create", "model": NAME, "tools": TOOLS, "store": False}
        await lane.send({**body, "input": ROLLOUT})
        response = await lane.get_final_response()
        while results := hands.results(response.output):
            await lane.send({**body, "input": results, "previous_response_id": response.id})
            response = await lane.get_final_response()
        return [*hands.ran, response.output_text]

    async def main() -> list[list[str]]:
        async with (
            AsyncOpenAI(base_url=server.url, api_key="any") as client,
            client.responses.connect() as connection,
            AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
        ):
            return await asyncio.gather(*(rollout(session.lane(f"lane-{number}")) for number in range(20)))

    assert asyncio.run(main()) == [[*MADE, ANSWER]] * 20


@shows("openai-python", "create", "`on_reconnecting`: a connection that is cut, a server that restarts")
@pytest.mark.parametrize("restarts", [False, True])
def test_it_reconnects(tmp_path: Path, restarts: bool) -> None:
    """The second of three Responses meets a connection that ends; what is sent while it reconnects is sent then."""
    hands, codes, bodies = Hands(), [], []
    steps = json.dumps({**json.loads(ROLLOUT), "tokens_per_second": 100})

    def again(event: Any) -> None:
        if not codes:
            connection.response.create(**bodies[-1])
        codes.append(event.close_code)

    def create(**body: Any) -> Any:
        bodies.append(body | {"input": steps} if body["input"] == ROLLOUT else body)
        if restarts and len(bodies) == 2:
            server.restart()
            return final(connection)
        connection.response.create(**bodies[-1])
        if len(bodies) == 2:
            assert connection.recv().type == "response.created"
            wire.drop()
        return final(connection)

    with (
        serving(tmp_path) as server,
        Wire(server.address) as wire,
        OpenAI(base_url=wire.url, api_key="any") as client,
        client.responses.connect(on_reconnecting=again, initial_delay=0.01) as connection,
    ):
        responses = roll(create, hands)
    assert hands.ran == MADE
    assert responses[-1].output_text == ANSWER
    assert codes[0] == (1001 if restarts else 1006)
