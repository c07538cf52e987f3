"""What ``docs/append.md`` says and no other test of the server looks at: tried on real sockets with the tiny client."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio

from .doc_server import doc_server
from .tiny_client import TERMINAL, Socket

CALL = {"call": {"name": "f"}}
TWO = {"calls": [{"name": "f"}, {"name": "g"}]}
Frame = dict[str, Any]
Script = Callable[[Callable[..., "Talk"]], None]


class Talk(Socket):
    """A socket with shorthands."""

    def create(self, *steps: Any, pace: float | None = None, **fields: Any) -> None:
        program: Frame = {"program": list(steps)} | ({"tokens_per_second": pace} if pace else {})
        self.send({"type": "response.create", "model": "scripted", "input": json.dumps(program), **fields})

    def append(self, *items: Frame, **fields: Any) -> None:
        self.send({"type": "response.append", "input": list(items), **fields})

    def until(self, *kinds: str) -> Frame:
        while (frame := self.receive())["type"] not in kinds:
            pass
        return frame

    def parked(self) -> tuple[str, list[str | None]]:
        """The Response's id, and the calls that wait."""
        frame = self.until("response.done")
        return frame["response"]["id"], [stub.get("call_id") for stub in frame["required_input"]]

    def end(self) -> Frame:
        response: Frame = self.until(*TERMINAL)["response"]
        return response

    def refused(self) -> str:
        code: str = self.until("error")["code"]
        return code


def output(call_id: str | None, text: str = "r") -> Frame:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def user(text: str) -> Frame:
    return {"role": "user", "content": text}


