"""The client's state machine against a small server without I/O, with sockets that are cut anywhere."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.client import (
    Acknowledged,
    AskUser,
    ClientState,
    Ended,
    Parked,
    ProtocolGap,
    Refused,
    RunCall,
    Text,
    output_for,
)
from protocol.codec import from_wire, item_from_wire
from protocol.errors import CODES, ErrorEvent, ProtocolError
from protocol.grammar import check
from protocol.requests import MESSAGES

Frame = dict[str, Any]


def call_item(call_id: str, **fields: Any) -> Frame:
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "tool", "arguments": "{}"}
    return {**item, "status": "completed", **fields}


def output(call_id: str, text: str = "ok") -> Frame:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


MESSAGE = {"type": "message", "role": "user", "content": "more"}


class Server:
    """One Response: turns of calls, then an answer. Keeps its log, fills each slot once, and knows idempotency keys."""

    def __init__(self, turns: list[int], messages: int = 0) -> None:
        self.turns = turns
        self.log: list[Frame] = []
        self.output: list[Frame] = []
        self.results: dict[str, Frame] = {}
        self.open: list[str] = []
        self.keys: set[str] = set()
        self.messages: list[Frame] = []
        self.awaited = messages
        self.sockets = 0

    def say(self, kind: str, **fields: Any) -> None:
        self.log.append({"type": kind, "sequence_number": len(self.log), **fields})

    def response(self, status: str) -> Frame:
        usage = {"input_tokens": 1, "output_tokens": len(self.log), "total_tokens": 1 + len(self.log)}
        return {"id": "resp_1", "status": status, "usage": usage, "error": None, "incomplete_details": None}

    def hear(self, frame: Frame) -> list[Frame]:
        """Digest a client's frame; what is returned goes to the socket first, then the log from a position on."""
        from_wire(frame, MESSAGES[frame["type"]])
        if frame["type"] == "response.create":
            if not self.log:
                self.say("response.created", response={**self.response("in_progress"), "output": []})
                self.say("response.in_progress", response={**self.response("in_progress"), "output": []})
                self.sample()
            return []
        if frame["type"] == "response.attach":
            last = len(self.log) - 1
            return [{"type": "response.attach.accepted", "response_id": "resp_1", "last_sequence_number": last}]
        assert frame["response_id"] == "resp_1"
        return self.append(frame)

    def append(self, frame: Frame) -> list[Frame]:
        outputs = [item for item in frame["input"] if item["type"] != "message"]
        messages = [item for item in frame["input"] if item["type"] == "message"]
        if any(self.results.get(item["call_id"], item) != item for item in outputs):
            return [ErrorEvent(ProtocolError("tool_output_conflict", "full"), "resp_1").to_wire()]
        fresh = [item for item in outputs if item["call_id"] not in self.results]
        again = frame.get("idempotency_key") in self.keys
        new_messages = [] if again else messages
        if messages:
            self.keys.add(frame["idempotency_key"])
        self.messages += new_messages
        waited = bool(self.open) or not self.ended
        for item in fresh:
            self.results[item["call_id"]] = item
            self.open.remove(item["call_id"])
        duplicate = not (fresh or new_messages)
        if self.ended:
            assert duplicate
            return []
        call_ids = [item["call_id"] for item in outputs]
        append = {"id": "app_1", "call_ids": call_ids, "duplicate": duplicate}
        self.say("response.append.accepted", append=append, pending=list(self.open))
        if waited and not self.open and not duplicate:
            self.sample()
        return []

    @property
    def ended(self) -> bool:
        return bool(self.log) and self.log[-1]["type"] == "response.completed"

    def sample(self) -> None:
        if not self.turns and len(self.messages) >= self.awaited:
            self.answer()
            self.say("response.completed", response={**self.response("completed"), "output": self.output})
        elif not self.turns:
            self.answer()
            self.park({"type": "message", "role": "user"})
        else:
            for _ in range(self.turns.pop(0)):
                self.open.append(f"call_{len(self.output)}")
                self.item(call_item(self.open[-1]), arguments="")
            self.park(*({"type": "function_call_output", "call_id": one, "name": "tool"} for one in self.open))

    def park(self, *stubs: Frame) -> None:
        self.say("response.done", response=self.response("in_progress"), required_input=list(stubs))

    def item(self, item: Frame, **empty: Any) -> None:
        where = {"item_id": item["id"], "output_index": len(self.output)}
        added = {**item, "status": "in_progress", **empty}
        self.say("response.output_item.added", output_index=len(self.output), item=added)
        if item["type"] == "message":
            (part,) = item["content"]
            where["content_index"] = 0
            self.say("response.content_part.added", part={**part, "text": ""}, **where)
            for char in part["text"]:
                self.say("response.output_text.delta", delta=char, **where)
            self.say("response.output_text.done", text=part["text"], **where)
            self.say("response.content_part.done", part=part, **where)
        else:
            for char in item["arguments"]:
                self.say("response.function_call_arguments.delta", delta=char, **where)
            self.say("response.function_call_arguments.done", arguments=item["arguments"], **where)
        self.say("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)

    def answer(self) -> None:
        part = {"type": "output_text", "text": "fin", "annotations": []}
        item = {"type": "message", "id": f"msg_{len(self.output)}", "role": "assistant", "status": "completed"}
        self.item({**item, "content": [part]}, content=[])


class Wire:
    """A socket between the two: each end reads when the test says so, and a cut loses what was under way.

    A ``generous`` server replays so many events more than it was asked for.
    """

    def __init__(self, server: Server, upward: list[Frame], generous: int = 0) -> None:
        self.server = server
        self.generous = generous
        self.upward = upward
        self.direct: list[Frame] = []
        self.position: int | None = None

    def server_reads(self) -> None:
        frame = self.upward.pop(0)
        replies = self.server.hear(frame)
        self.direct += replies
        if frame["type"] == "response.create":
            self.position = 0
        elif frame["type"] == "response.attach":
            self.position = max(0, frame["starting_after"] + 1 - self.generous)

    @property
    def readable(self) -> bool:
        return bool(self.direct) or (self.position is not None and self.position < len(self.server.log))

    def client_reads(self) -> Frame:
        if self.direct:
            return self.direct.pop(0)
        assert self.position is not None
        self.position += 1
        return self.server.log[self.position - 1]


class Agent:
    """A client: runs what it is told to run, and answers for the user."""

    def __init__(self) -> None:
        self.state = ClientState("key")
        self.running: list[str] = []
        self.ran: list[str] = []
        self.acknowledged: set[str] = set()
        self.asked = 0
        self.text = ""

    def hear(self, frame: Frame) -> list[Frame]:
        """What it says to ``frame`` at once."""
        said = []
        for notice in self.state.receive(frame):
            match notice:
                case RunCall(item):
                    self.running.append(item["call_id"])
                    self.ran.append(item["call_id"])
                case AskUser():
                    self.asked += 1
                    said.append(self.state.append([MESSAGE]))
                case Acknowledged(call_ids):
                    self.acknowledged.update(call_ids)
                case Text(delta):
                    self.text += delta
                case Refused():
                    raise AssertionError(notice)
        return said

    def end_a_tool(self, which: int) -> Frame:
        return self.state.append([output(self.running.pop(which))])


@settings(max_examples=150)
@given(st.lists(st.integers(1, 3), max_size=3), st.integers(0, 2), st.data())
def test_l9_every_call_is_run_once_and_every_result_arrives_wherever_the_socket_is_cut(
    turns: list[int], messages: int, data: st.DataObject
) -> None:
    server, agent = Server(list(turns), messages), Agent()
    state = agent.state
    cuts = data.draw(st.sets(st.integers(0, 60), max_size=6), label="cut before these steps")
    wire = Wire(server, [state.create({"model": "m", "input": "go", "hold": "conversation"})])
    for step in count():
        if state.ended:
            break
        if step in cuts:
            wire = Wire(server, state.reconnect(), generous=data.draw(st.integers(0, 5)))
        actions = ["serve"] * bool(wire.upward) + ["end a tool"] * bool(agent.running) + ["read"] * wire.readable
        assert actions, "nothing more can happen, and the Response has not ended"
        match data.draw(st.sampled_from(actions)):
            case "serve":
                wire.server_reads()
            case "end a tool":
                wire.upward.append(agent.end_a_tool(data.draw(st.integers(0, len(agent.running) - 1))))
            case "read":
                wire.upward += agent.hear(wire.client_reads())
    assert check(server.log).text == agent.text == state.text == "fin" * (messages + 1)
    assert sorted(agent.ran) == sorted(server.results) == sorted(set(agent.ran)) == sorted(agent.acknowledged)
    assert len(agent.ran) == sum(turns)
    assert len(server.messages) == agent.asked == messages
    assert (state.parks, state.open_calls, state.unacknowledged) == (len(turns) + messages, {}, ())
    assert list(state.items.values()) == server.output
    assert state.reconnect() == []


def started(*frames: Frame) -> ClientState:
    """A rollout that has heard ``created`` and ``frames``, which are numbered here."""
    state = ClientState("key")
    state.create({"model": "m"})
    hear(state, {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "usage": None}})
    for frame in frames:
        hear(state, frame)
    return state


