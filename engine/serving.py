"""A server from the command line's options: builds its parts, listens, and ends gracefully on a signal."""

import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

import trio
from attrs import define, frozen

from tools.hosted import FileSearch
from tools.spec import HostedTool

from . import tokens
from .config import REUSE, Config
from .database import Database
from .logs import log_to_stderr
from .models import load_model
from .models.base import HoldingModel, KeptModel, Model, ModelError
from .policy import Policy, PolicyError, load_policy
from .server import Server, check_door, listening, open_listeners
from .services import Services


class CannotServe(Exception):
    """An option that cannot be: the message says which, and what to do."""


@frozen(kw_only=True)
class Options:
    """What ``sostenuto serve`` was asked; see its ``--help``."""

    host: str = "127.0.0.1"
    port: int = 8080
    models: Sequence[str] = ("scripted",)
    tokens_per_second: float | None = None
    continuation: Literal["append", "create"] = "create"
    hold: Literal["rollout", "conversation"] = "rollout"
    keys: Sequence[str] = ()
    no_websocket: bool = False
    no_reuse: str | None = None
    cors_origins: Sequence[str] = ()
    policy: str | None = None
    files: str | None = None
    data: str = "sostenuto.sqlite3"
    park_seconds: float = 3600.0
    detach_seconds: float = 300.0
    hold_kv: float | None = None
    log_level: str = "info"


def build(options: Options, database: Database) -> Services:
    """The parts of a server; raises ``CannotServe``. ``database`` is its ledger and its store."""
    config = Config(
        continuation=options.continuation,
        hold=options.hold,
        keys=tuple(options.keys),
        websocket=not options.no_websocket,
        reuse=REUSE - _kinds_of_reuse(options.no_reuse),
        cors_origins=tuple(options.cors_origins),
        park_seconds=options.park_seconds,
        detach_seconds=options.detach_seconds,
    )
    try:
        check_door(options.host, config)
        models = [load_model(spec, options.tokens_per_second) for spec in options.models]
        policy = load_policy(options.policy) if options.policy else Policy.empty()
    except (ValueError, OSError, PolicyError) as error:
        raise CannotServe(str(error)) from error
    for model in models:
        if options.hold_kv is not None and isinstance(model, HoldingModel):
            model.hold_seconds = options.hold_kv
    hosted: dict[str, HostedTool] = {"file_search": FileSearch(Path(options.files))} if options.files else {}
    return Services(
        config=config,
        models={model.name: model for model in models},
        hosted=hosted,
        policy=policy,
        ledger=database,
        store=database,
    )


def _kinds_of_reuse(text: str | None) -> frozenset[str]:
    kinds = frozenset(kind.strip() for kind in (text or "").split(",") if kind.strip())
    if kinds - REUSE - {"all"}:
        raise CannotServe(f"--no-reuse: no such kind: {', '.join(sorted(kinds - REUSE))}; there are {', '.join(sorted(REUSE))}")
    return REUSE if "all" in kinds else kinds


async def serve(options: Options) -> None:
    """``sostenuto serve``: listens, says so, and serves until a signal. Raises ``CannotServe``."""
    log_to_stderr(options.log_level.upper())
    async with running(options) as server:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            print(f"listening on {server.url}", flush=True)  # noqa: T201 - and from here on a signal is heard
            async for _ in signals:
                return


@define(eq=False)
class Running:
    """A server that listens. ``url`` is its base, with ``/v1``."""

    url: str
    server: Server
    database: Database


@asynccontextmanager
async def kept(models: Iterable[Model]) -> AsyncIterator[None]:
    """The ``models`` that are somewhere else are ready while the context lasts. Raises ``CannotServe``."""
    async with AsyncExitStack() as stack:
        for model in models:
            if isinstance(model, KeptModel):
                try:
                    await stack.enter_async_context(model.running())
                except ModelError as error:
                    raise CannotServe(f"model {model.name}: {error.message}") from error
        yield


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[Running]:
    """A server that listens while the context lasts, and ends gracefully at its end. Raises ``CannotServe``."""
    await trio.to_thread.run_sync(tokens.load)
    try:
        database = Database(options.data)
        listeners = await open_listeners(options.host, options.port)
    except Exception as error:
        raise CannotServe(f"cannot open: {error}") from error
    host = f"[{options.host}]" if ":" in options.host else options.host
    with ExitStack() as stack:
        stack.callback(database.close)
        for listener in listeners:  # also if it comes to nothing
            stack.callback(listener.socket.close)
        services = build(options, database)
        for tool in services.hosted.values():
            if isinstance(tool, FileSearch):
                stack.callback(tool.close)
        server = Server(services)
        async with kept(services.models.values()), listening(server, listeners) as port:
            yield Running(f"http://{host}:{port}/v1", server, database)