def said(response: Frame) -> list[str]:
    return [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"]


def a_socket_that_was_never_attached_is_answered_without_a_number(connect: Callable[..., Talk]) -> None:
    one, two = connect(), connect()
    one.create(CALL, CALL, {"say": "end"})
    response_id, (call,) = one.parked()
    two.append(output(call), response_id=response_id, stream_id="b")
    event, answer = one.until("response.append.accepted"), two.receive()
    assert event["append"]["call_ids"] == [call]
    del event["sequence_number"]
    assert answer == event | {"response_id": response_id, "stream_id": "b"}
    two.append(output("call_x"), response_id=response_id, idempotency_key="k")
    refused = two.receive()
    assert refused["code"] == "tool_call_not_found"
    assert refused["append"] == {"call_ids": ["call_x"], "idempotency_key": "k"}


def a_socket_that_was_never_attached_ends_what_it_names(connect: Callable[..., Talk]) -> None:
    one, two = connect(), connect()
    for end in "finish", "cancel":
        one.create(CALL, hold="conversation")
        response_id, _ = one.parked()
        two.send({"type": f"response.{end}", "response_id": response_id})
        assert two.receive() == {"type": f"response.{end}.accepted", "response_id": response_id}
        if end == "finish":
            one.send({"type": "response.cancel", "response_id": response_id})
        assert one.end()["status"] == "cancelled"


def a_key_has_from_1_to_256_characters(connect: Callable[..., Talk]) -> None:
    one = connect()
    one.create(CALL, {"say": "end"})
    _, (call,) = one.parked()
    for key in "", "k" * 257:
        one.append(output(call), idempotency_key=key)
        assert one.until("error")["param"] == "idempotency_key"
    one.append(output(call), idempotency_key="k" * 256)
    assert one.end()["status"] == "completed"


def an_attach_takes_over_and_the_former_client_is_told(connect: Callable[..., Talk]) -> None:
    one, two = connect(), connect()
    one.create(CALL, {"say": "end"})
    response_id, (call,) = one.parked()
    two.send({"type": "response.attach", "response_id": response_id, "stream_id": "b"})
    accepted = two.receive()
    assert (accepted["epoch"], accepted["starting_after"], accepted["stream_id"]) == (2, -1, "b")
    assert two.receive()["type"] == "response.created"
    assert one.refused() == "attached_elsewhere"
    one.append(output(call))
    assert one.refused() == "stale_epoch"
    one.create({"say": "waits"})  # its lane is occupied until the Response has ended, on whichever socket
    two.append(output(call), stream_id="b", response_id=None)
    assert two.end()["status"] == "completed"
    assert said(one.end()) == ["waits"]


def an_attached_response_does_not_occupy_the_lane(connect: Callable[..., Talk]) -> None:
    one, two = connect(), connect()
    one.create(CALL)
    response_id, _ = one.parked()
    two.send({"type": "response.attach", "response_id": response_id})
    two.parked()
    two.create(CALL)
    other, (call,) = two.parked()
    two.append(output(call))
    assert two.refused() == "response_ambiguous"
    two.append(output(call), response_id=other)
    assert two.end()["id"] == other


def an_attach_on_the_same_socket_begins_anew(connect: Callable[..., Talk]) -> None:
    one = connect()
    one.create(CALL)
    response_id, (call,) = one.parked()
    one.send({"type": "response.attach", "response_id": response_id, "starting_after": 1, "stream_id": "again"})
    assert one.receive()["type"] == "response.attach.accepted"
    assert one.receive()["sequence_number"] == 2
    one.parked()
    one.append(output(call), stream_id="again")
    assert one.end()["status"] == "completed"


def a_create_with_a_known_key_attaches_from_the_beginning(connect: Callable[..., Talk]) -> None:
    one, two = connect(), connect()
    one.create(CALL, {"say": "end"}, idempotency_key="k")
    response_id, (call,) = one.parked()
    two.create(CALL, {"say": "end"}, idempotency_key="k")
    assert two.receive()["response_id"] == response_id
    assert two.receive()["sequence_number"] == 0
    two.create(CALL, {"say": "other"}, idempotency_key="k", stream_id="other")
    assert two.refused() == "idempotency_conflict"
    two.create({"say": "waits"})  # the lane is occupied, as it was where the Response was created
    two.append(output(call))
    assert said(two.end()) == ["end"]
    assert said(two.end()) == ["waits"]
    two.create(CALL, {"say": "end"}, idempotency_key="k", stream_id="lane", own=1)
    accepted = two.receive()
    assert (accepted["type"], accepted["stream_id"]) == ("response.attach.accepted", "lane")
    assert two.end()["id"] == response_id


def what_is_not_served_is_refused_by_name(connect: Callable[..., Talk]) -> None:
    one = connect()
    fields: list[Frame] = [
        {"include": ["message.output_text.logprobs"]},
        {"service_tier": "priority"},
        {"top_logprobs": 1},
        {"background": True},
        {"conversation": "conv_1"},
        {"generate": False},
    ]
    for field in fields:
        one.create({"say": "x"}, **field)
        assert one.until("error")["param"] == next(iter(field))


def a_steer_is_refused(connect: Callable[..., Talk]) -> None:
    one = connect()
    one.create(CALL)
    response_id, _ = one.parked()
    one.send({"type": "response.steer", "previous_response_id": response_id, "input": "Stop there."})
    failed = one.receive()
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "steering_not_supported")


def calls_beyond_the_limit_are_never_seen(connect: Callable[..., Talk]) -> None:
    one = connect()
    one.create(TWO, {"say": "end"}, max_tool_calls=1)
    _, (call,) = one.parked()
    one.append(output(call))
    assert [item["type"] for item in one.end()["output"]] == ["function_call", "message"]


def user_messages_count_twice_without_a_key(connect: Callable[..., Talk]) -> None:
    one = connect()
    one.create(hold="conversation")
    one.parked()
    one.append(user("a"))
    one.append(user("a"))
    one.append(user("b"), idempotency_key="1")
    first = [one.until("response.append.accepted") for _ in range(3)]
    one.append(user("b"), idempotency_key="1")
    again = one.until("response.append.accepted")
    assert [frame["append"]["duplicate"] for frame in first] == [False, False, False]
    assert again["append"] == {**first[2]["append"], "duplicate": True}
    one.append(user("c"), idempotency_key="1")
    assert one.refused() == "idempotency_conflict"


def finish_takes_back_the_hold(connect: Callable[..., Talk]) -> None:
    one = connect()
    one.create(CALL, {"say": "bye"}, hold="conversation")
    _, (call,) = one.parked()
    one.send({"type": "response.finish"})
    assert one.receive()["type"] == "response.in_progress"
    one.append(output(call))
    assert said(one.end()) == ["bye"]


