"""The demo: makes the repository, starts a server on loopback, lets the agent work, and counts what it took.

It does so once in each shape, on the same task, so that the counts can be compared: in a new repository at the same place,
since the place is in what the tools say. Everything happens in this process but the commands that the agent runs. At the end
nothing is left: no process, no file (but the repositories, if they are to be kept).
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import trio
from attrs import asdict, frozen

from protocol.codec import from_wire
from protocol.items import OUTPUT_CLASSES, Item, Message
from protocol.requests import Tool as ToolDefinition
from tools.hosted import FileSearch
from tools.local.process import run_program
from tools.spec import Tool

from ... import tokens
from ...account import Shape
from ...client import Event
from ...client_tools import Toolbox
from ...ledger import MemoryLedger
from ...server import Server, listening
from ...services import Services
from ...stages.rendering import render_prompt
from ...store import MemoryStore, Stored
from .agent import FILE_SEARCH, INSTRUCTIONS, Watched, Work, make_tools, work
from .model import MindModel
from .policy import mend
from .sources import FILES
from .task import Repository, make

MODEL: Final = "mender"
SHAPES: Final[Sequence[Shape]] = ("append", "create", "http")
WORKPLACE: Final = "repository"
"""Where in its folder the demo works, in each shape."""

TEST_SECONDS: Final = 60.0
"""For the test run that the demo itself makes at the end; it takes a fraction of a second."""

TEST_OUTPUT_BYTES: Final = 64 * 1024


@frozen(kw_only=True)
class Report:
    """What it took in one shape; ``as_json`` is what ``--json`` prints."""

    shape: Shape
    responses: int
    parks: int
    stage_runs: Mapping[str, int]
    """Full runs, by stage."""
    tests_passed: bool
    tokens_rendered: int
    tokens_rerendering: int
    """What it would have been with the whole context rendered anew at each turn."""
    bytes_up: int
    bytes_down: int
    seconds: Mapping[str, float]
    """Of sampling, of the engine's own work, and ``parked``: while the agent's tools ran, in one Response or between two."""

    def as_json(self) -> dict[str, Any]:
        """By name."""
        return asdict(self)


class Audience(Protocol):
    """Who watches."""

    def begin(self, shape: Shape, repository: Repository, url: str) -> None:
        """The server listens at ``url``, and the agent begins. Called once for each shape, as ``end``."""

    def event(self, event: Event) -> None:
        """The client has received an event."""

    def result(self, call: Mapping[str, Any], output: Mapping[str, Any], seconds: float) -> None:
        """A tool of the agent has answered."""

    def end(self, report: Report, kept: Path | None) -> None:
        """It is over in one shape. ``kept`` is where the repository still is."""

    def all_ended(self, reports: Sequence[Report]) -> None:
        """It is over."""


class Nobody:
    """Watches nothing."""

    def begin(self, shape: Shape, repository: Repository, url: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def result(self, call: Mapping[str, Any], output: Mapping[str, Any], seconds: float) -> None: ...

    def end(self, report: Report, kept: Path | None) -> None: ...

    def all_ended(self, reports: Sequence[Report]) -> None: ...


async def demo(
    *,
    seed: int,
    tokens_per_second: float | None,
    keep: bool,
    audience: Audience,
    shapes: Sequence[Shape] = SHAPES,
) -> Sequence[Report]:
    """All of it. Raises ``OSError``, ``RolloutError`` and ``ConnectionLost``. Cancelled, it leaves nothing behind."""
    await trio.to_thread.run_sync(tokens.load)
    reports: list[Report] = []
    with _folder(keep=keep) as folder:
        root = folder / WORKPLACE
        for shape in shapes:
            repository = await trio.to_thread.run_sync(make, root, seed)
            report = await rollout(repository, shape=shape, tokens_per_second=tokens_per_second, audience=audience)
            reports.append(report)
            kept = await trio.to_thread.run_sync(_put_away, root, folder / shape if keep else None)
            audience.end(report, kept)
        audience.all_ended(reports)
    return reports


def _put_away(root: Path, place: Path | None) -> Path | None:
    """Make room for the next repository. Returns ``place``, where this one is now, if it is to be kept."""
    if place is None:
        shutil.rmtree(root, ignore_errors=True)
        return None
    return root.rename(place)


async def rollout(
    repository: Repository,
    *,
    shape: Shape = "append",
    tokens_per_second: float | None = None,
    audience: Audience | None = None,
    tools: Mapping[str, Tool] | None = None,
) -> Report:
    """Let the agent work in ``repository``, with other tools than its own if they are given."""
    watcher = audience or Nobody()
    watched = {name: Watched(tool, watcher.result) for name, tool in (tools or make_tools(repository)).items()}
    ledger, store = MemoryLedger(), MemoryStore()
    model = MindModel(MODEL, mend, tokens_per_second)
    with FileSearch(repository.root) as search:
        hosted = {"file_search": search}
        services = Services(models={MODEL: model}, hosted=hosted, ledger=ledger, store=store)
        async with _serving(services) as url:
            watcher.begin(shape, repository, url)
            done = await work(url, shape, MODEL, watched, watcher.event)
    definitions = [from_wire(one, ToolDefinition) for one in Toolbox(watched, (FILE_SEARCH,)).definitions]
    return _report(
        done,
        shape,
        responses=len(ledger.rows),
        rerendering=rerendering(store.all(), definitions),
        tests_passed=await _tests_pass(repository),
    )


def _report(done: Work, shape: Shape, *, responses: int, rerendering: int, tests_passed: bool) -> Report:
    """Sums over all Responses of the rollout."""
    engines = [response["engine"] for response in done.responses]

    def total(name: str) -> dict[str, Any]:
        return {key: round(sum(engine[name][key] for engine in engines), 6) for key in engines[0][name]}

    seconds = total("seconds")
    if shape != "append":
        seconds["parked"] = round(max(0.0, done.seconds - seconds["sampling"] - seconds["engine"]), 6)
    return Report(
        shape=shape,
        responses=responses,
        parks=sum(engine["parks"] for engine in engines),
        stage_runs=total("stage_runs"),
        tests_passed=tests_passed,
        tokens_rendered=sum(engine["tokens_rendered"] for engine in engines),
        tokens_rerendering=rerendering,
        bytes_up=done.bytes_up,
        bytes_down=done.bytes_down,
        seconds=seconds,
    )


def rerendering(chain: Iterable[Stored], definitions: Sequence[ToolDefinition]) -> int:
    """How many tokens a full rendering at each turn would have cost: the prompt of each, whole.

    ``chain`` is the rollout's Responses in order, each with its own part of the context.
    """
    context: list[Item] = []
    stops: list[int] = []
    for stored in chain:
        stops += [len(context) + stop for stop in stored.stops]
        context += stored.items
    starts = [_sampled_from(context, stop) for stop in (0, *stops)]
    prompts = [context[:start] for start in starts if start < len(context)]
    return sum(len(render_prompt(INSTRUCTIONS, definitions, prompt, stops)) for prompt in prompts)


def _sampled_from(context: Sequence[Item], stop: int) -> int:
    """Where what the model says begins, behind what it is given at ``stop``."""
    while stop < len(context) and _is_given(context[stop]):
        stop += 1
    return stop


def _is_given(item: Item) -> bool:
    return isinstance(item, OUTPUT_CLASSES) or (isinstance(item, Message) and item.role != "assistant")


async def _tests_pass(repository: Repository) -> bool:
    """Run the tests once more, believing nobody; they must be those that were there."""
    for path, text in FILES.items():
        if path.startswith("tests/") and (repository.root / path).read_text(encoding="utf-8") != text:
            return False
    environment = repository.environment
    ended = await run_program(
        [environment["PYTHON"], "-m", "unittest"],
        cwd=repository.root,
        env=environment,
        seconds=TEST_SECONDS,
        output_bytes=TEST_OUTPUT_BYTES,
        merged=True,
    )
    return ended.exit_code == 0


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="sostenuto-demo-"))
    try:
        yield root
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)


@asynccontextmanager
async def _serving(services: Services) -> AsyncIterator[str]:
    """A server on loopback, as its base URL; at the end it has done all post-inference work."""
    failure: Exception | None = None
    async with listening(Server(services)) as port:
        try:
            yield f"http://127.0.0.1:{port}/v1"
        except Exception as error:
            failure = error
    if failure is not None:
        raise failure
