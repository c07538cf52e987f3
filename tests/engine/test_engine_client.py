"""The trio client against a small server on loopback that speaks the append shape, and drops sockets where it is told to."""

import contextlib
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define, field
from trio_websocket import ConnectionClosed, wrap_server_stream

from engine import client as client_module
from engine.client import Client, ConnectionLost, Event, Result, Rollout, RolloutError, connect
from engine.client_tools import Toolbox
from engine.transport import dialing
from engine.transport.dialing import Door
from protocol.codec import encode, from_wire, parse
from protocol.errors import ErrorEvent, ProtocolError
from protocol.grammar import check
from protocol.items import CallItem, FunctionCall, FunctionCallOutput
from protocol.requests import MESSAGES
from tools.spec import Outcome, ToolSpec

Frame = dict[str, Any]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "BACKOFF_SECONDS", 0.005)


def call(number: int, name: str = "tool", arguments: str = "{}", **fields: Any) -> Frame:
    item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name}
    return {**item, "arguments": arguments, "status": "completed", **fields}


@define
class Story:
    """One Response: its log, its slots, and what it does next. A turn is a list of calls; after the turns it answers."""

    turns: list[list[Frame]]
    hold: str = "rollout"
    log: list[Frame] = field(factory=list)
    output: list[Frame] = field(factory=list)
    open: list[str] = field(factory=list)
    results: dict[str, Frame] = field(factory=dict)
    said: list[str] = field(factory=list)
    keys: set[str] = field(factory=set)
    grew: trio.Event = field(factory=trio.Event)

    def say(self, kind: str, **fields: Any) -> None:
        self.log.append({"type": kind, "sequence_number": len(self.log), **fields})
        self.grew.set()
        self.grew = trio.Event()

    def snapshot(self, status: str, output: list[Frame]) -> Frame:
        usage = {"input_tokens": 1, "output_tokens": len(self.log), "total_tokens": 1 + len(self.log)}
        nothing = {"error": None, "incomplete_details": None}
        return {"id": f"resp_{id(self)}", "status": status, "usage": usage, "output": output, **nothing}

    def begin(self) -> None:
        self.say("response.created", response=self.snapshot("in_progress", []))
        self.say("response.in_progress", response=self.snapshot("in_progress", []))
        self.sample()

    def sample(self) -> None:
        if self.turns:
            for item in self.turns.pop(0):
                self.call(item)
            self.park([{"type": "function_call_output", "call_id": one} for one in self.open])
            return
        self.message(f"done {len(self.said)}")
        if self.hold == "conversation":
            self.park([{"type": "message", "role": "user"}])
        else:
            self.end("completed")

    def call(self, item: Frame) -> None:
        where = {"item_id": item["id"], "output_index": len(self.output)}
        added = {**item, "status": "in_progress", "arguments": ""}
        self.say("response.output_item.added", output_index=len(self.output), item=added)
        self.say("response.function_call_arguments.delta", delta=item["arguments"], **where)
        self.say("response.function_call_arguments.done", arguments=item["arguments"], **where)
        self.open.append(item["call_id"])
        self.output.append(item)
        self.say("response.output_item.done", output_index=where["output_index"], item=item)

    def message(self, text: str) -> None:
        index = len(self.output)
        item = {"type": "message", "id": f"msg_{index}", "role": "assistant", "status": "completed"}
        part = {"type": "output_text", "text": text, "annotations": []}
        where = {"item_id": item["id"], "output_index": index, "content_index": 0}
        added = {**item, "status": "in_progress", "content": []}
        self.say("response.output_item.added", output_index=index, item=added)
        self.say("response.content_part.added", part={**part, "text": ""}, **where)
        for char in text:
            self.say("response.output_text.delta", delta=char, **where)
        self.say("response.output_text.done", text=text, **where)
        self.say("response.content_part.done", part=part, **where)
        self.output.append({**item, "content": [part]})
        self.say("response.output_item.done", output_index=index, item=self.output[-1])

    def park(self, stubs: list[Frame]) -> None:
        self.say("response.done", response=self.snapshot("in_progress", []), required_input=stubs)

    def end(self, status: str) -> None:
        kind = {"cancelled": "incomplete"}.get(status, status)
        self.say(f"response.{kind}", response=self.snapshot(status, self.output))

    @property
    def ended(self) -> bool:
        return self.log[-1]["type"] in ("response.completed", "response.incomplete")

    def append(self, frame: Frame) -> None:
        outputs = [item for item in frame["input"] if item["type"] != "message"]
        messages = [item["content"] for item in frame["input"] if item["type"] == "message"]
        fresh = [item for item in outputs if item["call_id"] not in self.results]
        if messages and frame["idempotency_key"] in self.keys:
            messages = []
        self.keys.add(frame.get("idempotency_key", ""))
        for item in fresh:
            self.results[item["call_id"]] = item
            self.open.remove(item["call_id"])
        self.said += messages
        append = {"id": "app_1", "call_ids": [item["call_id"] for item in outputs], "duplicate": not fresh + messages}
        self.say("response.append.accepted", append=append, pending=list(self.open))
        if (fresh or messages) and not self.open:
            self.sample()