def cancel_closes_what_was_being_sampled(connect: Callable[..., Talk]) -> None:
    one = connect()
    one.create({"say": {"tokens": 1000}}, pace=50)
    one.until("response.output_text.delta")
    one.send({"type": "response.cancel"})
    frame = one.until(*TERMINAL)
    assert frame["type"] == "response.incomplete"
    assert frame["response"]["status"] == "cancelled"
    assert frame["response"]["incomplete_details"] is None
    assert frame["response"]["output"][0]["status"] == "incomplete"


def the_same_means_equal_as_json(connect: Callable[..., Talk]) -> None:
    one = connect()
    one.create(TWO)
    _, (first, second) = one.parked()
    one.append(output(first), output(first))
    assert one.until("response.append.accepted")["append"]["call_ids"] == [first]
    one.append({"output": "r", "call_id": first, "type": "function_call_output"})
    assert one.until("response.append.accepted")["append"]["duplicate"]
    one.append({**output(first), "status": "completed"})
    assert one.refused() == "tool_output_conflict"
    one.append(output(second), output(first, "other"))
    assert one.refused() == "tool_output_conflict"
    one.append(output(second))
    assert one.until("response.append.accepted")["pending"] == []


def unanswered_calls_are_answered_by_a_continuation(connect: Callable[..., Talk]) -> None:
    one = connect()
    one.create({"calls": [{"name": "f"}, {"name": "g", "arguments": {"text": "x " * 100}}]}, max_output_tokens=40)
    response = one.end()
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    whole, cut = response["output"]
    assert (whole["status"], cut["status"]) == ("completed", "incomplete")
    more = {"type": "response.create", "model": "scripted", "previous_response_id": response["id"]}
    one.send({**more, "input": [user("go on")]})
    assert one.refused() == "tool_output_missing"
    one.create(previous_response_id=response["id"], input=[output(whole["call_id"]), user("go on")])
    assert one.until("response.created", "error")["type"] == "response.created"


def what_is_not_stored_is_continued_on_its_socket_alone(connect: Callable[..., Talk]) -> None:
    one, two = connect(), connect()
    one.create({"say": "x"}, store=False)
    first = one.end()["id"]
    two.create({"say": "y"}, previous_response_id=first)
    assert two.refused() == "previous_response_not_found"
    one.create({"say": "y"}, previous_response_id=first, store=False)
    assert one.end()["previous_response_id"] == first


def offers_of_subprotocols_and_compression_are_ignored(connect: Callable[..., Talk]) -> None:
    offers = {"Sec-WebSocket-Protocol": "chat", "Sec-WebSocket-Extensions": "permessage-deflate"}
    one = connect(offers | {"OpenAI-Beta": "other=1, responses_websockets=2026-02-04"})
    one.create({"say": "x"})
    assert said(one.end()) == ["x"]


SCRIPTS: list[Script] = [
    a_socket_that_was_never_attached_is_answered_without_a_number,
    a_socket_that_was_never_attached_ends_what_it_names,
    an_attach_takes_over_and_the_former_client_is_told,
    an_attached_response_does_not_occupy_the_lane,
    an_attach_on_the_same_socket_begins_anew,
    a_key_has_from_1_to_256_characters,
    a_create_with_a_known_key_attaches_from_the_beginning,
    what_is_not_served_is_refused_by_name,
    a_steer_is_refused,
    calls_beyond_the_limit_are_never_seen,
    user_messages_count_twice_without_a_key,
    finish_takes_back_the_hold,
    cancel_closes_what_was_being_sampled,
    the_same_means_equal_as_json,
    unanswered_calls_are_answered_by_a_continuation,
    what_is_not_stored_is_continued_on_its_socket_alone,
    offers_of_subprotocols_and_compression_are_ignored,
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
async def test_it_is_as_the_page_says(script: Script) -> None:
    sockets: list[Talk] = []
    async with doc_server() as port:

        def connect(headers: dict[str, str] | None = None) -> Talk:
            sockets.append(Talk(port, headers or {}))
            return sockets[-1]

        try:
            await trio.to_thread.run_sync(script, connect)
        finally:
            for one in sockets:
                one.close()
