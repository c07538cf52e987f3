"""``sostenuto simulate``: the question of ``compare`` in virtual time: the server's real code, clients, network and model
simulated.

Each place of a sweep is a server of its own, on a clock of its own that jumps whenever all wait; its users speak with it as
those of ``compare`` do, over WebSockets and HTTP, only that the connections are ``network.link`` and the model is ``timed``.
What the server's work costs is charged by ``costs``. The same seed gives the same results, to the last digit.
"""

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import trio
from attrs import field, frozen

from ..client import RolloutError
from ..config import Config
from ..models.trajectory import TrajectoryModel
from ..server import Server
from ..testing.servers import make_services
from ..trajectories import Rollout
from .cells import Figure
from .compare import STORES
from .costs import Costs
from .lean import play_on
from .network import Distance, LinkStream, link
from .play import Played, Player
from .scenario import GIB, Scenario, Simulate
from .slots import Memory, Policy, Slots, State
from .timed import Cluster, Spent, TimedModel
from .timeline import Timeline
from .workload import Spread, Workload, tool_seconds, with_tool_seconds

PARTS: Final = ("sampling", "prefill", "queue", "memory", "tools", "network", "stages", "rest")
"""Where the time goes; together they are all of it."""
NEVER: Final = 1e12
"""Seconds. Nothing in a simulation times out, and nobody needs to be told that all is well."""
CONFIG: Final = Config(
    thread_bytes=2**62,  # a thread's work takes real time, over which a virtual clock would jump
    ping_seconds=NEVER,
    heartbeat_seconds=NEVER,
    idle_seconds=NEVER,
    connection_seconds=NEVER,
    park_seconds=NEVER,
    response_seconds=NEVER,
    seal_seconds=NEVER,
    continuation="create",
)
ITEM_TOKENS: Final = 16
"""More than rendering puts around an item."""

OnRun = Callable[["Run"], object]


@frozen(kw_only=True)
class Run:
    """One rollout that was simulated. Times are seconds; ``slots.Spent`` and ``cells.Sample`` say what they are of."""

    seconds: float
    floor: float
    sampling: float
    prefill: float
    queue: float
    memory: float
    tools: float
    network: float
    stages: float
    rest: float
    read: int
    read_again: int
    responses: int
    parks: int
    bytes_up: int
    bytes_down: int
    tokens_rendered: int
    first_tokens: Sequence[float] = field(repr=False)


@frozen(kw_only=True)
class Load:
    """What a place's users meant for the model, over all of its time: means and peaks."""

    seconds: float
    """From the first user's beginning to the last one's end."""
    busy: float
    busy_peak: float
    """Slots that were taken."""
    parked: float
    parked_peak: float
    """Responses that waited for their client."""
    held: float
    held_peak: float
    """GiB of the model's state that were taken."""


@frozen
class Outcome:
    """A place, and what came of it."""

    scenario: Scenario
    runs: Sequence[Run] = field(repr=False)
    load: Load

    @property
    def slowdowns(self) -> list[float]:
        """How many times its floor each rollout took."""
        return [one.seconds / one.floor for one in self.runs if one.floor]

    @property
    def slowdown(self) -> float:
        """The median of these; 1 if they have no floor."""
        return percentile(self.slowdowns, 0.5) if self.slowdowns else 1.0

    def __getitem__(self, measure: str) -> Figure:
        """The median and the quartiles of a field of ``Run``."""
        return Figure.of([float(getattr(one, measure)) for one in self.runs])

    def as_json(self) -> dict[str, Any]:
        """As ``--json`` has it."""
        waits = [wait for one in self.runs for wait in one.first_tokens]
        load = self.load
        return {
            **self.scenario.as_json(),
            "rollouts": len(self.runs),
            "seconds": _told(self["seconds"]),
            "seconds_p95": round(percentile([one.seconds for one in self.runs], 0.95), 9),
            "floor": round(self["floor"].median, 9),
            "slowdown": _told(Figure.of(self.slowdowns)) if self.slowdowns else None,
            **{part: _told(self[part]) for part in PARTS},
            "first_token": _told(Figure.of(waits)) if waits else None,
            "first_token_p95": round(percentile(waits, 0.95), 9) if waits else None,
            "rollouts_per_hour": round(len(self.runs) / load.seconds * 3600, 6) if load.seconds else None,
            "slots_busy": round(load.busy, 9),
            "slots_busy_peak": load.busy_peak,
            "parked": round(load.parked, 9),
            "parked_peak": load.parked_peak,
            "parked_per_busy_slot": round(load.parked / load.busy, 6) if load.busy else None,
            "state_gib": round(load.held, 9),
            "state_gib_peak": round(load.held_peak, 9),
            **{
                name: sum(getattr(one, name) for one in self.runs)
                for name in ("read", "read_again", "responses", "parks", "bytes_up", "bytes_down", "tokens_rendered")
            },
        }


