"""Everything that the server sends fits the openai package's own types: no field missing, none of another type or value.

Its client never checks this, since it builds its objects without validation; here pydantic does, in strict mode. Fields that
the types don't have are listed in ``EXTENSIONS``, which stands in ``docs/clients.md``, too: a field that is in neither fails.
"""

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.types import Model
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItemList
from openai.types.responses import (
    CompactedResponse,
    Response,
    ResponseItemList,
    ResponsesServerEvent,
    ResponseStreamEvent,
)
from openai.types.responses.input_token_count_response import InputTokenCountResponse
from pydantic import BaseModel
from websockets.sync.client import ClientConnection, connect

from ..docs.blocks import check_block
from .programs import SECONDS, Serving, function, program

Json = dict[str, Any]


# ---- what the package's types say


def _by_type(union: Any) -> dict[str, type[BaseModel]]:
    classes = get_args(get_args(union)[0])
    return {get_args(cls.model_fields["type"].annotation)[0]: cls for cls in classes}


OVER_HTTP: Final = _by_type(ResponseStreamEvent)
OVER_WEBSOCKETS: Final = _by_type(ResponsesServerEvent)

OWN_EVENTS: Final = {"response.done", "response.append.accepted", "response.attach.accepted"}
"""Only ever sent in the append shape."""

EXTENSIONS: Final = {
    "Response": {
        "engine": "what the engine did for it; in terminal events only",
        "store": "as it was asked; the API sends it, too",
        "presence_penalty": "as Open Responses has it",
        "frequency_penalty": "as Open Responses has it",
    },
    "IncompleteDetails": {
        "reason": "beside the API's: `max_tool_calls`; in the append shape the timeouts and `server_shutdown`",
    },
    "ResponseCustomToolCall": {"status": "as a function call has it"},
    "ResponseFunctionCallArgumentsDoneEvent": {"name": "of the function; the API's older form"},
    "CustomToolCallOutput": {"name": "of the tool, as a function call's stub has it in `response.steer.pending`"},
    "LocalShellCallOutput": {"call_id": "of the call; the API has it under `id`"},
    "ResponseFileSearchToolCall": {"error": "why the search failed", "max_num_results": "what the model asked for"},
    "ResponseWsError": {
        "code": "as in `error`: the form that the API has over HTTP, for clients that read it on a socket",
        "message": "as in `error`",
        "param": "as in `error`",
        "work": "whether it is safe to try again, see [errors](errors.md)",
        "headers": "`retry-after`, where trying again later helps",
        "response_id": "which Response is meant, if one is",
        "append": "which append was refused",
    },
    "ResponseWsErrorError": {"work": "as beside it"},
}
"""By class of the package: what we send beside it, and why."""

OWN_REASONS: Final = {"max_tool_calls", "tool_output_timeout", "response_timeout", "detached_timeout", "server_shutdown"}


def extensions(model: Any) -> Iterator[tuple[str, str]]:
    """The fields of ``model``, and of all within it, that their types don't have: (class, field)."""
    if isinstance(model, BaseModel):
        name = next(
            cls.__name__ for cls in reversed(type(model).__mro__) if issubclass(cls, BaseModel) and _is_of_the_wire(cls)
        )
        for key in model.model_extra or ():
            yield name, key
        for key in model.model_fields_set:
            yield from extensions(getattr(model, key, None))
    elif isinstance(model, list | tuple):
        for one in model:
            yield from extensions(one)


def _is_of_the_wire(cls: type[BaseModel]) -> bool:
    return bool(cls.model_fields)  # the package's own base classes have none


def check(value: Json, cls: type[BaseModel]) -> None:
    """Assert that ``value`` is a ``cls``, and has nothing that is not listed."""
    details = (value.get("response") or {} if "response" in value else value).get("incomplete_details")
    if details and details["reason"] in OWN_REASONS:
        details["reason"] = "max_output_tokens"
    model = cls.model_validate(value, strict=True)
    unlisted = [(name, key) for name, key in extensions(model) if key not in EXTENSIONS.get(name, {})]
    assert not unlisted, (unlisted, value)


