"""The plain parts of the engine against small reference models, move by move: slots, inbox, lanes, log, outbox."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.inbox import Inbox
from engine.lane import Lanes
from engine.log import DeltaText, EventLog
from engine.outbox import Outbox, Subscription
from engine.parking import Slots
from engine.testing.profile import examples
from protocol import events as ev
from protocol.codec import parse
from protocol.errors import ProtocolError
from protocol.items import CustomToolCall, FunctionCall, FunctionCallOutput, Item, Message
from protocol.limits import IN_FLIGHT, STREAM_IDS
from protocol.requests import AppendRequest

# ---- slots and inbox

CALLS = ["a", "b", "c"]
parts = st.one_of(
    st.tuples(st.just("result"), st.sampled_from([*CALLS, "unknown"]), st.sampled_from(["x", "y"])),
    st.tuples(st.just("message"), st.just(""), st.sampled_from(["hello", "ho"])),
    st.tuples(st.just("echo"), st.sampled_from(CALLS), st.sampled_from(["true", "false"])),
)
appends = st.tuples(st.lists(parts, max_size=4), st.sampled_from([None, None, "k1", "k2"]))


def item_of(kind: str, call_id: str, text: str) -> Item:
    if kind == "result":
        return FunctionCallOutput(call_id=call_id, output=text)
    if kind == "message":
        return Message(role="user", content=text)
    return FunctionCall(call_id=call_id, name="f", arguments="{}" if text == "true" else '{"n": 1}')


class ReferenceInbox:
    """What an inbox is: results by call, messages in a row, appends by key."""

    def __init__(self) -> None:
        self.results: dict[str, str] = {}
        self.messages: list[str] = []
        self.keys: dict[str, Any] = {}

    def apply(self, some: Sequence[tuple[str, str, str]], key: str | None) -> tuple[str, bool | None]:
        if key in self.keys:
            return ("accepted", True) if self.keys[key] == list(some) else ("idempotency_conflict", None)
        wrong = self.wrong(some)
        if wrong:
            return wrong, None
        fresh = {call: text for kind, call, text in some if kind == "result" and call not in self.results}
        said = [text for kind, _, text in some if kind == "message"]
        self.results |= fresh
        self.messages += said
        if key:
            self.keys[key] = list(some)
        return "accepted", not (fresh or said)

    def wrong(self, some: Sequence[tuple[str, str, str]]) -> str | None:
        if not some:
            return "invalid_value"
        if any(kind == "echo" and text == "false" for kind, _, text in some):
            return "echo_mismatch"
        held = dict(self.results)
        for kind, call, text in some:
            if kind == "result" and call not in CALLS:
                return "tool_call_not_found"
            if kind == "result" and held.setdefault(call, text) != text:
                return "tool_output_conflict"
        return None


@examples(200)
@given(st.lists(appends, max_size=8))
def test_inbox_and_slots(script: list[tuple[list[tuple[str, str, str]], str | None]]) -> None:
    slots, reference, ids = Slots(), ReferenceInbox(), iter(range(1000))
    inbox = Inbox(slots, [], lambda: f"app_{next(ids)}", remember=100)
    for call_id in CALLS:
        slots.open(FunctionCall(call_id=call_id, name="f", arguments="{}"))
    taken: list[str] = []
    for some, key in script:
        request = AppendRequest(input=tuple(item_of(*part) for part in some), idempotency_key=key)
        try:
            accepted = inbox.apply(request, lambda items: items)
            outcome: tuple[str, bool | None] = ("accepted", accepted.append.duplicate)
        except ProtocolError as error:
            outcome = (error.code, None)
        assert outcome == reference.apply(some, key)
        assert slots.pending == tuple(call for call in CALLS if call not in reference.results)
        assert [stub.call_id for stub in slots.stubs] == list(slots.pending)
        for call in CALLS:
            held = slots.result(call)
            assert (held.output if isinstance(held, FunctionCallOutput) else None) == reference.results.get(call)
        if len(taken) % 2:
            taken += [str(message.content) for message in inbox.take_messages()]
    taken += [str(message.content) for message in inbox.take_messages()]
    assert taken == reference.messages
    assert not inbox.has_messages


def test_slots_know_kinds() -> None:
    slots = Slots()
    slots.open(CustomToolCall(call_id="a", name="f", input=""))
    with pytest.raises(ProtocolError) as caught:
        slots.plan([("input[0]", FunctionCallOutput(call_id="a", output=""))])
    assert caught.value.code == "tool_output_type_mismatch"
    assert slots.pending == ("a",)


# ---- lanes

lane_moves = st.lists(st.tuples(st.sampled_from(["submit", "done"]), st.integers(0, 24)), max_size=80)


@examples(200)
@given(lane_moves, st.integers(1, 4))
def test_lanes(moves: list[tuple[str, int]], queue_limit: int) -> None:
    """Each lane in its order, one at a time; no more than 16 at once; whoever waits for room gets it."""
    started: list[tuple[str, int]] = []
    running: set[str] = set()
    queues: dict[str, list[int]] = {}

    def start(job: tuple[str, int]) -> None:
        assert job[0] not in running
        started.append(job)
        running.add(job[0])

    lanes: Lanes[tuple[str, int]] = Lanes(start, queue_limit=queue_limit)
    for number, (kind, which) in enumerate(moves):
        lane = f"lane-{which}"
        if kind == "done":
            if lane not in running:
                continue
            running.discard(lane)
            lanes.done(lane)
        else:
            queue = queues.setdefault(lane, [])
            waiting = len([one for one in queue if (lane, one) not in started])
            if waiting >= queue_limit:
                with pytest.raises(ProtocolError):
                    lanes.submit(lane, (lane, number))
                continue
            queue.append(number)
            lanes.submit(lane, (lane, number))
        assert lanes.running == len(running) <= IN_FLIGHT
        for name, queue in queues.items():
            mine = [one for lane_of, one in started if lane_of == name]
            assert mine == queue[: len(mine)]
        blocked = [name for name, queue in queues.items() if name not in running and len(queue) > _started(started, name)]
        assert not blocked or len(running) == IN_FLIGHT


def _started(started: list[tuple[str, int]], lane: str) -> int:
    return sum(name == lane for name, _ in started)


def test_lanes_have_so_many_names() -> None:
    lanes: Lanes[int] = Lanes(lambda _: None, queue_limit=9)
    for number in range(STREAM_IDS):
        lanes.submit(f"lane-{number}", number)
    lanes.submit(None, 0)
    with pytest.raises(ProtocolError) as caught:
        lanes.submit("one-more", 0)
    assert caught.value.code == "websocket_stream_limit_reached"
    lanes.submit("lane-0", 1)


# ---- log and outbox

entries = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from(["x", "é"])),
        st.tuples(st.just("delta"), st.sampled_from(["a", " word", "🎹", "\n"])),
        st.tuples(st.just("finish"), st.just("")),
    ),
    max_size=30,
)


def text_run(number: int) -> DeltaText:
    return DeltaText(ev.DeltaRun("response.output_text.delta", f"msg_{number}", number, content_index=0))


@examples(200)
@given(entries, st.integers(-1, 30))
def test_log(script: list[tuple[str, str]], cursor: int) -> None:
    """A log gives back what it was given, from any cursor, whether texts were finished meanwhile or not."""
    log, bodies, text = EventLog(), [], text_run(0)
    for kind, what in script:
        if kind == "event":
            bodies.append(log.append(ev.CustomInputDone("ctc_1", 0, what)))
        elif kind == "delta":
            bodies += log.deltas(text, [what])
        else:
            text.finish()
            text = text_run(len(bodies))
    assert log.next == len(bodies)
    assert list(log.after(cursor)) == list(enumerate(bodies))[cursor + 1 :]


class Wire:
    """A wire that sends when it is told to."""

    def __init__(self) -> None:
        self.waiting = 0
        self.sent: list[bytes] = []
        self.held: list[bytes] = []

    def put(self, frame: bytes) -> None:
        self.held.append(frame)
        self.waiting += len(frame)

    def flush(self) -> None:
        self.sent += self.held
        self.held, self.waiting = [], 0


@examples(200)
@given(
    st.lists(st.tuples(st.sampled_from(["log 0", "log 1", "log 2", "flush", "put"]), st.integers(0, 3)), max_size=60),
    st.integers(50, 400),
)
def test_outbox(script: list[tuple[str, int]], limit: int) -> None:
    """Three logs and some other frames through one outbox: each log whole and in order, within the limit, the lanes apart."""
    wire = Wire()
    outbox = Outbox(wire, limit)
    logs = [EventLog() for _ in range(3)]
    lanes = ["a", "b", "a"]  # the third follows the first on its lane
    subscriptions = [Subscription(log, outbox, stream_id=lane) for log, lane in zip(logs, lanes, strict=True)]
    puts = 0
    for what, count in script:
        if what == "flush":
            wire.flush()
            outbox.drained()
        elif what == "put":
            outbox.put(b"{}")
            puts += 1
        else:
            number = int(what[-1])
            if number == 0 and logs[2].next:
                continue  # the first Response of the lane has ended
            for _ in range(count):
                body = logs[number].append(ev.CustomInputDone("ctc_1", number, "x"))
                subscriptions[number].deliver((body,))
        events = [frame for frame in wire.held if frame != b"{}"]
        assert sum(map(len, events[:-1])) < limit, "one event may overrun the limit, two may not"
    for _ in range(1000):
        wire.flush()
        outbox.drained()
    assert all(one.caught_up for one in subscriptions)
    frames = [parse(frame) for frame in wire.sent if frame != b"{}"]
    assert len(wire.sent) - len(frames) == puts
    for number, log in enumerate(logs):
        mine = [frame["sequence_number"] for frame in frames if frame["output_index"] == number]
        assert mine == list(range(log.next))
    on_lane = [frame["output_index"] for frame in frames if frame["stream_id"] == "a"]
    assert on_lane == sorted(on_lane), "one Response after the other"


def test_an_outbox_that_closes_wakes_nobody_for_nothing() -> None:
    wire = Wire()
    outbox = Outbox(wire, 10)
    log = EventLog()
    subscription = Subscription(log, outbox)
    for _ in range(5):
        subscription.deliver((log.append(ev.CustomInputDone("ctc_1", 0, "x")),))
    outbox.close()
    held = len(wire.held)
    wire.flush()
    outbox.drained()
    outbox.put(b"{}")
    assert wire.held == []
    assert held == 1