Hook = Callable[["Connection", Frame], Awaitable[bool]]
"""Sees a client's frame before the server does; True keeps it from it."""


@define
class Connection:
    """A socket, as the server has it."""

    server: "FakeServer"
    number: int
    stream: trio.abc.Stream
    websocket: Any = None
    position: int | None = None
    story: Story | None = None
    told: trio.Event = field(factory=trio.Event)

    async def drop(self) -> None:
        await trio.aclose_forcefully(self.stream)

    async def send(self, frame: Frame) -> None:
        await self.websocket.send_message(encode(frame).decode())

    async def tell(self) -> None:
        """Send the log from the position that the client asked for, as it grows."""
        await self.told.wait()
        story, position = self.story, self.position
        assert story is not None
        assert position is not None
        while True:
            while position < len(story.log):
                if (self.number, position) not in self.server.withheld:
                    await self.send(story.log[position])
                position += 1
            if story.ended:
                self.story, self.told = None, trio.Event()
                return
            await story.grew.wait()

    async def serve(self) -> None:
        while True:
            frame = parse(await self.websocket.get_message())
            from_wire(frame, MESSAGES[frame["type"]])
            self.server.heard.append((self.number, frame))
            if not await self.server.hook(self, frame):
                await self.obey(frame)

    async def obey(self, frame: Frame) -> None:
        kind = frame["type"]
        if kind == "response.create":
            story = self.server.created.get(frame["idempotency_key"])
            if story is None:
                story = self.server.created[frame["idempotency_key"]] = self.server.stories.pop(0)
                story.begin()
            self.join(story, 0)
        elif kind == "response.attach":
            story = next(s for s in self.server.created.values() if s.snapshot("", [])["id"] == frame["response_id"])
            last = len(story.log) - 1
            await self.send({"type": "response.attach.accepted", "last_sequence_number": last, "epoch": 2})
            self.join(story, max(0, frame["starting_after"] + 1 - self.server.replays_too_much))
        elif kind == "response.append":
            assert self.story is not None
            self.story.append(frame)
        else:
            assert self.story is not None
            self.story.end("completed" if kind == "response.finish" else "cancelled")

    def join(self, story: Story, position: int) -> None:
        self.story, self.position = story, position
        self.server.nurseries[self.number].start_soon(self.tell)
        self.told.set()


async def let_through(connection: Connection, frame: Frame) -> bool:
    await trio.lowlevel.checkpoint()
    return False