def hear(state: ClientState, frame: Frame) -> list[Any]:
    return state.receive({"sequence_number": state.cursor + 1, **frame})


def done(item: Frame, index: int = 0) -> Frame:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def error(code: str, response_id: str | None = None) -> Frame:
    return ErrorEvent(ProtocolError(code, "no"), response_id).to_wire()


def accepted(*call_ids: str, duplicate: bool = False) -> Frame:
    append = {"id": "app_1", "call_ids": list(call_ids), "duplicate": duplicate}
    return {"type": "response.append.accepted", "append": append, "pending": []}


def test_create_has_an_idempotency_key_and_is_repeated_until_the_response_is_known() -> None:
    state = ClientState("key")
    assert state.reconnect() == []
    frame = state.create({"model": "m", "input": "go", "stream_id": "lane"})
    assert frame == {"type": "response.create", "idempotency_key": "key", "model": "m", "input": "go", "stream_id": "lane"}
    assert state.reconnect() == [frame]
    hear(state, {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}})
    attach = {"type": "response.attach", "response_id": "resp_1", "starting_after": 0, "stream_id": "lane"}
    assert state.reconnect() == [attach]
    assert ClientState("key").create({"model": "m", "idempotency_key": "mine"})["idempotency_key"] == "mine"


def test_only_whole_calls_of_client_tools_are_run() -> None:
    kinds = ("function_call", "custom_tool_call", "shell_call", "local_shell_call", "apply_patch_call")
    for kind in kinds:
        state = started()
        assert hear(state, done(call_item("c", type=kind, status="incomplete"))) == []
        item = call_item("d", type=kind)
        assert hear(state, done(item, 1)) == [RunCall(item)]
    for kind in ("file_search_call", "web_search_call", "mcp_call", "message", "reasoning"):
        assert hear(started(), done({"type": kind, "id": "x", "status": "completed"})) == []


