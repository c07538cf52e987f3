"""A real model for tests: SmolLM2 in llama.cpp's server, if it can be had."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio
from attrs import define, field

from ..models.llama import LlamaServer, check_installed
from ..models.pull import CannotPull, pull


def model_file() -> Path:
    """SmolLM2's file, pulled if need be. Raises ``CannotPull``, also if there is nothing that could run it."""
    try:
        check_installed()
    except Exception as error:
        raise CannotPull(str(error)) from error
    return pull("smollm2")


@define(eq=False)
class _Thread:
    """A thread with an event loop of its own, in which ``server`` runs."""

    server: LlamaServer
    error: BaseException | None = None
    _running: threading.Event = field(factory=threading.Event)
    _stop: trio.Event = field(factory=trio.Event)
    _token: trio.lowlevel.TrioToken | None = None

    def run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: ASYNC103 - it is raised again in the thread that waits for us
            self.error = error
        finally:
            self._running.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with self.server.running():
            self._running.set()
            await self._stop.wait()

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self.run, name="llama", daemon=True)
        thread.start()
        self._running.wait()
        return thread

    def stop(self) -> None:
        if self._token is not None and self.error is None:
            self._token.run_sync_soon(self._stop.set)


@contextmanager
def served(server: LlamaServer) -> Iterator[LlamaServer]:
    """``server`` runs, whatever event loops come and go meanwhile: for fixtures that outlive a test.

    Of its functions only those that don't wait may be called: where it is, its key, its process. Raises what ``running`` does.
    """
    room = _Thread(server)
    thread = room.start()
    if room.error is not None:
        raise room.error
    try:
        yield server
    finally:
        room.stop()
        thread.join()
