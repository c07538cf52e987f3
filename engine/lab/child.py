"""Processes of an experiment: servers and relays, so that each has a processor's thread and a CPU time of its own.

A child is this module as a program. It is told what to be in JSON, prints ``{"port"}`` when it listens, and then answers each
line on standard input with what it has spent until then, as ``Spent`` has it, until standard input ends: with its parent,
however that ends.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import trio
from attrs import asdict, define, field, frozen

from protocol.codec import encode, parse

from ..ledger import Ledger, Row
from ..processes import end

SETTLE_SECONDS: Final = 0.05
"""After its end a Response is billed and stored; what that cost is known then."""


@frozen
class Spent:
    """What a child has spent. Seconds."""

    cpu: float
    stages: float = 0.0
    """What the ledger says of all stages: of those, too, that ran when the Response had been told to have ended."""

    def __sub__(self, before: "Spent") -> "Spent":
        return Spent(self.cpu - before.cpu, self.stages - before.stages)


class ChildFailed(Exception):
    """A child has ended by itself: what it said is on standard error."""


# ---- the parent's side


@define(eq=False)
class Child:
    """A child that runs. ``port`` is where it listens."""

    _process: trio.Process
    port: int = 0
    _unread: bytes = b""
    _lock: trio.Lock = field(factory=trio.Lock)

    @classmethod
    async def start(cls, kind: str, **told: Any) -> "Child":
        """A server (``models`` by name with ``file`` and ``tokens_per_second``, ``no_reuse``) or a ``relay`` (``port``,
        ``one_way``).

        Raises ``ChildFailed``. Cancelled, nothing is left.
        """
        command = [sys.executable, "-m", __name__, encode({"kind": kind, **told}).decode()]
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )  # else Ctrl-C would end it before its parent does
        child = cls(process)
        try:
            child.port = (await child._line())["port"]
        except BaseException:
            await child.aclose()
            raise
        return child

    async def spent(self) -> Spent:
        """What it has spent. Raises ``ChildFailed``; cancelled, it must not be asked again."""
        assert self._process.stdin is not None
        async with self._lock:
            try:
                await self._process.stdin.send_all(b"\n")
            except trio.BrokenResourceError:
                raise ChildFailed(f"a process of the experiment has ended: {self._process.poll()}") from None
            return Spent(**await self._line())

    async def aclose(self) -> None:
        """End it, by force if it takes long; also when it is cancelled."""
        await end(self._process)

    async def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            data = await self._process.stdout.receive_some()
            if not data:
                raise ChildFailed(f"a process of the experiment has ended: {await self._process.wait()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        told: dict[str, Any] = parse(line)
        return told


# ---- the child's side


async def serve(models: dict[str, dict[str, Any]], no_reuse: list[str]) -> None:
    """Be a server of recorded rollouts, with a ledger and a store in memory, until standard input ends."""
    from .. import tokens
    from ..config import REUSE, Config
    from ..database import Database
    from ..models.trajectory import TrajectoryModel
    from ..server import Server, listening
    from ..services import Services

    tokens.load()
    database = Database(":memory:")
    try:
        loaded = {name: TrajectoryModel.load(model["file"], model["tokens_per_second"], name) for name, model in models.items()}
        config = Config(continuation="create", reuse=REUSE - set(no_reuse))
        ledger = _Tally(database)
        services = Services(models=loaded, config=config, ledger=ledger, store=database)
        async with listening(Server(services)) as port:
            await _answer(port, lambda: ledger.seconds)
    finally:
        database.close()


@define(eq=False)
class _Tally:
    """A ledger that adds up what the stages took."""

    _ledger: Ledger
    seconds: float = 0.0

    async def write(self, row: Row) -> None:
        self.seconds += sum(stage["seconds"] for stage in parse(row.stages).values())
        await self._ledger.write(row)


async def delay(port: int, one_way: float) -> None:
    """Be a relay to ``port`` until standard input ends."""
    from ..server import port_of
    from .relay import Relay

    far = Relay(partial(trio.open_tcp_stream, "127.0.0.1", port), one_way)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, far.serve, 0, host="127.0.0.1"))
        await _answer(port_of(listeners))
        nursery.cancel_scope.cancel()


async def _answer(port: int, stages: Callable[[], float] = float) -> None:
    """Say ``port``, then answer each line with what was spent, until standard input ends."""
    _say({"port": port})
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as lines:
        async for some in lines:
            for _ in range(some.count(b"\n")):
                await trio.sleep(SETTLE_SECONDS)
                _say(asdict(Spent(time.process_time(), stages())))


def _say(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def main(told: str) -> None:
    """Be what ``told`` says."""
    kinds: dict[str, Callable[..., Awaitable[None]]] = {"server": serve, "relay": delay}
    options = json.loads(told)
    trio.run(partial(kinds[options.pop("kind")], **options))


if __name__ == "__main__":
    main(sys.argv[1])
