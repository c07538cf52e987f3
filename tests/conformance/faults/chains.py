"""Faults of the shapes in which each turn is a Response of its own: what is handed on from one to the next, and to whom."""

from typing import Any

import pytest
from attrs import evolve

from engine.lifespan import Lifespan
from engine.rollout import Rollout
from engine.session import Session
from engine.stages import validate
from engine.steering import Steering
from protocol.conformance.transport import Frame
from protocol.errors import ProtocolError

from .base import Line, hears, planted, says, takes_for

CREATE, CHAINS = ["create"], ["create", "http"]
NOBODYS = "call_nobody_made"


@hears("L14", "L8", "L5", "L13", shapes=CHAINS, probes=["a second question"])
def history_is_not_passed_on(frame: Frame, line: Line) -> None:
    """previous_response_id is ignored."""
    frame.pop("previous_response_id", None)


@takes_for("L13", shapes=CHAINS, probes=["a strangers id"])
def everybody_is_one_tenant(key: str | None) -> str | None:
    """A stranger's chain can be continued: all keys are taken for one."""
    return key and "ours"


@says("L12", "L13", shapes=CHAINS, probes=["an unknown previous response"])
def an_unknown_response_is_a_bad_request(frame: Frame, line: Line) -> None:
    """previous_response_not_found is told as invalid_value."""
    if frame.get("code") == "previous_response_not_found":
        frame["code"] = frame["error"]["code"] = "invalid_value"


@hears("L5", "L14", shapes=CHAINS, probes=["an orphan output"])
def an_orphan_is_dropped(frame: Frame, line: Line) -> None:
    """An output of a call that nobody made is passed over in silence."""
    if isinstance(frame.get("input"), list):
        frame["input"] = [item for item in frame["input"] if item.get("call_id") != NOBODYS]


@planted("L5", "L14", shapes=CHAINS, probes=["only one of two outputs"])
def a_missing_output_is_no_matter(patch: pytest.MonkeyPatch) -> None:
    """A continuation without the outputs of all calls is taken, and the model goes on without them."""
    check = validate.check_pairing

    def lenient(waiting: Any, new: Any) -> None:
        try:
            check(waiting, new)
        except ProtocolError as error:
            if error.code != "tool_output_missing":
                raise

    patch.setattr(validate, "check_pairing", lenient)


@hears("L5", "L14", "L8", shapes=CHAINS, probes=["call ids used again in a later turn"])
def the_last_output_counts_for_all(frame: Frame, line: Line) -> None:
    """All outputs of a request have the text of its last one."""
    items = frame.get("input")
    outputs = [one for one in items if str(one.get("type")).endswith("_output")] if isinstance(items, list) else []
    for item in outputs:
        item["output"] = outputs[-1]["output"]


@says("L4", "L2", shapes=CREATE, renumber=True)
def a_park_in_the_create_shape(frame: Frame, line: Line) -> list[Frame] | None:
    """Before a Response with calls ends, response.done asks for their outputs."""
    if frame["type"] != "response.completed":
        return None
    calls = [item for item in frame["response"]["output"] if "call_id" in item]
    asked = [{"type": f"{call['type']}_output", "call_id": call["call_id"]} for call in calls]
    parked = {"id": frame["response"]["id"], "object": "response", "status": "in_progress", "usage": None}
    return [{**frame, "type": "response.done", "response": parked, "required_input": asked}, frame] if calls else None


@says("L3", "L4", "L2", "L13", "L12", shapes=CREATE, probes=["nothing follows the end"])
def something_follows_the_end(frame: Frame, line: Line) -> list[Frame] | None:
    """Behind the terminal event comes a response.done without a number, as of other APIs."""
    return [frame, {"type": "response.done"}] if frame["type"] == "response.completed" else None


@hears("L1", "L8", "L4", "L14", shapes=CREATE, probes=["a warm up"])
def a_warm_up_generates(frame: Frame, line: Line) -> None:
    """generate: false is ignored."""
    frame.pop("generate", None)


@hears("L13", "L14", "L12", shapes=CHAINS, probes=["store false is not found elsewhere"])
def everything_is_stored(frame: Frame, line: Line) -> None:
    """store: false is ignored."""
    if frame.get("type") == "response.create":
        frame.pop("store", None)


@planted("L14", "L13", "L12", shapes=CREATE, probes=["a failed continuation is forgotten"])
def a_failed_continuation_is_kept(patch: pytest.MonkeyPatch) -> None:
    """After a continuation was refused, its connection still knows the Response before it."""
    patch.setattr(Session, "_evict", lambda self, lane, response_id: None)


