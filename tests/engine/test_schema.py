"""``sostenuto schema``: what validators that others wrote say of it, and whether the server does what it says.

- OpenAPI by openapi-spec-validator, AsyncAPI by its own parser (from npm);
- every frame and answer of rollouts in the three shapes fits the schemas, closed to fields that they don't name;
- schemathesis, against a real ``sostenuto serve``: ``schemathesis/`` beside this file has what it is told.
"""

import copy
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from engine import Server, Services, describe
from engine.cli import main
from engine.stages.validate import INCLUDABLE, RANGES
from protocol.errors import CODES
from protocol.limits import INPUT_ITEMS, TOOLS
from protocol.requests import MESSAGES

from ..clients.programs import serving
from ..clients.support.npm import npm_packages
from .http_support import Json, Served, events, program, served
from .socket_support import RawClient, client

HERE = Path(__file__).parent
TURNS = 6
"""After which a rollout is left."""


def closed(document: Json) -> Json:
    """``document`` with no fields beside those that its schemas name, where unknown ones are not kept."""
    document = copy.deepcopy(document)
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return document


OPENAPI = closed(describe.openapi())
ASYNCAPI = closed(describe.asyncapi())


@cache
def schema(side: str, name: str) -> Draft202012Validator:
    document = {"openapi": OPENAPI, "asyncapi": ASYNCAPI}[side]
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": document["components"]})


def printed(*arguments: str) -> Any:
    ended = CliRunner().invoke(main, ["schema", *arguments])
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


# ---- the documents


def test_openapi_is_valid() -> None:
    OpenAPIV31SpecValidator(printed("openapi")).validate()
    broken = printed("openapi")
    del broken["info"]["title"]
    assert not OpenAPIV31SpecValidator(broken).is_valid()


PARSE = """
import { Parser } from "@asyncapi/parser";
import { readFileSync } from "node:fs";
const found = await new Parser().validate(readFileSync(0, "utf8"));
console.log(JSON.stringify(found.filter((one) => one.severity === 0).map((one) => `${one.path.join(".")}: ${one.message}`)));
"""


