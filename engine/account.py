"""How a Response shows itself: as the resource at its beginning, as a report of what the engine did, as a ledger row."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from attrs import define

from protocol.codec import to_wire
from protocol.requests import CreateRequest
from protocol.response import Response

from .conversations import conversation_id
from .ledger import Row
from .models.base import Plan
from .stages.counters import Counters
from .stages.pipeline import Stages

Shape = Literal["append", "create", "http"]
"""How a rollout goes on after a client's tool call: in the same Response, or with another one."""


@define(eq=False)
class Times:
    """Where a Response's time went, in seconds of the loop's clock."""

    started: float = 0.0
    since: float = 0.0
    """When the phase that lasts now began."""
    sampling: float = 0.0
    first_tokens: float = 0.0
    """From each beginning of sampling to what came first, added up."""
    samplings: int = 0
    parked: float = 0.0
    ended: float = 0.0


class Accounted(Protocol):
    """What a row is made from."""

    tenant: str
    shape: Shape
    parks: int
    stages: Stages

    @property
    def calls(self) -> int: ...


def snapshot(response_id: str, request: CreateRequest, plan: Plan, created_at: int) -> Response:
    """The Response as it begins, with what the request said, and the defaults for what it did not."""
    values: dict[str, Any] = {
        "max_tool_calls": request.max_tool_calls,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata,
        "reasoning": {"effort": None, "summary": None, **request.reasoning} if request.reasoning else None,
        "text": {"format": {"type": "text"}, **(request.text or {})},
        "top_logprobs": request.top_logprobs,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "truncation": request.truncation,
        "store": request.store,
        "background": request.background,
        "safety_identifier": request.safety_identifier,
        "prompt_cache_key": request.prompt_cache_key,
        "previous_response_id": request.previous_response_id,
        "conversation": None if request.conversation is None else {"id": conversation_id(request.conversation)},
    }
    return Response(
        id=response_id,
        created_at=created_at,
        model=request.model,
        status="in_progress",
        instructions=request.instructions,
        tools=tuple(_echoed(to_wire(tool)) for tool in request.tools),
        tool_choice=plan.tool_choice,
        parallel_tool_calls=plan.parallel_tool_calls,
        temperature=plan.temperature,
        top_p=plan.top_p,
        **{name: value for name, value in values.items() if value is not None},
    )


def engine_report(counters: Counters, times: Times, parks: int, shape: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine did for a Response: in its terminal event, before the last two stages have run.

    ``model`` is what the model adds to it.
    """
    seconds = {"sampling": times.sampling, "parked": times.parked, "engine": _engine_seconds(times)}
    return {
        "shape": shape,
        "parks": parks,
        "stage_runs": counters.full_runs() | {"bill": 1, "store": 1},  # they run next, once, whatever comes
        "stages": counters.as_json(),
        "tokens_rendered": counters["render"].tokens,
        "seconds": {name: round(value, 6) for name, value in seconds.items()},
        **model,
    }


def timing_metrics(times: Times, tokens: int) -> dict[str, float]:
    """Milliseconds, in the names that Codex CLI reads. Here sampling is one service: there is nothing between it and the
    engine that makes the tokens."""
    first = _milliseconds(times.first_tokens)
    between = _milliseconds((times.sampling - times.first_tokens) / max(1, tokens - times.samplings))
    return {
        "responses_duration_excl_engine_and_client_tool_time_ms": _milliseconds(_engine_seconds(times)),
        "engine_service_total_ms": _milliseconds(times.sampling),
        "engine_iapi_ttft_total_ms": first,
        "engine_service_ttft_total_ms": first,
        "engine_iapi_tbt_across_engine_calls_ms": between,
        "engine_service_tbt_across_engine_calls_ms": between,
    }


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _engine_seconds(times: Times) -> float:
    """What was neither sampling nor a client's."""
    return max(0.0, times.ended - times.started - times.sampling - times.parked)


def row(rollout: Accounted, final: Response, ended_at: float) -> Row:
    """The ledger's row. ``ended_at`` is Unix time; its ``stages`` are filled in when the last stage has run."""
    usage = final.usage
    assert usage is not None
    reason = final.incomplete_details.reason if final.incomplete_details else None
    return Row(
        response_id=final.id,
        tenant=rollout.tenant,
        model=final.model,
        shape=rollout.shape,
        status=final.status,
        reason=reason or (final.error.code if final.error else None),
        created_at=float(final.created_at),
        ended_at=ended_at,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        tool_calls=rollout.calls,
        parks=rollout.parks,
        flags=",".join(rollout.stages.flags),
        stages="",
    )


def _echoed(tool: dict[str, Any]) -> dict[str, Any]:
    """A function tool is echoed with all of its keys, null where the request said nothing."""
    if tool["type"] != "function":
        return tool
    return {"description": None, "parameters": None, "strict": None, **tool}
