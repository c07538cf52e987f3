"""Holds a server against the laws: ``check`` one at a URL, ``conform`` one that is reached in any other way.

    report = check("http://127.0.0.1:8080", examples=200)
    print(report.broken)

First it is asked what it offers; then the probes are played, and then, shape by shape, the conversations that Hypothesis makes
up. These are plain functions: each conversation has an event loop of its own. After Ctrl-C there is a report all the same.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from attrs import define, field, frozen

from .adapters import Adapter, RealModel, Scripted
from .capabilities import ALL, Capabilities
from .laws import LAWS
from .machines import why_not
from .offers import ask, declared
from .probes.base import PROBES, SHAPES, Probe, run_probe
from .probes.notes import NotOffered
from .record import Recorder, read
from .report import Failure, Finding, Report, Status
from .runner import AtUrl, Runner, run_plainly
from .search import Findings, Table, search, verdict
from .transport import Books, Shape, Transport

EXAMPLES: Final = 100
SECONDS: Final = 600.0
PROBE_SECONDS: Final = 30.0
"""For one answer in a probe, where time is real."""


class CannotCheck(Exception):
    """The server can't be held against anything; the text says why, and what to do."""


@frozen(kw_only=True)
class Progress:
    """How far it is. ``what`` is what is done now: ``asking``, ``probes``, ``conversations`` or ``making it short``."""

    what: str
    name: str = ""
    shape: Shape | None = None
    done: int = 0
    total: int = 0
    broken: Sequence[str] = ()


OnProgress = Callable[[Progress], None]


@frozen(kw_only=True)
class Plan:
    """What is to be done, and for how long. Seconds are of the wall clock."""

    shapes: Collection[Shape] = SHAPES
    examples: int = EXAMPLES
    """Conversations in each shape; 0 for none."""
    probes: Collection[str] = field(factory=lambda: tuple(PROBES))
    seed: int = 0
    seconds: float = SECONDS
    without: Collection[str] = ()
    having: Collection[str] = ()
    """Capabilities that need not be asked for."""
    keys: Sequence[str] = ()
    """Of different tenants: the first is everybody's, the second a stranger's."""
    hosted: bool = False
    """Whether the model may call the hosted tool ``file_search``."""


def check(
    url: str,
    *,
    adapter: Adapter | None = None,
    plan: Plan = Plan(),
    on_progress: OnProgress = lambda _: None,
) -> Report:
    """Hold the server at ``url`` against the laws. ``adapter`` None: found out by its list of models.

    Raises ``CannotCheck`` if it can't be reached, or can't be steered; ``ValueError`` for what is not a URL.
    """
    runner = AtUrl(url=url, key=next(iter(plan.keys), None))
    return conform(runner, adapter=adapter or find_adapter(runner), plan=plan, on_progress=on_progress)


def conform(
    runner: Runner,
    *,
    adapter: Adapter,
    plan: Plan = Plan(),
    on_progress: OnProgress = lambda _: None,
    faster: Runner | None = None,
) -> Report:
    """Hold a server against the laws. Raises ``CannotCheck``. ``KeyboardInterrupt`` ends it with what was found so far.

    ``faster`` runs made-up conversations, where there is a way that is faster and good for nothing but frames.
    """
    unknown = sorted(set(plan.probes) - set(PROBES))
    if unknown:
        raise CannotCheck(f"no such probe: {', '.join(unknown)}; there are: {', '.join(PROBES)}")
    job = _Job(runner, faster or runner, adapter, plan, on_progress)
    try:
        job.ask()
        job.probe()
        job.search()
    except KeyboardInterrupt:
        job.interrupted = True
    return job.report()


def find_adapter(runner: Runner) -> Adapter:
    """By the list of models: ``scripted`` is ours, of others the first is taken. Raises ``CannotCheck``."""

    async def scene(transport: Transport, _: Books) -> tuple[int, bytes]:
        exchange = await transport.request("GET", "/models")
        return exchange.status, await exchange.read()

    try:
        status, body = run_plainly(runner, scene)
    except Exception as error:
        raise CannotCheck(f"{runner.server} can't be reached ({error}): is it running?") from error
    models = [one.get("id") for one in (read(body) or {}).get("data") or () if isinstance(one, dict)]
    if "scripted" in models:
        return Scripted()
    if status in (401, 403):
        raise CannotCheck(f"{runner.server} wants a key (GET /v1/models was answered with {status}): give one with --key")
    if not models:
        raise CannotCheck(
            f"{runner.server} lists no models (GET /v1/models was answered with {status}): "
            "say which to use, with --adapter model:NAME"
        )
    return RealModel(str(models[0]))