def complaints(document: Json) -> list[str]:
    """The errors that AsyncAPI's own parser finds."""
    packages = npm_packages("asyncapi-parser-3.6.6", "@asyncapi/parser@3.6.6")
    command = ["node", "--input-type=module", "--eval", PARSE]
    ended = subprocess.run(command, cwd=packages, input=json.dumps(document), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    found: list[str] = json.loads(ended.stdout)
    return found


def test_asyncapi_is_valid() -> None:
    assert complaints(printed("asyncapi")) == []
    broken = printed("asyncapi")
    broken["operations"]["append"]["messages"] = [{"$ref": "#/components/messages/response.append"}]
    assert complaints(broken)


def test_url_is_where_the_documents_say() -> None:
    assert printed("openapi", "--url", "https://example.com")["servers"] == [{"url": "https://example.com"}]
    server = printed("asyncapi", "--url", "https://example.com")["servers"]["server"]
    assert (server["protocol"], server["host"]) == ("wss", "example.com")


def test_every_endpoint_that_is_served_is_described() -> None:
    served_here = {(method, path) for method, path, _ in Server(Services(models={}))._table()}
    methods = ("get", "post", "delete")
    described = {(name.upper(), path) for path, item in OPENAPI["paths"].items() for name in item if name in methods}
    assert described == served_here


def test_every_operation_says_what_it_does() -> None:
    operations = [one for item in OPENAPI["paths"].values() for name, one in item.items() if name != "parameters"]
    ids = [one["operationId"] for one in operations]
    assert len(set(ids)) == len(ids)
    assert all(one["summary"] and "``" not in str(one) for one in operations)
    assert {target for one in operations for target in one["responses"].get("200", {}).get("links", {})} <= set(ids)


def test_every_status_is_described() -> None:
    assert set(OPENAPI["components"]["responses"]) == {str(code.status) for code in CODES.values()}


TOKENS = [{}] * (INPUT_ITEMS + 1)
VALUES: dict[str, Any] = {
    "model": st.sampled_from(["", "m"]),
    "max_output_tokens": st.integers(-2, 3),
    "max_tool_calls": st.integers(-2, 3),
    "temperature": st.floats(-1, 3),
    "top_p": st.floats(-1, 2),
    "top_logprobs": st.integers(-1, 2),
    "presence_penalty": st.floats(-3, 3),
    "frequency_penalty": st.floats(-3, 3),
    "tools": st.sampled_from([[], TOKENS[:TOOLS], TOKENS[: TOOLS + 1]]),
    "input": st.sampled_from(["", [], TOKENS[:-1], TOKENS]),
    "idempotency_key": st.sampled_from(["", "k", "k" * 256, "k" * 257]),
    "include": st.lists(st.sampled_from([*sorted(INCLUDABLE), "everything"]), max_size=2),
    "service_tier": st.sampled_from(["auto", "default", "flex", ""]),
    "metadata": st.dictionaries(st.sampled_from(["k", "k" * 64, "k" * 65]), st.sampled_from(["", "v" * 512, "v" * 513, 1]))
    | st.sampled_from([{str(n): "" for n in range(count)} for count in (16, 17)]),
    "tool_choice": st.sampled_from(["auto", "none", "required", "some", {}, {"type": "function", "name": "f"}]),
}


def test_all_ranges_are_described() -> None:
    assert set(VALUES) == set(RANGES)


@pytest.mark.parametrize("name", sorted(RANGES))
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_the_engine_takes_the_values_that_are_described(name: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[name])
    field = copy.deepcopy(ASYNCAPI["components"]["schemas"]["CreateRequest"]["properties"][name])
    if name in ("tools", "input"):  # how many; of what kind they are is the codec's affair
        for one in field.get("anyOf", [field]):
            one.pop("items", None)
    fits, _ = RANGES[name]
    assert Draft202012Validator(field).is_valid(value) == fits(value)


# ---- what is said in rollouts

RESULTS: dict[str, Json] = {
    "function_call": {"type": "function_call_output", "output": "fine"},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": [{"type": "input_text", "text": "fine"}]},
    "shell_call": {
        "type": "shell_call_output",
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed", "output": "done"},
}
TOOL_LIST = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None},
    {"type": "custom", "name": "note"},
    {"type": "shell"},
    {"type": "apply_patch"},
]
CALLS = [
    {"name": "f", "arguments": {"a": 1}},
    {"name": "note", "arguments": "free text"},
    {"name": "shell", "arguments": {"commands": ["ls"], "timeout_ms": 10}},
    {"name": "apply_patch", "arguments": {"type": "delete_file", "path": "a"}},
]
calls = st.sampled_from(CALLS)
steps = st.one_of(
    st.sampled_from([{"say": "« hello »"}, {"say": {"tokens": 9}}, {"reason": "hm"}]),
    st.builds(lambda one, wait: {"call": one, "wait": wait}, calls, st.booleans()),
    st.builds(lambda many: {"calls": many}, st.lists(calls, min_size=2, max_size=3)),
    st.sampled_from([{"fail": {"fault": "busy"}}, {"stop": "content_filter"}]),
)
programs = st.lists(steps, min_size=1, max_size=4)
options = st.fixed_dictionaries(
    {},
    optional={
        "max_output_tokens": st.integers(1, 30),
        "parallel_tool_calls": st.booleans(),
        "metadata": st.just({"a": "b"}),
        "instructions": st.just("Be brief."),
        "reasoning": st.just({"effort": "low"}),
        "tool_choice": st.sampled_from(["auto", "none", {"type": "function", "name": "f"}]),
        "text": st.just({"format": {"type": "json_object"}}),
        "x_unknown": st.just([1]),
    },
)
lanes = st.none() | st.just("lane-1")


class Heard:
    """A socket whose frames are held against AsyncAPI in both directions. ``kinds`` are those that were seen."""

    def __init__(self, raw: RawClient) -> None:
        self._raw = raw
        self.kinds: set[str] = set()

    async def say(self, frame: Json) -> None:
        self._check(frame)
        await self._raw.say(frame)

    async def frame(self) -> Json:
        frame = await self._raw.frame()
        self._check(frame)
        return frame

    async def until(self, *kinds: str) -> Json:
        while (frame := await self.frame())["type"] not in kinds:
            pass
        return frame

    def _check(self, frame: Json) -> None:
        message = ASYNCAPI["components"]["messages"].get(frame["type"], {"title": "HostedProgress"})
        schema("asyncapi", message["title"]).validate(frame)
        self.kinds.add(frame["type"])


def answers(output: list[Json]) -> list[Json]:
    made = [item for item in output if item["type"] in RESULTS and item.get("status") != "incomplete"]
    return [{**RESULTS[item["type"]], "call_id": item["call_id"]} for item in made]


ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