@define
class FakeServer:
    stories: list[Story]
    hook: Hook = let_through
    replays_too_much: int = 0
    withheld: set[tuple[int, int]] = field(factory=set)
    """Events that are not sent: (number of the socket, of the event)."""
    rejections: list[tuple[int, bytes]] = field(factory=list)
    heard: list[tuple[int, Frame]] = field(factory=list)
    requests: list[Any] = field(factory=list)
    connections: int = 0
    created: dict[str, Story] = field(factory=dict)
    nurseries: dict[int, trio.Nursery] = field(factory=dict)
    url: str = ""

    def kinds(self, number: int | None = None) -> list[str]:
        return [frame["type"].removeprefix("response.") for n, frame in self.heard if number in (None, n)]

    async def handle(self, stream: trio.SocketStream) -> None:
        connection = Connection(self, self.connections, stream)
        self.connections += 1
        with contextlib.suppress(BaseExceptionGroup):
            async with trio.open_nursery() as nursery:
                self.nurseries[connection.number] = nursery
                request = await wrap_server_stream(nursery, stream)
                self.requests.append(request)
                if self.rejections:
                    status, body = self.rejections.pop(0)
                    await request.reject(status, body=body)
                else:
                    connection.websocket = await request.accept()
                    with contextlib.suppress(ConnectionClosed):
                        await connection.serve()
                nursery.cancel_scope.cancel()


def against(server: FakeServer, body: Callable[[Client], Awaitable[Any]], **options: Any) -> Any:
    """Run ``body`` with a client of ``server``; a hang is an error."""

    async def main() -> Any:
        failure: Exception | None = None
        result = None
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                (listener,) = await nursery.start(partial(trio.serve_tcp, server.handle, 0, host="127.0.0.1"))
                host, port = listener.socket.getsockname()[:2]
                server.url = f"http://{host}:{port}/v1"
                try:
                    async with connect(server.url, **options) as client:
                        result = await body(client)
                except Exception as error:
                    failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return result

    return trio.run(main)


