"""What schemathesis can't know of the server under test; it loads this file itself (``SCHEMATHESIS_HOOKS``).

Random creates name no model, and random ids name nothing, so almost all requests would end at the door. The hooks lead some on:
to the model that is there, with programs that park and answer, and to ids that the server has given.
"""

import json
import os
from collections import Counter, defaultdict
from itertools import count
from typing import Any

import schemathesis

PROGRAMS = (
    {"program": [{"reason": "hm"}, {"say": "Hello."}]},
    {"program": [{"call": {"name": "f"}}, {"say": "Done."}]},
)

BY_CONTEXT = {
    "tool_call_not_found",
    "tool_output_missing",
    "tool_output_conflict",
    "tool_output_type_mismatch",
    "previous_response_not_found",
    "unsupported_parameter",
    "echo_mismatch",
    "invalid_cursor",
}
"""Why a body that fits its schema may be refused: what it means depends on what was said before."""
NOT_IN_A_SCHEMA = (
    "expected an integer, got a number",  # 1.0: JSON Schema takes it for an integer, the server does not
    "after: no item",
    "is also the name of",
    "item references are not resolved here",
    "not a JSON Schema",
    "previous_response_id: not together",
    "store: must not be false",
    "store can't be false",
    "only a background Response can be cancelled",
)
"""Parts of messages: rules over more than one field, or beyond one body."""

ids: dict[str, list[str]] = defaultdict(list)
"""By the first part of the path below ``/v1``, what was created there and may still be there."""
seen: Counter[str] = Counter()
turn = count()


def mode_and_phase(case: Any) -> tuple[str, str]:
    return (case.meta.generation.mode.name, case.meta.phase.name.name) if case.meta else ("", "")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    body, number = case.body, next(turn)
    if isinstance(body, dict) and isinstance(body.get("model"), str) and body["model"]:
        body["model"] = "scripted"
    mode, phase = mode_and_phase(case)
    if mode != "POSITIVE" or phase == "STATEFUL":
        return
    if case.operation.label == "POST /v1/responses" and isinstance(body, dict):
        body["input"] = json.dumps(PROGRAMS[number % 2])
        body["store"], body["stream"], body["background"] = None, number % 3 == 0, number % 5 == 0
        for name in ("previous_response_id", "conversation", "hold", "text", "idempotency_key"):
            body.pop(name, None)
    if "{id}" in case.path and (given := ids[case.path.split("/")[2]]) and number % 4:
        case.path_parameters["id"] = given[-1 - number % min(len(given), 3)]


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    kind = (response.headers.get("content-type") or ["none"])[0].partition(";")[0]
    seen[f"{case.operation.method.upper()} {case.operation.path} {response.status_code} {kind}"] += 1
    if case.operation.method.upper() == "POST" and response.status_code == 200 and kind == "application/json":
        found = response.json().get("id", "")
        if found.startswith(("resp_", "conv_")):
            ids[case.operation.path.split("/")[2]].append(found)
    with open(os.environ["SEEN"], "w", encoding="utf-8") as file:
        json.dump(seen, file)


@schemathesis.check
def what_fits_is_read(ctx: Any, response: Any, case: Any) -> None:
    """A request that fits the description is never refused for its form; in place of ``positive_data_acceptance``."""
    mode, _ = mode_and_phase(case)
    if mode != "POSITIVE" or response.status_code != 400:
        return
    error = response.json()["error"]
    reasons = error["code"] in BY_CONTEXT or any(part in error["message"] for part in NOT_IN_A_SCHEMA)
    assert reasons, f"{case.operation.label} refused what its description allows: {error}"


@schemathesis.check
def streams_are_of_events(ctx: Any, response: Any, case: Any) -> None:
    """A stream of events has events of the description, numbered from 0, and ends."""
    if "event-stream" in "".join(response.headers.get("content-type") or ()):
        text = response.content.decode()
        assert text.startswith("event: response.") or text == "data: [DONE]\n\n", text[:200]
        assert text.endswith("data: [DONE]\n\n"), text[-200:]