async def as_one_response(it: Served, body: Json, lane: str | None) -> None:
    async with client(it.port) as raw:
        heard, made = Heard(raw), []
        await heard.say({"type": "response.create", "continuation": "append", "stream_id": lane, **body})
        while (frame := await heard.frame())["type"] not in ENDS:
            if frame["type"] == "response.output_item.done":
                made.append(frame["item"])
            elif frame["type"] == "response.done":
                await heard.say({"type": "response.append", "stream_id": lane, "input": answers(made)})
                made = []


async def as_a_chain(it: Served, body: Json, lane: str | None) -> None:
    async with client(it.port) as raw:
        heard = Heard(raw)
        for _ in range(TURNS):
            await heard.say({"type": "response.create", "continuation": "create", "stream_id": lane, **body})
            frame = await heard.until(*ENDS)
            results = answers(frame.get("response", {}).get("output", []))
            if not results or frame["type"] in ("response.failed", "error"):
                return
            body = {**body, "previous_response_id": frame["response"]["id"], "input": results}


async def over_http(it: Served, body: Json, lane: str | None) -> None:
    async with it.client() as http:
        for turn in range(TURNS):
            schema("openapi", "CreateBody").validate(body)
            if turn % 2:
                answer = await http.post("responses", json=body)
                schema("openapi", "Response" if answer.status_code == 200 else "ErrorBody").validate(answer.json())
                response = answer.json()
            else:
                async with events(http, "POST", "responses", json={**body, "stream": True}) as stream:
                    frames = await stream.rest()
                for frame in frames:
                    schema("openapi", "Event").validate(frame)
                response = frames[-1]["response"]
            results = answers(response.get("output", []))
            if not results or response["status"] == "failed":
                return
            body = {**body, "previous_response_id": response["id"], "input": results}


@pytest.mark.parametrize("rollout", [as_one_response, as_a_chain, over_http])
@given(steps=programs, fields=options, lane=lanes)
@settings(max_examples=20, deadline=None)
def test_rollouts_fit(rollout: Any, steps: list[Json], fields: Json, lane: str | None) -> None:
    async def run() -> None:
        async with served() as it:
            body = {"model": "scripted", "input": program(*steps), "tools": TOOL_LIST, **fields}
            await rollout(it, body, lane)

    trio.run(run)


CALL: Json = {"call": {"name": "f"}}


CREATE: Json = {"type": "response.create", "model": "scripted", "continuation": "create"}
HOLD: Json = {"type": "response.create", "model": "scripted", "continuation": "append", "hold": "conversation"}


async def steered(heard: Heard) -> None:
    """A steer that has to wait for a call's output, one that is refused, and one that goes on at once."""
    waits = {"call": {"name": "f"}, "wait": False}
    for first, then in ((waits, "response.steer.pending"), ({"say": "Well."}, "response.completed")):
        await heard.say({**CREATE, "input": program(first, {"say": {"tokens": 30}}, {"say": "More."}, pace=300)})
        running = (await heard.until("response.created"))["response"]["id"]
        await heard.say({"type": "response.steer", "previous_response_id": running, "input": "Stop."})
        await heard.until("response.steer.accepted")
        await heard.until(then)
    await heard.say({"type": "response.steer", "previous_response_id": "resp_unknown", "input": "Stop."})
    await heard.until("response.steer.failed")


async def test_frames_beside_rollouts_fit() -> None:
    """Steering, joining, ending, errors: with these, a client has said all that it may."""
    async with served() as it, client(it.port) as first, client(it.port) as second:
        one, two = Heard(first), Heard(second)
        await steered(one)

        await one.say({**HOLD, "input": program(CALL), "stream_id": "c"})
        parked = (await one.until("response.done"))["response"]["id"]
        await two.say({"type": "response.attach", "response_id": parked, "starting_after": 0})
        await two.until("response.attach.accepted")
        await two.say({"type": "response.append", "response_id": parked, "input": [{"role": "user", "content": "?"}]})
        await two.until("response.append.accepted")
        await two.say({"type": "response.attach", "response_id": "resp_unknown"})
        await two.until("error")
        await two.say({"type": "response.cancel", "response_id": parked})
        await two.until("response.incomplete", "response.failed")

        await one.say({**HOLD, "input": program({"say": "Yes?"}), "stream_id": "d"})
        waiting = (await one.until("response.done"))["response"]["id"]
        await one.say({"type": "response.finish", "response_id": waiting})
        await one.until("response.completed")
        assert one.kinds | two.kinds >= set(MESSAGES)


