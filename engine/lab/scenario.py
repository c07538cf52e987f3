"""What is simulated: places of a sweep, as an experiment's ``[simulate]`` table or the command line says."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from attrs import fields_dict, frozen

from protocol.fields import Json, unknown_fields

from .play import WAYS, Way
from .slots import Policy

GIB: Final = 2**30


@frozen(kw_only=True)
class Simulate:
    """A sweep: what stands in a list is simulated with each of its values, together with each of the other lists' values."""

    users: tuple[int, ...] = (1,)
    slots: tuple[int, ...] = (0,)
    """Model slots; 0 is one for each user."""
    policies: tuple[str, ...] = ("hold",)
    """``hold``, ``release``, ``release:SECONDS``, ``pressure``; see ``slots.Policy``."""
    memory_gib: tuple[float, ...] = (0.0,)
    """For the model's state of all rollouts; 0 is without a limit."""
    tool_seconds: tuple[str, ...] = ()
    """As ``--tool-seconds`` has them; if there are none, they are the workload's."""
    tokens_per_second: tuple[float, ...] = (65, 300, 1000, 4000)
    rtt_ms: tuple[float, ...] = (0, 20, 80)
    shapes: tuple[Way, ...] = WAYS
    prefill_tokens_per_second: float = math.inf
    """How fast the model reads what it does not know."""
    kv_bytes_per_token: int = 320 * 1024
    """Of the model's state: 80 layers of 8 heads for keys and values of 128 numbers of 2 bytes each, a 70B model's."""
    rollouts: int = 1
    """Of each user, one after the other."""
    start_within: float | None = None
    """Seconds over which the users begin; if not given, as long as a rollout takes at the least."""
    loss: float = 0.0
    """The chance that the network loses something that is sent, and it must be sent again."""
    costs: str | None = None
    """A file with what work costs, results of ``compare --json`` for example; what is usual if not given."""
    extra: Json = unknown_fields()

    def wanted(self) -> dict[str, bool]:
        """What must hold of it, and whether it does."""
        lists = ("users", "slots", "policies", "memory_gib", "tokens_per_second", "rtt_ms", "shapes")
        lets_go = any(policy != "hold" for policy in self.policies)
        limits = {
            "users: 1 or more": min(self.users, default=1) >= 1,
            "slots: 0 or more": min(self.slots, default=0) >= 0,
            f"shapes: {', '.join(WAYS)}": set(self.shapes) <= set(WAYS),
            "policies: hold, release, release:SECONDS or pressure": all(map(_is_policy, self.policies)),
            "memory_gib: 0 or more": min(self.memory_gib, default=0) >= 0,
            "tokens_per_second: above 0": min(self.tokens_per_second, default=1) > 0,
            "rtt_ms: 0 or more": min(self.rtt_ms, default=0) >= 0,
            "prefill_tokens_per_second: above 0": self.prefill_tokens_per_second > 0,
            "prefill_tokens_per_second: to be given where a policy lets go: else to read again costs nothing": not lets_go
            or math.isfinite(self.prefill_tokens_per_second),
            "kv_bytes_per_token: 1 or more": self.kv_bytes_per_token >= 1,
            "rollouts: 1 or more": self.rollouts >= 1,
            "start_within: 0 or more": (self.start_within or 0) >= 0,
            "loss: from 0 up to 0.5": 0 <= self.loss <= 0.5,
        }
        return {f"{name}: at least one": bool(getattr(self, name)) for name in lists} | limits


def _is_policy(text: str) -> bool:
    try:
        Policy.of(text)
    except ValueError:
        return False
    return True


@frozen(kw_only=True)
class Scenario:
    """One place of a sweep. Times are seconds; None where nothing limits, or the workload has its own."""

    workload: str
    shape: Way
    tokens_per_second: float
    rtt: float
    users: int
    slots: int
    policy: str
    memory_gib: float | None
    tool_seconds: str | None

    def as_json(self) -> dict[str, Any]:
        """As results have it."""
        values = {name: getattr(self, name) for name in fields_dict(Scenario)}
        rtt = values.pop("rtt")
        speed = None if math.isinf(self.tokens_per_second) else self.tokens_per_second
        return values | {"tokens_per_second": speed, "rtt_ms": round(rtt * 1e3, 3)}


AXES: Final = ("shape", "tokens_per_second", "rtt", "users", "slots", "policy", "memory_gib", "tool_seconds")
"""What a sweep can go over, beside workloads."""


def scenarios(asked: Simulate, workloads: Sequence[str]) -> Iterator[Scenario]:
    """All places, those of one workload together, then by all that is swept, in the order of the fields."""
    swept = itertools.product(
        workloads,
        asked.tool_seconds or (None,),
        asked.rtt_ms,
        asked.tokens_per_second,
        asked.memory_gib,
        asked.slots,
        asked.users,
        asked.policies,
        asked.shapes,
    )
    for workload, tool_seconds, rtt, speed, memory, slots, users, policy, shape in swept:
        yield Scenario(
            workload=workload,
            shape=shape,
            tokens_per_second=speed,
            rtt=rtt / 1e3,
            users=users,
            slots=slots or users,
            policy=str(Policy.of(policy)),
            memory_gib=memory or None,
            tool_seconds=tool_seconds,
        )


def swept(places: Sequence[Scenario]) -> list[str]:
    """The axes on which the places differ."""
    return [axis for axis in AXES if len({getattr(one, axis) for one in places}) > 1]