def _told(figure: Figure) -> dict[str, float]:
    return {name: round(getattr(figure, name), 9) for name in ("median", "low", "high")}


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that is not less than ``share`` of them."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def whole(workload: Workload) -> int:
    """The most tokens that the model will know of a rollout: an upper bound, since it must have room for them."""
    turns = workload.turns
    items = sum(turn.items + turn.calls + 1 for turn in turns) + len(workload.rollout.tools) + 1
    return turns[-1].history + turns[-1].tokens + items * ITEM_TOKENS


def capacity(asked: Simulate, scenario: Scenario) -> float:
    """Tokens for which there is memory."""
    return math.inf if scenario.memory_gib is None else scenario.memory_gib * GIB / asked.kv_bytes_per_token


async def simulate(
    asked: Simulate,
    scenario: Scenario,
    workload: Workload,
    spread: Spread | None,
    *,
    costs: Costs,
    seed: int,
    on_run: OnRun = lambda _: None,
) -> Outcome:
    """Let all users of one place play. To be run in virtual time. Raises ``RolloutError``, and bugs of the server.

    ``spread``: what tools take instead, drawn anew for each rollout.
    """
    stage = _Stage(asked, scenario, workload, spread, costs, seed)
    stage.on_run = on_run
    failures: list[Exception] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(stage.server.run, ())
        nursery.start_soon(stage.cluster.memory.run)
        try:
            async with trio.open_nursery() as users:
                for number in range(scenario.users):
                    users.start_soon(stage.user, number, users.cancel_scope, failures)
        finally:
            load = stage.load()
            nursery.cancel_scope.cancel()
    if stage.bugs or failures:
        raise (stage.bugs or failures)[0]
    return Outcome(scenario, stage.runs, load)