async def test_answers_of_the_other_endpoints_fit() -> None:
    async with served() as it, it.client() as http:

        async def fits(name: str, method: str, path: str, body: Json | None = None, status: int = 200) -> Json:
            answer = await http.request(method, path, json=body)
            assert answer.status_code == status, answer.text
            found: Json = answer.json()
            schema("openapi", name).validate(found)
            return found

        said = {"role": "user", "content": "Hello."}
        conversation = await fits("Conversation", "POST", "conversations", {"items": [said], "metadata": {"a": "b"}})
        path = f"conversations/{conversation['id']}"
        items = await fits("ItemList", "POST", f"{path}/items", {"items": [said]})
        await fits("Conversation", "POST", path, {"metadata": {}})
        await fits("Conversation", "GET", path)
        await fits("ItemList", "GET", f"{path}/items?limit=1&order=asc")
        await fits("Item", "GET", f"{path}/items/{items['first_id']}")
        await fits("Conversation", "DELETE", f"{path}/items/{items['first_id']}")
        create = {"model": "scripted", "input": program({"say": "Hi."})}
        told = await fits("Response", "POST", "responses", {**create, "conversation": conversation["id"]})
        await fits("ItemList", "GET", f"responses/{told['id']}/input_items")
        await fits("InputTokens", "POST", "responses/input_tokens", create)
        await fits("Compaction", "POST", "responses/compact", create)
        parked = await fits(
            "Response", "POST", "responses", {"model": "scripted", "input": program(CALL), "continuation": "append"}
        )
        assert parked["required_input"]
        await fits("AppendAccepted", "POST", f"responses/{parked['id']}/append", {"input": answers(parked["output"])})
        await fits("Response", "POST", f"responses/{parked['id']}/cancel")
        await fits("Deleted", "DELETE", f"responses/{told['id']}")
        await fits("Deleted", "DELETE", path)
        await fits("ErrorBody", "GET", path, status=404)
        await fits("ModelList", "GET", "models")
        await fits("Model", "GET", "models/scripted")
        await fits("Health", "GET", it.url("/healthz"))
        await fits("Ready", "GET", it.url("/readyz"))
        await fits("ErrorBody", "GET", "responses", status=426)


@pytest.mark.parametrize(
    "query", ["limit=+5", "limit=1_0", "limit=٣", "limit=%201", "limit=101", "starting_after=-2", "starting_after="]
)
async def test_what_a_query_says_is_read_strictly_also_where_it_is_of_no_account(query: str) -> None:
    async with served() as it, it.client() as http:
        told = (await http.post("responses", json={"model": "scripted", "input": program({"say": "Hi."})})).json()
        path = f"responses/{told['id']}" + ("/input_items" if "limit" in query else "")
        answer = await http.get(f"{path}?{query}")
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == query.partition("=")[0]


# ---- schemathesis


@pytest.mark.slow
def test_schemathesis_finds_no_fault(tmp_path: Path) -> None:
    document, seen = tmp_path / "openapi.json", tmp_path / "seen.json"
    document.write_text(json.dumps(printed("openapi")), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE / "schemathesis"),
        "SCHEMATHESIS_HOOKS": "sostenuto_hooks",
        "SEEN": str(seen),
        "NO_PROXY": "127.0.0.1",
    }
    with serving(tmp_path, "--park-seconds", "0.2") as server:
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis" / "schemathesis.toml")]
        command += ["run", str(document), "--url", server.url.removesuffix("/v1"), "--max-examples", "15"]
        command += ["--generation-deterministic", "--exclude-checks", "positive_data_acceptance"]
        command += ["--request-timeout", "20", "--warnings", "off", "--no-color"]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    assert "No issues found" in ended.stdout
    outcomes = set(json.loads(seen.read_text(encoding="utf-8")))
    assert outcomes >= {
        "POST /v1/responses 200 application/json",
        "POST /v1/responses 200 text/event-stream",
        "POST /v1/responses 400 application/json",
        "GET /v1/responses/{id} 200 application/json",
        "GET /v1/responses/{id}/input_items 200 application/json",
        "POST /v1/conversations/{id}/items 200 application/json",
        "GET /v1/conversations/{id}/items 200 application/json",
        "DELETE /v1/responses/{id} 200 application/json",
    }, "it must have got past the door"