def test_what_was_seen_is_dropped_and_a_gap_raises_and_changes_nothing() -> None:
    state = started(done(call_item("c")))
    assert state.receive({"sequence_number": 1, **done(call_item("c"))}) == []
    with pytest.raises(ProtocolGap, match="event 2 is missing") as caught:
        state.receive({"sequence_number": 4, **done(call_item("d"))})
    assert (caught.value.expected, caught.value.got) == (2, 4)
    assert (state.cursor, [*state.open_calls]) == (1, ["c"])


def test_unknown_events_are_counted_and_give_no_notice() -> None:
    state = started()
    assert hear(state, {"type": "response.of_the_future"}) == []
    assert state.cursor == 1
    assert state.receive({"type": "keepalive"}) == []


def test_a_park_tells_what_is_required() -> None:
    stub = {"type": "function_call_output", "call_id": "c", "name": "tool"}
    park = {"type": "response.done", "response": {"id": "resp_1", "status": "in_progress", "usage": {"total_tokens": 1}}}
    state = started(done(call_item("c")))
    assert hear(state, {**park, "required_input": [stub]}) == [Parked((stub,))]
    assert state.parked
    assert state.usage == {"total_tokens": 1}
    state.append([output("c")])
    assert hear(state, accepted("c")) == [Acknowledged(("c",), False)]
    assert not state.parked
    user = {"type": "message", "role": "user"}
    assert hear(state, {**park, "required_input": [user]}) == [Parked((user,)), AskUser()]


def test_what_was_sent_is_sent_again_until_it_is_acknowledged() -> None:
    state = started(done(call_item("c")), done(call_item("d"), 1))
    first, second = state.append([output("c")]), state.append([output("d"), MESSAGE])
    assert first == {"type": "response.append", "response_id": "resp_1", "input": [output("c")]}
    assert second["idempotency_key"] == "key-1"
    assert state.unacknowledged == ("c", "d")
    attach = {"type": "response.attach", "response_id": "resp_1", "starting_after": 2}
    assert state.reconnect() == [attach, first, second]
    hear(state, accepted("d"))
    assert state.reconnect()[1:] == [first]
    hear(state, accepted("c", duplicate=True))
    assert state.reconnect()[1:] == []
    assert not state.open_calls