class _Stage:
    """A server, a model and a network for one place."""

    def __init__(
        self,
        asked: Simulate,
        scenario: Scenario,
        workload: Workload,
        spread: Spread | None,
        costs: Costs,
        seed: int,
    ) -> None:
        self._asked, self._scenario, self._workload = asked, scenario, workload
        self._tool_seconds, self._costs, self._seed = spread, costs, seed
        self.cluster = Cluster(
            slots=Slots(scenario.slots),
            memory=Memory(Policy.of(scenario.policy), capacity(asked, scenario)),
            sampling=scenario.tokens_per_second,
            prefill=asked.prefill_tokens_per_second,
        )
        recording = TrajectoryModel(workload.rollout, workload.name)
        self._models = [TimedModel(recording, f"user{number}", self.cluster) for number in range(scenario.users)]
        services = make_services(models=self._models, config=CONFIG, seed=seed)
        self.bugs: list[BaseException] = []
        services.price, services.on_bug = costs.price, self.bugs.append
        self.server = Server(services)
        self.runs: list[Run] = []
        self.on_run: OnRun = lambda _: None
        self._floor = workload.tokens / scenario.tokens_per_second + scenario.rtt * workload.parks
        """Of a rollout whose tools take no time."""
        within = asked.start_within
        self._start_within = self._floor + workload.tool_seconds if within is None else within

    async def user(self, number: int, scope: trio.CancelScope, failures: list[Exception]) -> None:
        """Begin at some time, and play all rollouts. What fails cancels ``scope``."""
        source = random.Random(f"{self._seed} user {number}")
        distance = Distance(rtt=self._scenario.rtt, loss=self._asked.loss)
        await trio.sleep(self._start_within * source.random() if self._scenario.users > 1 else 0.0)
        near, far = link(distance, charge=self._costs.charge, source=source)
        try:
            async with trio.open_nursery() as connection:
                connection.start_soon(self.server.serve, far)
                async with play_on(near, "simulated", self._scenario.shape, store=STORES[self._scenario.shape]) as play:
                    for turn in range(self._asked.rollouts):
                        await self._rollout(number, turn, near, play)
        except* Exception as group:  # goes out as it is, not in the nursery's group
            failures.extend(_leaves(group))
            scope.cancel()

    async def _rollout(self, user: int, number: int, near: LinkStream, play: Any) -> None:
        model = self._models[user]
        model.state, model.spent = State(whole=whole(self._workload)), Spent()
        own = self._own(user, number)
        turns = self._workload.turns
        timeline = Timeline([turn.items for turn in turns])
        began = trio.current_time()
        charged = near.charged
        try:
            played: Played = await play(Player(own, real_time=True, watcher=timeline), model.name)
        finally:
            self.cluster.memory.drop(model.state)
        status = played.responses[-1]["status"]
        if status != "completed" or len(timeline.turns) != len(turns):
            seen = f"{len(timeline.turns)} of {len(turns)} turns"
            raise RolloutError("not_played", f"{self._workload.name}: {status} after {seen}")
        run = self._measured(own, timeline, began, model.spent, played, near.charged - charged)
        self.runs.append(run)
        self.on_run(run)

    def _own(self, user: int, number: int) -> Rollout:
        """The rollout as this user has it: the same words, tools of other times."""
        if self._tool_seconds is None:
            return self._workload.rollout
        seed = (self._seed * 1_000_003 + user) * 1_000_003 + number
        return with_tool_seconds(self._workload.rollout, self._tool_seconds, seed)

    def _measured(self, own: Rollout, timeline: Timeline, began: float, spent: Spent, played: Played, charged: float) -> Run:
        turns = timeline.turns
        reports = [response["engine"] for response in played.responses]
        tools = math.fsum(max(0.0, one.answered - one.ended) for one in turns if one.answered and one.ended)
        left = timeline.seconds - spent.seconds - tools
        priced = math.fsum(math.fsum(self._costs.reported(report).values()) for report in reports)
        stages = min(left, priced)
        rest = min(left - stages, charged + self._costs.response * len(reports))
        return Run(
            seconds=timeline.seconds,
            floor=self._floor + tool_seconds(own),
            sampling=spent.sampling,
            prefill=spent.prefill,
            queue=spent.queue,
            memory=spent.memory,
            tools=tools,
            network=left - stages - rest,
            stages=stages,
            rest=rest,
            read=spent.read,
            read_again=spent.read_again,
            responses=len(reports),
            parks=sum(report["parks"] for report in reports),
            bytes_up=played.bytes_up,
            bytes_down=played.bytes_down,
            tokens_rendered=sum(report["tokens_rendered"] for report in reports),
            first_tokens=[
                due - began + self._scenario.rtt / 2 - one.asked for one, due in zip(turns, spent.first_tokens, strict=True)
            ],
        )

    def load(self) -> Load:
        """Until now."""
        cluster, token = self.cluster, self._asked.kv_bytes_per_token / GIB
        held = cluster.memory.held
        return Load(
            seconds=trio.current_time(),
            busy=cluster.slots.busy.mean,
            busy_peak=cluster.slots.busy.peak,
            parked=cluster.parked.mean,
            parked_peak=cluster.parked.peak,
            held=held.mean * token,
            held_peak=held.peak * token,
        )


def _leaves(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    found: list[Exception] = []
    for one in group.exceptions:
        found += _leaves(one) if isinstance(one, BaseExceptionGroup) else [one]
    return found