@define
class _Job:
    """One run, and what it has found so far."""

    runner: Runner
    faster: Runner
    adapter: Adapter
    plan: Plan
    on_progress: OnProgress
    began: float = field(factory=time.monotonic)
    capabilities: Capabilities = ALL
    reasons: dict[str, str] = field(factory=dict)
    shapes: list[Shape] = field(factory=list)
    found: dict[Shape, Findings] = field(factory=dict)
    probed: dict[str, dict[Shape, Failure | str | None]] = field(factory=dict)
    """For each probe and shape: what is wrong, or why it is not offered, or None."""
    stakes: dict[str, str] = field(factory=dict)
    notes: list[str] = field(factory=list)
    interrupted: bool = False

    @property
    def _left(self) -> float:
        return self.began + self.plan.seconds - time.monotonic()

    # ---- what is done

    def ask(self) -> None:
        """What is offered. Raises ``CannotCheck`` if nothing is."""
        try:
            known = declared(self.plan.without, self.plan.having)
            key = next(iter(self.plan.keys), None)
            self.capabilities, self.reasons = ask(
                self.runner, self.adapter, known=known, key=key, on_asked=lambda name: self._tell("asking", name=name)
            )
        except ValueError as error:
            raise CannotCheck(str(error)) from error
        except OSError as error:
            raise CannotCheck(f"{self.runner.server} can't be reached ({error}): is it running?") from error
        self.shapes = [shape for shape in SHAPES if shape in self.plan.shapes and getattr(self.capabilities, shape)]
        if not self.shapes:
            why = "; ".join(f"{shape}: {self.reasons.get(shape, '?')}" for shape in SHAPES if shape in self.plan.shapes)
            raise CannotCheck(f"{self.runner.server} offers none of the shapes that were asked for. {why}")

    def probe(self) -> None:
        """Play the probes, each in each shape that it has."""
        jobs = [(PROBES[name], shape) for name in self.plan.probes for shape in SHAPES if shape in PROBES[name].shapes]
        jobs = [(one, shape) for one, shape in jobs if shape in self.plan.shapes]
        for number, (one, shape) in enumerate(jobs):
            if self._left <= 0:
                self.notes.append(f"time was over before {len(jobs) - number} of {len(jobs)} probes")
                return
            self._tell("probes", name=one.name, shape=shape, done=number, total=len(jobs))
            self.probed.setdefault(one.name, {})[shape] = self._probe(one, shape)

    def _probe(self, one: Probe, shape: Shape) -> Failure | str | None:
        recorders: list[Recorder] = []

        async def scene(transport: Transport, _: Books) -> None:
            recorders.append(Recorder(transport, next(iter(self.plan.keys), None)))
            await run_probe(
                one,
                recorders[0],
                shape,
                self.adapter,
                capabilities=self.capabilities,
                keys=self.plan.keys,
                seconds=None if transport.exact else PROBE_SECONDS,
            )

        try:
            run_plainly(self.runner, scene)
        except NotOffered as error:
            return str(error)
        except Exception as error:
            law, message = verdict(error)
            if law is None:
                return message
            self.stakes[one.name] = law
            return Failure(shape=shape, message=message, conversation=recorders[0].frames(), seed=0)
        return None

    def search(self) -> None:
        """Play conversations, shape by shape, each with its share of the time that is left."""
        for number, shape in enumerate(self.shapes):
            if not self.plan.examples:
                return
            if (why := why_not(shape, self.adapter)) is not None:
                self.notes.append(f"{shape}: no conversations: {why}")
                continue
            self._search(shape, time.monotonic() + self._left / (len(self.shapes) - number))
            if self.found[shape].gone:
                self.notes.append(f"{self.runner.server} could not be reached any more, so the rest was not tried")
                return

    def _search(self, shape: Shape, deadline: float) -> None:
        findings = self.found[shape] = Findings()
        table = Table(
            runner=self.faster,
            shape=shape,
            adapter=self.adapter,
            capabilities=self.capabilities,
            keys=self.plan.keys,
            hosted=self.plan.hosted,
        )

        def on_example(shrinking: bool) -> None:
            what = "making it short" if shrinking else "conversations"
            self._tell(what, shape=shape, done=findings.played, total=self.plan.examples)

        search(
            table,
            examples=self.plan.examples,
            seed=self.plan.seed,
            clock=time.monotonic,
            deadline=deadline,
            on_example=on_example,
            findings=findings,
        )
        if findings.played < self.plan.examples and time.monotonic() > deadline:
            self.notes.append(f"{shape}: time was over after {findings.played} of {self.plan.examples} conversations")

    def _tell(self, what: str, *, name: str = "", shape: Shape | None = None, done: int = 0, total: int = 0) -> None:
        broken = {law for findings in self.found.values() for law in findings.failures}
        broken |= {probe for probe, found in self.probed.items() if any(isinstance(one, Failure) for one in found.values())}
        told = Progress(what=what, name=name, shape=shape, done=done, total=total, broken=sorted(broken))
        self.on_progress(told)

    # ---- what was found

    def report(self) -> Report:
        """All of it."""
        probes = {name: self._of_probe(PROBES[name]) for name in self.plan.probes}
        return Report(
            server=self.runner.server,
            seed=self.plan.seed,
            seconds=round(time.monotonic() - self.began, 3),
            shapes=self.shapes,
            capabilities=self.capabilities,
            laws={law: self._of_law(law, says, probes) for law, says in LAWS.items()},
            probes=probes,
            adapter=type(self.adapter).__name__,
            examples={shape: findings.played for shape, findings in self.found.items()},
            reasons=self.reasons,
            notes=self.notes,
            interrupted=self.interrupted,
        )

    def _of_law(self, law: str, says: str, probes: Mapping[str, Finding]) -> Finding:
        failures = [findings.failures[law] for findings in self.found.values() if law in findings.failures]
        about = {name: one for name, one in probes.items() if self.stakes.get(name, one.law) == law}
        wrong = [name for name, one in about.items() if one.status == "broken"]
        shapes: dict[str, Status] = {}
        for shape in self.shapes:
            broken = any(one.shape == shape for one in failures) or any(
                about[name].shapes.get(shape) == "broken" for name in wrong
            )
            at_stake = self._stakes(law, shape) or any(one.shapes.get(shape) == "held" for one in about.values())
            shapes[shape] = "broken" if broken else "held" if at_stake else "not offered"
        examples = sum(self._stakes(law, shape) for shape in self.shapes)
        examples += sum(one.examples for one in about.values())
        status = _worst(shapes.values())
        message = failures[0].message if failures else f"see the probes: {', '.join(wrong)}" if wrong else ""
        if status == "not offered":
            message = "no conversation could have broken it"
        shown = [*failures, *(failure for name in wrong for failure in about[name].failures)]
        return Finding(
            status=status,
            says=says,
            examples=examples,
            message=message,
            conversation=shown[0].conversation if shown else (),
            shapes=shapes,
            failures=failures,
        )

    def _stakes(self, law: str, shape: Shape) -> int:
        return self.found[shape].stakes[law] if shape in self.found else 0

    def _of_probe(self, one: Probe) -> Finding:
        found = self.probed.get(one.name, {})
        failures = [failure for failure in found.values() if isinstance(failure, Failure)]
        reasons = [reason for reason in found.values() if isinstance(reason, str)]
        elsewhere = not set(one.shapes) & set(self.plan.shapes)
        reasons += [f"it is about {' and '.join(one.shapes)}" if elsewhere else "there was no time for it"]
        shapes: dict[str, Status] = {shape: _status(outcome) for shape, outcome in found.items()}
        status = _worst(shapes.values())
        return Finding(
            status=status,
            says=one.right,
            examples=sum(status != "not offered" for status in shapes.values()),
            message=failures[0].message if failures else reasons[0] if status == "not offered" else "",
            conversation=failures[0].conversation if failures else (),
            shapes=shapes,
            failures=failures,
            law=one.law,
            basis=one.basis,
        )


def _status(outcome: Failure | str | None) -> Status:
    return "broken" if isinstance(outcome, Failure) else "not offered" if isinstance(outcome, str) else "held"


def _worst(statuses: Collection[Status]) -> Status:
    for status in ("broken", "held"):
        if status in statuses:
            return status
    return "not offered"