def test_messages_are_acknowledged_in_order_and_not_by_duplicates() -> None:
    state = started()
    first, second = state.append([MESSAGE]), state.append([MESSAGE])
    assert first["idempotency_key"] != second["idempotency_key"]
    hear(state, accepted())
    hear(state, accepted(duplicate=True))
    assert state.reconnect()[1:] == [second]


def test_cancel_and_finish_are_said_again_too() -> None:
    state = started()
    assert state.finish() == {"type": "response.finish", "response_id": "resp_1"}
    assert state.cancel() == {"type": "response.cancel", "response_id": "resp_1"}
    assert [frame["type"] for frame in state.reconnect()] == ["response.attach", "response.finish", "response.cancel"]


def test_joining_announces_only_the_calls_that_are_open_when_the_replay_is_over() -> None:
    state = ClientState("key")
    assert state.attach("resp_1") == {"type": "response.attach", "response_id": "resp_1", "starting_after": -1}
    assert state.receive({"type": "response.attach.accepted", "response_id": "resp_1", "last_sequence_number": 3}) == []
    hear(state, {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}})
    assert hear(state, done(call_item("c"))) == []
    assert hear(state, done(call_item("d"), 1)) == []
    assert hear(state, accepted("c")) == [Acknowledged(("c",), False), RunCall(call_item("d"))]
    assert hear(state, done(call_item("e"), 2)) == [RunCall(call_item("e"))]


def test_errors_of_others_are_not_heard_and_those_of_the_connection_are() -> None:
    state = started()
    assert state.receive(error("response_not_found", "resp_other")) == []
    for frame in (error("invalid_json"), error("server_error", "resp_1")):
        assert state.receive(frame) == [Refused(frame)]
    nested = {"type": "error", "status": 400, "error": {"code": "response_not_active"}}
    assert state.receive(nested) == [Refused(nested, settled=True)]


def test_a_conflict_settles_the_call_that_it_is_about() -> None:
    state = started(done(call_item("c")), done(call_item("d"), 1))
    state.append([output("c")])
    state.append([output("d")])
    frame = error("tool_output_conflict", "resp_1")
    assert state.receive(frame) == [Refused(frame, settled=True, call_ids=("c",))]
    assert ([*state.open_calls], state.unacknowledged) == (["d"], ("d",))


def test_other_refusals_leave_the_call_open_and_unsent() -> None:
    for code in ("tool_output_type_mismatch", "tool_call_not_found"):
        assert code in CODES
        state = started(done(call_item("c")))
        state.append([output("c")])
        frame = error(code, "resp_1")
        assert state.receive(frame) == [Refused(frame, settled=False, call_ids=("c",))]
        assert ([*state.open_calls], state.unacknowledged) == (["c"], ())


def test_a_conflict_about_several_calls_leaves_them_to_be_sent_one_by_one() -> None:
    state = started(done(call_item("c")), done(call_item("d"), 1))
    state.append([output("c"), output("d")])
    (notice,) = state.receive(error("tool_output_conflict", "resp_1"))
    assert isinstance(notice, Refused)
    assert notice.call_ids == ("c", "d")
    assert ([*state.open_calls], state.unacknowledged) == (["c", "d"], ())


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_nothing_follows_the_end(status: str) -> None:
    state = started(done(call_item("c")))
    response = {"id": "resp_1", "status": status, "output": [call_item("c")], "usage": None}
    assert hear(state, {"type": f"response.{status}", "response": response}) == [Ended(response)]
    assert (state.ended, state.status, state.response, state.quiet) == (True, status, response, True)
    assert state.receive(error("response_not_active", "resp_1")) == []
    assert hear(state, done(call_item("d"), 1)) == []
    assert state.reconnect() == []


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (call_item("c"), {"type": "function_call_output", "output": "x"}),
        (call_item("c", type="custom_tool_call"), {"type": "custom_tool_call_output", "output": "x"}),
        (call_item("c", type="local_shell_call"), {"type": "local_shell_call_output", "output": "x"}),
        (call_item("c", type="apply_patch_call"), {"type": "apply_patch_call_output", "status": "failed", "output": "x"}),
        (
            call_item("c", type="shell_call"),
            {
                "type": "shell_call_output",
                "output": [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}],
            },
        ),
    ],
)
def test_each_kind_of_call_has_its_kind_of_output(call: Frame, answer: Frame) -> None:
    wire = output_for(call, "x", failed=True)
    assert wire == {"call_id": "c", **answer}
    item_from_wire(wire)
    parts = [{"type": "input_text", "text": "x"}]
    item_from_wire(output_for(call, parts))