class Tools:
    """Two async functions that count their runs and can be made to wait."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.gate = trio.Event()
        self.gate.set()
        self.began = trio.Event()

    async def tool(self, arguments: dict[str, Any]) -> str:
        """Does what a tool does."""
        self.ran.append(str(arguments.get("n")))
        self.began.set()
        await self.gate.wait()
        return f"result {arguments.get('n')}"


async def run(client: Client, tools: Any = (), **fields: Any) -> Result:
    return await client.run(**{"model": "m", "input": "go", "tools": tools, **fields})


# ---- the plain path


def test_a_rollout_runs_its_tools_and_ends_with_the_answer() -> None:
    tools, events = Tools(), list[Event]()
    server = FakeServer([Story([[call(0, arguments='{"n":1}'), call(1, arguments='{"n":2}')], [call(2)]])])

    result = against(
        server,
        partial(run, tools={"tool": tools.tool}, instructions="be brief", temperature=0.5, on_event=events.append),
        api_key="secret",
    )

    assert (result.text, result.status, result.parks, result.reconnects) == ("done 0", "completed", 2, 0)
    assert [item["type"] for item in result.items] == ["function_call"] * 3 + ["message"]
    assert tools.ran == ["1", "2", "None"] or tools.ran == ["2", "1", "None"]
    assert server.kinds() == ["create", "append", "append", "append"]
    create, *appends = [frame for _, frame in server.heard]
    assert {name: create[name] for name in ("model", "input", "instructions", "temperature", "continuation")} == {
        "model": "m",
        "input": "go",
        "instructions": "be brief",
        "temperature": 0.5,
        "continuation": "append",
    }
    assert create["tools"][0]["description"] == "Does what a tool does."
    outputs = {frame["input"][0]["call_id"]: frame["input"][0]["output"] for frame in appends}
    assert outputs == {"call_0": "result 1", "call_1": "result 2", "call_2": "result None"}
    (story,) = server.created.values()
    assert [event.frame for event in events] == story.log
    check(story.log)
    headers = dict(server.requests[0].headers)
    assert headers[b"openai-beta"] == b"responses_websockets=2026-02-04"
    assert headers[b"authorization"] == b"Bearer secret"
    assert server.requests[0].path == "/v1/responses"
    assert result.bytes_up == sum(len(encode(frame)) for _, frame in server.heard)
    assert result.bytes_down == sum(len(encode(frame)) for frame in story.log)


def test_a_tool_starts_when_its_call_is_whole_and_its_result_is_sent_when_it_is_there() -> None:
    """The server goes on with its turn only when the first result has come: before any ``response.done``."""

    class Slow(Story):
        def begin(self) -> None:
            self.say("response.created", response=self.snapshot("in_progress", []))
            self.say("response.in_progress", response=self.snapshot("in_progress", []))
            self.call(call(0))

    tools = Tools()
    server = FakeServer([Slow([])])
    result = against(server, partial(run, tools={"tool": tools.tool}))
    assert (result.parks, len(tools.ran)) == (0, 1)


def test_tools_run_side_by_side() -> None:
    arrived, together = 0, trio.Event()

    async def tool(arguments: dict[str, Any]) -> str:
        nonlocal arrived
        arrived += 1
        if arrived == 2:
            together.set()
        await together.wait()
        return "ok"

    server = FakeServer([Story([[call(0), call(1)]])])
    assert against(server, partial(run, tools={"tool": tool})).status == "completed"


# ---- sockets that drop


def test_a_drop_while_a_tool_runs_does_not_run_it_again() -> None:
    tools = Tools()

    async def cut_twice(connection: Connection, frame: Frame) -> bool:
        if connection.number == 2:
            tools.gate.set()
            return False
        await connection.obey(frame)
        await tools.began.wait()
        await connection.drop()
        return True

    async def body(client: Client) -> Result:
        tools.gate = trio.Event()
        return await run(client, {"tool": tools.tool})

    server = FakeServer([Story([[call(0)]])], cut_twice)
    result = against(server, body)
    assert (result.text, result.reconnects, len(tools.ran)) == ("done 0", 2, 1)
    assert [server.kinds(n) for n in range(3)] == [["create"], ["attach"], ["attach", "append"]]


@pytest.mark.parametrize("replays_too_much", [0, 100])
def test_a_lost_acknowledgement_is_asked_for_by_sending_the_result_again(replays_too_much: int) -> None:
    tools, events = Tools(), list[Event]()

    async def digest_and_drop(connection: Connection, frame: Frame) -> bool:
        if connection.number == 0 and frame["type"] == "response.append":
            server.nurseries[0].start_soon(connection.drop)
            await connection.drop()
            assert connection.story is not None
            connection.story.append(frame)
            return True
        return False

    server = FakeServer([Story([[call(0)], [call(1)]])], digest_and_drop, replays_too_much)
    result = against(server, partial(run, tools={"tool": tools.tool}, on_event=events.append))
    assert (result.text, result.reconnects, len(tools.ran)) == ("done 0", 1, 2)
    first, again = [frame for _, frame in server.heard if frame["type"] == "response.append"][:2]
    assert first["input"] == again["input"]
    numbers = [event.frame["sequence_number"] for event in events if "sequence_number" in event.frame]
    assert numbers == list(range(len(numbers))), "the user sees each event once, in order"


def test_a_result_that_the_server_never_saw_is_sent_again() -> None:
    tools = Tools()

    async def lose(connection: Connection, frame: Frame) -> bool:
        if connection.number == 0 and frame["type"] == "response.append":
            await connection.drop()
            return True
        return False

    server = FakeServer([Story([[call(0)]])], lose)
    result = against(server, partial(run, tools={"tool": tools.tool}))
    assert (result.text, len(tools.ran), server.kinds()) == ("done 0", 1, ["create", "append", "attach", "append"])


def test_a_create_whose_answer_is_lost_is_repeated_with_its_key() -> None:
    async def lose(connection: Connection, frame: Frame) -> bool:
        if connection.number == 0:
            await connection.drop()
            await connection.obey(frame)
        return connection.number == 0

    server = FakeServer([Story([[call(0)]])], lose)
    result = against(server, partial(run, tools={"tool": Tools().tool}))
    assert (result.text, server.kinds()) == ("done 0", ["create", "create", "append"])
    assert server.heard[0][1] == server.heard[1][1]


def test_a_missing_event_is_fetched_on_a_new_socket() -> None:
    server = FakeServer([Story([[call(0)]])], withheld={(0, 3)})
    result = against(server, partial(run, tools={"tool": Tools().tool}))
    assert (result.text, result.reconnects) == ("done 0", 1)
    assert server.heard[1][1]["starting_after"] == 2


def test_a_server_that_falls_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(dialing, "PONG_SECONDS", 0.05)

    async def freeze(connection: Connection, frame: Frame) -> bool:
        if connection.number == 0:
            with trio.CancelScope(shield=True):
                server.nurseries[0].cancel_scope.cancel()
                await frozen.wait()
        return False

    server = FakeServer([Story([])], freeze)
    frozen = trio.Event()
    result = against(server, partial(leave_frozen, frozen=frozen))
    assert (result.text, result.reconnects) == ("done 0", 1)


async def leave_frozen(client: Client, frozen: trio.Event) -> Result:
    try:
        return await run(client)
    finally:
        frozen.set()


def test_it_gives_up_when_attempts_bring_nothing() -> None:
    async def lose(connection: Connection, frame: Frame) -> bool:
        await connection.drop()
        return True

    server = FakeServer([], lose)
    with pytest.raises(ConnectionLost, match="gave up after 3 attempts"):
        against(server, run, max_reconnects=2)
    assert server.kinds() == ["create"] * 3


def test_a_server_that_is_not_there_is_a_lost_connection() -> None:
    async def main() -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        await listeners[0].aclose()
        async with connect(f"ws://127.0.0.1:{port}", max_reconnects=1) as client:
            await run(client)

    with pytest.raises(ConnectionLost, match=r"gave up after 2 attempts: .*[Cc]onnect"):
        trio.run(main)


def test_a_refused_upgrade_is_an_error_at_once_and_a_busy_server_is_asked_again() -> None:
    body = encode(ErrorEvent(ProtocolError("invalid_api_key", "no such key")).to_wire())
    server = FakeServer([], rejections=[(401, body)])
    with pytest.raises(RolloutError) as caught:
        against(server, run)
    assert (caught.value.code, caught.value.status, server.connections) == ("invalid_api_key", 401, 1)

    server = FakeServer([Story([])], rejections=[(503, b""), (429, b"not json")])
    assert against(server, run).text == "done 0"
    assert server.connections == 3


# ---- errors


def refuse(kind: str, code: str) -> Hook:
    async def hook(connection: Connection, frame: Frame) -> bool:
        if frame["type"] != kind:
            return False
        story = connection.story
        response_id = story.snapshot("", [])["id"] if story else None
        await connection.send(ErrorEvent(ProtocolError(code, "no", "input[0]"), response_id).to_wire())
        if story and code == "tool_output_conflict":
            story.append(frame)
        return True

    return hook


def test_an_error_frame_is_raised_as_it_is() -> None:
    server = FakeServer([], refuse("response.create", "model_not_found"))
    with pytest.raises(RolloutError, match="model_not_found: no") as caught:
        against(server, run)
    assert (caught.value.status, caught.value.param) == (404, "input[0]")


def test_an_error_after_the_beginning_is_raised_and_cancels_the_response() -> None:
    server = FakeServer([Story([[call(0)]])], refuse("response.append", "tool_output_type_mismatch"))
    with pytest.raises(RolloutError, match="tool_output_type_mismatch"):
        against(server, partial(run, tools={"tool": Tools().tool}))
    assert server.kinds() == ["create", "append", "cancel"]


def test_a_conflict_means_that_someone_else_answered_and_the_rollout_goes_on() -> None:
    server = FakeServer([Story([[call(0)]])], refuse("response.append", "tool_output_conflict"))
    assert against(server, partial(run, tools={"tool": Tools().tool})).text == "done 0"


def test_what_the_user_raises_comes_out_as_it_is() -> None:
    def stop(event: Event) -> None:
        raise ZeroDivisionError

    server = FakeServer([Story([[call(0)]])])
    with pytest.raises(ZeroDivisionError):
        against(server, partial(run, on_event=stop))
    assert server.kinds()[-1] == "cancel"


# ---- by hand


def test_by_hand() -> None:
    async def body(client: Client) -> Result:
        async with client.rollout(model="m", input="go", hold="conversation") as rollout:
            async for event in rollout:
                if event.type == "response.output_item.done" and event.frame["item"]["type"] == "function_call":
                    await rollout.answer(event.frame["item"], "fine")
                if event.type == "response.done" and rollout.state.required_input[0]["type"] == "message":
                    await (rollout.say("more") if rollout.state.parks < 3 else rollout.finish())
            return rollout.result()

    server = FakeServer([Story([[call(0)]], "conversation")])
    result = against(server, body)
    assert (result.text, result.parks) == ("done 0done 1", 3)
    (story,) = server.created.values()
    assert story.said == ["more"]
    assert story.results["call_0"]["output"] == "fine"
    assert server.kinds() == ["create", "append", "append", "finish"]


def test_run_asks_for_the_user_or_finishes() -> None:
    answers: list[str | None] = ["one", "two", None]

    async def ask() -> str | None:
        await trio.lowlevel.checkpoint()
        return answers.pop(0)

    server = FakeServer([Story([], "conversation"), Story([], "conversation")])
    assert against(server, partial(run, on_ask_user=ask, hold="conversation")).text == "done 0done 1done 2"
    assert server.kinds() == ["create", "append", "append", "finish"]
    assert against(server, partial(run, hold="conversation")).text == "done 0"


def test_left_early_a_response_is_cancelled_unless_it_is_to_live_on() -> None:
    async def leave(client: Client, *, lives_on: bool) -> Rollout:
        async with client.rollout(model="m") as rollout:
            async for event in rollout:
                if event.type == "response.done":
                    if lives_on:
                        rollout.leave_running()
                    break
        return rollout

    async def body(client: Client) -> Result:
        await leave(client, lives_on=False)
        rollout = await leave(client, lives_on=True)
        with pytest.raises(RuntimeError, match="has not ended"):
            rollout.result()
        assert rollout.state.response_id is not None
        async with client.attach(rollout.state.response_id) as joined:
            calls = [call async for event in joined async for call in answered(joined, event)]
            assert len(calls) == 1, "announced when the replay is over"
            return joined.result()

    server = FakeServer([Story([[call(0)]]), Story([[call(0)]])])
    assert against(server, body).text == "done 0"
    assert server.kinds() == ["create", "cancel", "create", "attach", "append"]


async def answered(rollout: Rollout, event: Event) -> Any:
    for notice in event.notices:
        if isinstance(notice, client_module.RunCall):
            await rollout.answer(notice.item, "late")
            yield notice.item


def test_cancel_is_answered_by_the_terminal_event() -> None:
    async def body(client: Client) -> Result:
        async with client.rollout(model="m") as rollout:
            async for event in rollout:
                if event.type == "response.done":
                    await rollout.cancel()
            await rollout.say("too late: nothing is sent")
            return rollout.result()

    server = FakeServer([Story([[call(0)]])])
    assert against(server, body).status == "cancelled"
    assert server.kinds() == ["create", "cancel"]


def test_rollouts_in_turn_share_a_socket_and_those_side_by_side_do_not() -> None:
    async def in_turn(client: Client) -> None:
        await run(client)
        await run(client)

    server = FakeServer([Story([]), Story([])])
    against(server, in_turn)
    assert server.connections == 1

    async def side_by_side(client: Client) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, client, {"tool": meet})
            nursery.start_soon(run, client, {"tool": meet})

    both = 0
    met = trio.Event()

    async def meet(arguments: dict[str, Any]) -> str:
        nonlocal both
        both += 1
        if both == 2:
            met.set()
        await met.wait()
        return ""

    server = FakeServer([Story([[call(0)]]), Story([[call(0)]])])
    against(server, side_by_side)
    assert server.connections == 2


def test_what_json_cannot_say_is_refused_before_it_is_sent() -> None:
    async def body(client: Client) -> Result:
        async with client.rollout(model="m") as rollout:
            async for event in rollout:
                if event.type == "response.done":
                    with pytest.raises(TypeError):
                        await rollout.answer(call(0), "\ud800")
                    await rollout.answer(call(0), "good")
            return rollout.result()

    server = FakeServer([Story([[call(0)]])])
    assert against(server, body).text == "done 0"


# ---- tools and addresses


class Upper:
    """A tool as the local tools are."""

    spec = ToolSpec(name="upper", description="Shouts.", parameters={"type": "object"})

    async def call(self, call: CallItem) -> Outcome:
        assert isinstance(call, FunctionCall)
        return Outcome(item=FunctionCallOutput(call_id=call.call_id, output=call.arguments.upper()))


async def add(left: int, right: int = 1, *, exact: bool = False) -> str:
    """Adds."""
    await trio.lowlevel.checkpoint()
    return str(left + right)


async def breaks(arguments: dict[str, Any]) -> str:
    await trio.lowlevel.checkpoint()
    raise ValueError("no \udcff")


async def breaks_in_a_group(**anything: Any) -> str:
    await trio.lowlevel.checkpoint()
    raise ExceptionGroup("one", [KeyError("x")])


async def counts(arguments: dict[str, Any]) -> Any:
    await trio.lowlevel.checkpoint()
    return 3


async def surrogate(arguments: dict[str, Any]) -> str:
    await trio.lowlevel.checkpoint()
    return "\ud800"


def test_tools_are_described() -> None:
    given = {"type": "function", "name": "breaks", "parameters": {}}
    toolbox = Toolbox({"add": add, "breaks": breaks, "counts": counts, "upper": Upper()}, [given])
    schema = {
        "type": "object",
        "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}, "exact": {"type": "boolean"}},
        "required": ["left"],
    }
    no_arguments = {"type": "object", "properties": {}, "required": []}
    assert toolbox.definitions == [
        given,
        {"type": "function", "name": "add", "description": "Adds.", "parameters": schema},
        {"type": "function", "name": "counts", "description": "", "parameters": no_arguments},
        {"type": "function", "name": "upper", "description": "Shouts.", "parameters": {"type": "object"}},
    ]
    assert Toolbox([Upper()], ()).definitions == toolbox.definitions[-1:]


@pytest.mark.parametrize(
    ("item", "output"),
    [
        (call(0, "add", '{"left": 2}'), "3"),
        (call(0, "upper", '{"a": 1}'), '{"A": 1}'),
        (call(0, "nobody"), "error: LookupError: no such tool: nobody"),
        (call(0, "breaks"), "error: ValueError: no \\udcff"),
        (call(0, "breaks_in_a_group"), "error: KeyError: 'x'"),
        (call(0, "counts"), "error: TypeError: a tool gives a string or a list of content parts, not int"),
        (call(0, "counts", "[1]"), "error: TypeError: the arguments are not a JSON object"),
        (call(0, "counts", "{"), "error: ProtocolError: not valid JSON"),
        (call(0, "add", '{"wrong": 2}'), "error: TypeError: "),
        (call(0, "surrogate"), "error: TypeError: "),
        (call(0, "echo", type="custom_tool_call", input="free text"), "{'input': 'free text'}"),
        (call(0, "", type="local_shell_call", action={"command": ["ls"]}), "{'command': ['ls']}"),
    ],
)
def test_whatever_a_tool_does_is_an_output_for_the_model(item: Frame, output: str) -> None:
    async def echo(arguments: dict[str, Any]) -> str:
        await trio.lowlevel.checkpoint()
        return str(arguments)

    tools = {f.__name__: f for f in (add, breaks, breaks_in_a_group, counts, surrogate, echo)}
    toolbox = Toolbox({**tools, "upper": Upper(), "local_shell": echo}, ())
    answer = trio.run(toolbox.answer, item)
    assert answer["call_id"] == "call_0"
    assert answer["output"].startswith(output)


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "secure"),
    [
        ("http://h", "h", 80, "/responses", False),
        ("ws://h:1/v1/", "h", 1, "/v1/responses", False),
        ("https://h/v1?a=b", "h", 443, "/v1/responses?a=b", True),
        ("wss://h:8/v1/responses", "h", 8, "/v1/responses", True),
    ],
)
def test_addresses(url: str, host: str, port: int, path: str, secure: bool) -> None:
    door = Door.at(url, None, None)
    assert (door.host, door.port, door.path) == (host, port, path)
    assert isinstance(door.tls, ssl.SSLContext) == secure
    for bad in ("ftp://h", "h", "http://"):
        with pytest.raises(ValueError, match="not a URL"):
            Door.at(bad, None, None)