@planted("L13", "L14", "L12", shapes=CREATE, probes=["a failed fork leaves its parent"])
def a_failed_fork_forgets_its_parent(patch: pytest.MonkeyPatch) -> None:
    """After a continuation was refused, all lanes of its connection have forgotten the Response before it."""

    def evict(self: Session, lane: str | None, response_id: str | None) -> None:
        for one in [one for one, latest in self._latest.items() if latest.response_id == response_id]:
            del self._latest[one]

    patch.setattr(Session, "_evict", evict)


@hears("L12", "L10", shapes=CREATE, probes=["a steer"])
def a_steer_is_ignored(frame: Frame, line: Line) -> list[Frame] | None:
    """response.steer gets no answer."""
    return [] if frame.get("type") == "response.steer" else None


@planted("L14", "L10", "L12", "L8", shapes=CREATE, probes=["a steer"])
def a_steer_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A steer is accepted, and nothing comes of it."""
    patch.setattr(Steering, "successor", lambda self, rollout, stream_id: None)


@planted("L10", "L11", "L12", "L2", shapes=CREATE)
def a_drop_cancels_nothing(patch: pytest.MonkeyPatch) -> None:
    """A Response of the create shape goes on when its client's connection is gone."""
    patch.setattr(Lifespan, "abandon", lambda self: None)


@hears("L15", "L2", shapes=CHAINS, probes=["a text cut by the token limit"])
def the_token_limit_is_ignored(frame: Frame, line: Line) -> None:
    """max_output_tokens is ignored."""
    frame.pop("max_output_tokens", None)


@says("L4", "L2", "L8", shapes=CHAINS, probes=["arguments cut by the token limit", "a text cut by the token limit"])
def what_was_cut_is_called_complete(frame: Frame, line: Line) -> None:
    """An item that the token limit cut has the status completed."""
    for item in [frame.get("item") or {}, *((frame.get("response") or {}).get("output") or ())]:
        if item.get("status") == "incomplete":
            item["status"] = "completed"


@says("L4", "L5", "L14", shapes=CHAINS, probes=["the end has all the output"])
def the_output_is_left_out_of_the_end(frame: Frame, line: Line) -> None:
    """output in response.completed is null."""
    if frame["type"] == "response.completed":
        frame["response"]["output"] = None


@says("L14", shapes=[], probes=["large integers in a schema"])
def integers_become_doubles(frame: Frame, line: Line) -> None:
    """Numbers in the schemas of tools are doubles."""
    for tool in (frame.get("response") or {}).get("tools") or ():
        for schema in tool.get("parameters", {}).get("properties", {}).values():
            if "maximum" in schema:
                schema["maximum"] = float(schema["maximum"])


@hears("L8", shapes=[], probes=["tool choice none"])
def tool_choice_is_ignored(frame: Frame, line: Line) -> None:
    """tool_choice is ignored."""
    frame.pop("tool_choice", None)


@hears("L8", shapes=[], probes=["one call at a time"])
def calls_are_always_parallel(frame: Frame, line: Line) -> None:
    """parallel_tool_calls is ignored."""
    frame.pop("parallel_tool_calls", None)


@hears("L14", shapes=[], probes=["metadata comes back"])
def metadata_is_lost(frame: Frame, line: Line) -> None:
    """metadata is ignored."""
    frame.pop("metadata", None)


@says("L14", shapes=[], probes=["null and not left out"])
def what_is_null_is_left_out(frame: Frame, line: Line) -> None:
    """Fields of the Response that have no value are missing."""
    if "response" in frame:
        frame["response"] = {name: value for name, value in frame["response"].items() if value is not None}


@says("L15", shapes=[], probes=["usage is there"])
def usage_has_no_details(frame: Frame, line: Line) -> None:
    """usage has the three totals, and no details."""
    usage = (frame.get("response") or {}).get("usage") or {}
    usage.pop("input_tokens_details", None)
    usage.pop("output_tokens_details", None)


@planted("L14", shapes=[], probes=["instructions are not handed on"])
def instructions_are_handed_on(patch: pytest.MonkeyPatch) -> None:
    """A Response that continues another one has its instructions, too."""
    start = Rollout.start

    def inherit(self: Rollout, previous: Any) -> bool:
        if previous is not None and self.request.instructions is None:
            self.request = evolve(self.request, instructions=previous.instructions)
        return start(self, previous)

    patch.setattr(Rollout, "start", inherit)