def check_event(frame: Json, classes: Mapping[str, type[BaseModel]], lane: str | None = None) -> None:
    """Assert that ``frame`` is an event of the package."""
    assert frame["type"] in classes, f"no such event: {frame}"
    assert frame.get("stream_id") == lane, frame
    check(frame, classes[frame["type"]])


def test_what_is_checked_can_fail() -> None:
    good = {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0}
    good |= {"delta": "x", "logprobs": [], "sequence_number": 1}
    check_event(good, OVER_HTTP)
    missing = {key: value for key, value in good.items() if key != "logprobs"}
    for bad in (
        missing,
        good | {"delta": 1},
        good | {"more": 1},
        good | {"output_index": "0"},
        good | {"type": "response.done"},
    ):
        with pytest.raises((ValueError, AssertionError)):
            check_event(bad, OVER_HTTP)


def test_the_documentation_lists_the_extensions() -> None:
    lines = [f"| `{name}` | `{key}` | {why} |" for name, keys in EXTENSIONS.items() for key, why in keys.items()]
    check_block("clients.md", "extensions", "\n".join(["| in | field | |", "|---|---|---|", *lines, ""]))


# ---- rollouts

LIMIT: Final = 6
"""Turns after which a rollout is left."""

RESULTS: Final[dict[str, Json]] = {
    "function_call": {"type": "function_call_output", "output": "fine"},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": "fine"},
    "shell_call": {
        "type": "shell_call_output",
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    "local_shell_call": {"type": "local_shell_call_output", "output": "fine"},
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed", "output": "done"},
}


def results(output: list[Json]) -> list[Json]:
    """What answers the calls among ``output``, other than those that were cut short."""
    calls = [item for item in output if item["type"] in RESULTS and item.get("status") != "incomplete"]
    return [{**RESULTS[item["type"]], "call_id": item["call_id"]} for item in calls]


class Api:
    """The server's HTTP side, and its WebSocket, bare. ``seen`` are the events that were checked, by type."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        self.seen: set[str] = set()

    def check(self, frame: Json, classes: Mapping[str, type[BaseModel]], lane: str | None = None) -> None:
        """Assert that ``frame`` is an event of the package."""
        check_event(frame, classes, lane)
        self.seen.add(frame["type"])

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Any]:
        """The status, and the JSON."""
        connection = http.client.HTTPConnection(*self._server.address, timeout=SECONDS)
        try:
            connection.request(method, f"/v1{path}", json.dumps(body) if body else None, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def events(self, body: Json) -> list[Json]:
        """The events of a create."""
        connection = http.client.HTTPConnection(*self._server.address, timeout=SECONDS)
        try:
            connection.request(
                "POST", "/v1/responses", json.dumps({**body, "stream": True}), {"content-type": "application/json"}
            )
            *events, done, nothing = connection.getresponse().read().decode().split("\n\n")
        finally:
            connection.close()
        assert (done, nothing) == ("data: [DONE]", "")
        frames = []
        for event in events:
            kind, data = event.split("\n")
            frames.append(json.loads(data.removeprefix("data: ")))
            assert kind == f"event: {frames[-1]['type']}"
        return frames

    def socket(self) -> Any:
        """A WebSocket."""
        return connect(self._server.url.replace("http", "ws", 1) + "/responses", max_size=None)


def receive(socket: ClientConnection) -> Json:
    frame: Json = json.loads(socket.recv(timeout=SECONDS))
    return frame


def until_it_ends(api: Api, socket: ClientConnection, lane: str | None = None) -> Json:
    """Check events up to a terminal one, and return its Response; of an error, one without output."""
    while True:
        frame = receive(socket)
        api.check(frame, OVER_WEBSOCKETS, lane)
        if frame["type"] == "error":
            return {"output": []}
        if frame["type"] in ("response.completed", "response.incomplete", "response.failed"):
            return dict(frame["response"])


def over_http(api: Api, body: Json, lane: str | None) -> None:
    for turn in range(LIMIT):
        if turn % 2:
            status, response = api.ask("POST", "/responses", body)
            if status != 200:
                return
            check(response, Response)
        else:
            frames = api.events(body)
            for frame in frames:
                api.check(frame, OVER_HTTP)
            response = frames[-1]["response"]
        outputs = results(response["output"])
        if not outputs or response["status"] not in ("completed", "incomplete"):
            return
        body = {**body, "previous_response_id": response["id"], "input": outputs}


def as_a_chain(api: Api, body: Json, lane: str | None) -> None:
    with api.socket() as socket:
        for _ in range(LIMIT):
            socket.send(json.dumps({"type": "response.create", "stream_id": lane, **body}))
            response = until_it_ends(api, socket, lane)
            outputs = results(response["output"])
            if not outputs or response["status"] not in ("completed", "incomplete"):
                return
            body = {**body, "previous_response_id": response["id"], "input": outputs}


def as_one_response(api: Api, body: Json, lane: str | None) -> None:
    with api.socket() as socket:
        socket.send(json.dumps({"type": "response.create", "stream_id": lane, "continuation": "append", **body}))
        calls: list[Json] = []
        while True:
            frame = receive(socket)
            if frame["type"] not in OWN_EVENTS:
                api.check(frame, OVER_WEBSOCKETS, lane)
            if frame["type"] == "response.output_item.done":
                calls.append(frame["item"])
            elif frame["type"] == "response.done":
                socket.send(json.dumps({"type": "response.append", "stream_id": lane, "input": results(calls)}))
                calls = []
            elif frame["type"] in ("response.completed", "response.incomplete", "response.failed", "error"):
                return


TOOLS: Final = [
    function("add", a="integer"),
    {"type": "function", "name": "bare"},
    {"type": "custom", "name": "note", "description": "Notes."},
    {"type": "custom", "name": "bound", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "file_search", "vector_store_ids": ["files"]},
    {"type": "web_search"},
]
CALLS: Final = [
    {"name": "add", "arguments": {"a": 1}},
    {"name": "bare"},
    {"name": "note", "arguments": "free text, « with ümlauts »"},
    {"name": "bound", "arguments": "aaa"},
    {"name": "shell", "arguments": {"commands": ["ls", "pwd"], "timeout_ms": 10, "max_output_length": None}},
    {"name": "shell", "arguments": {"commands": ["ls"]}},
    {"name": "local_shell", "arguments": {"type": "exec", "command": ["ls"], "env": {}, "working_directory": "/tmp"}},
    {"name": "apply_patch", "arguments": {"type": "update_file", "path": "a", "diff": "@@\n-a\n+b"}},
    {"name": "apply_patch", "arguments": {"type": "delete_file", "path": "a"}},
    {"name": "file_search", "arguments": {"query": "pedal"}},
    {"name": "file_search", "arguments": "no JSON"},
]
calls = st.sampled_from(CALLS)
plain_steps = st.one_of(
    st.builds(lambda text: {"say": text}, st.text(max_size=20)),
    st.builds(lambda text: {"reason": text}, st.text(max_size=20)),
    st.builds(lambda count: {"say": {"tokens": count}}, st.integers(0, 30)),
    st.builds(lambda one, wait: {"call": one, "wait": wait}, calls, st.booleans()),
    st.builds(lambda many, wait: {"calls": many, "wait": wait}, st.lists(calls, min_size=1, max_size=3), st.booleans()),
    st.sampled_from([{"wait": True}, {"fail": {"fault": "busy"}}, {"fail": {"fault": "request"}}, {"fail": {}}]),
    st.sampled_from([{"stop": "end"}, {"stop": "content_filter"}, {"stop": "max_output_tokens"}]),
)
programs = st.lists(plain_steps, min_size=1, max_size=5)
FIELDS: Final[dict[str, Any]] = {
    "max_output_tokens": st.integers(1, 40),
    "max_tool_calls": st.integers(1, 2),
    "parallel_tool_calls": st.booleans(),
    "tool_choice": st.sampled_from(
        [
            "auto",
            "none",
            {"type": "function", "name": "add"},
            {"type": "custom", "name": "note"},
            {"type": "shell"},
            {"type": "apply_patch"},
            {"type": "file_search"},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}, {"type": "shell"}]},
        ]
    ),
    "instructions": st.text(max_size=10),
    "metadata": st.just({"a": "b"}),
    "reasoning": st.sampled_from([{"effort": "low"}, {"effort": "high", "summary": "auto"}, {}]),
    "text": st.sampled_from([{"verbosity": "low"}, {"format": {"type": "json_object"}}, {"format": {"type": "text"}}]),
    "temperature": st.sampled_from([0, 0.5, 2]),
    "top_p": st.sampled_from([0.5, 1]),
    "store": st.just(True),
    "truncation": st.sampled_from(["auto", "disabled"]),
    "service_tier": st.sampled_from(["auto", "default"]),
    "prompt_cache_key": st.just("key"),
    "safety_identifier": st.just("someone"),
    "include": st.just(["file_search_call.results"]),
}
fields = st.fixed_dictionaries({}, optional=FIELDS)


each_shape = pytest.mark.parametrize("shape", [over_http, as_a_chain, as_one_response], ids=["http", "create", "append"])
Shape = Callable[[Api, Json, str | None], None]


@each_shape
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=programs, fields=fields, lane=st.sampled_from([None, "lane"]))
def test_all_that_programs_do(server: Serving, shape: Shape, steps: list[Json], fields: Json, lane: str | None) -> None:
    shape(Api(server), {"model": "scripted", "input": program(*steps), "tools": TOOLS, **fields}, lane)


TYPES: Final = {
    *(f"response.{name}" for name in ("created", "in_progress", "completed")),
    *(
        f"response.{name}.{end}"
        for name in ("output_item", "content_part", "reasoning_summary_part")
        for end in ("added", "done")
    ),
    *(
        f"response.{name}.{end}"
        for name in ("output_text", "reasoning_summary_text", "function_call_arguments", "custom_tool_call_input")
        for end in ("delta", "done")
    ),
    *(f"response.file_search_call.{stage}" for stage in ("in_progress", "searching", "completed")),
}


@each_shape
def test_every_type_of_event_is_met(server: Serving, shape: Shape) -> None:
    api = Api(server)
    steps = ({"reason": "Hm."}, {"say": "So."}, {"calls": CALLS[:-1]}, {"say": "Done."})
    shape(api, {"model": "scripted", "input": program(*steps), "tools": TOOLS}, "lane")
    assert api.seen == TYPES


# ---- what programs don't do

BAD: Final[dict[str, str]] = {
    "not JSON": "{",
    "no object": "[]",
    "no type": "{}",
    "unknown type": json.dumps({"type": "response.unknown"}),
    "no model": json.dumps({"type": "response.create", "input": "x"}),
    "unknown model": json.dumps({"type": "response.create", "model": "nobody", "input": "x"}),
    "bad field": json.dumps({"type": "response.create", "model": "scripted", "input": 7}),
    "bad value": json.dumps({"type": "response.create", "model": "scripted", "input": "x", "temperature": 9}),
    "unknown previous": json.dumps({"type": "response.create", "model": "scripted", "previous_response_id": "resp_x"}),
    "bad lane": json.dumps({"type": "response.create", "model": "scripted", "stream_id": ""}),
    "append": json.dumps({"type": "response.append", "input": [{"role": "user", "content": "x"}]}),
}


@pytest.mark.parametrize("frame", BAD.values(), ids=BAD)
def test_errors(server: Serving, frame: str) -> None:
    with Api(server).socket() as socket:
        socket.send(frame)
        answer = receive(socket)
        assert answer["type"] == "error"
        check_event(answer, OVER_WEBSOCKETS, answer.get("stream_id"))


def test_steering(server: Serving) -> None:
    seen: list[str] = []

    def steer(socket: ClientConnection, response_id: str, text: str) -> None:
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": response_id, "input": text}))

    def until(socket: ClientConnection, kind: str) -> Json:
        while True:
            frame = receive(socket)
            check_event(frame, OVER_WEBSOCKETS, "lane")
            seen.append(frame["type"])
            if frame["type"] == kind:
                return frame

    def create(socket: ClientConnection, *steps: Json) -> str:
        body = {"model": "scripted", "input": program(*steps, tokens_per_second=100), "tools": TOOLS}
        socket.send(json.dumps({"type": "response.create", "stream_id": "lane", **body}))
        return str(until(socket, "response.created")["response"]["id"])

    with Api(server).socket() as socket:
        first = create(socket, {"repeat": 100, "steps": [{"say": {"tokens": 3}}]})
        steer(socket, first, program({"say": "As you like."}))
        until(socket, "response.incomplete")
        until(socket, "response.completed")
        calls = [CALLS[index] for index in (0, 2, 4, 7)]  # the API has no stub for a ``local_shell_call_output``
        second = create(socket, {"calls": calls, "wait": False}, {"say": {"tokens": 20}})
        until(socket, "response.output_item.added")
        steer(socket, second, "And then?")
        pending = until(socket, "response.steer.pending")
        assert len(pending["required_input"]) == len(calls)
        steer(socket, second, "Too late.")
        until(socket, "response.steer.failed")
    assert "response.steer.accepted" in seen


def test_the_answers_of_the_other_endpoints(server: Serving) -> None:
    api = Api(server)

    def get(method: str, path: str, cls: type[BaseModel], body: Json | None = None) -> Json:
        status, value = api.ask(method, path, body)
        assert status == 200, value
        check(value, cls)
        return dict(value)

    text = program({"reason": "Hm."}, {"calls": [one for one in CALLS if one["name"] != "file_search"]}, {"say": "Done."})
    body = {"model": "scripted", "input": text, "tools": TOOLS}
    first = get("POST", "/responses", Response, body)
    second = get(
        "POST", "/responses", Response, {**body, "previous_response_id": first["id"], "input": results(first["output"])}
    )
    assert get("GET", f"/responses/{second['id']}", Response)["output"] == second["output"]
    get("GET", f"/responses/{first['id']}/input_items", ResponseItemList)
    assert len(get("GET", f"/responses/{second['id']}/input_items", ResponseItemList)["data"]) == 9
    get("POST", "/responses/input_tokens", InputTokenCountResponse, body)
    background = get("POST", "/responses", Response, {**body, "background": True})
    get("POST", f"/responses/{background['id']}/cancel", Response)
    _, models = api.ask("GET", "/models")
    check(models["data"][0], Model)
    get("GET", "/models/scripted", Model)


def test_the_answers_of_conversations(server: Serving) -> None:
    api = Api(server)
    item = {"type": "message", "role": "user", "content": "Hello."}
    status, conversation = api.ask("POST", "/conversations", {"items": [item], "metadata": {"a": "b"}})
    assert status == 200, conversation
    check(conversation, Conversation)
    path = f"/conversations/{conversation['id']}"
    body = {"model": "scripted", "tools": TOOLS, "conversation": conversation["id"]}
    status, response = api.ask("POST", "/responses", {**body, "input": program({"reason": "Hm."}, {"say": "Hello."})})
    assert status == 200, response
    check(response, Response)
    for method, under, cls in (
        ("GET", "", Conversation),
        ("GET", "/items", ConversationItemList),
        ("DELETE", "", ConversationDeletedResource),
    ):
        status, value = api.ask(method, path + under)
        assert status == 200, value
        check(value, cls)


def test_a_compaction(server: Serving) -> None:
    status, window = Api(server).ask("POST", "/responses/compact", {"model": "scripted", "input": "Hello."})
    assert status == 200
    users = [item for item in window["output"] if item["type"] == "message"]
    assert users == [{"type": "message", "role": "user", "content": "Hello."}] or users[0]["role"] == "user"
    # The package says that all messages are the assistant's, and the API documents users' messages: they are left out here.
    check({**window, "output": [item for item in window["output"] if item["type"] != "message"]}, CompactedResponse)
