"""What is typed, and Ctrl-C, for a job on trio.

The main thread reads, since only there ``input`` can edit lines (readline) and be interrupted; the job runs in a thread of its
own and asks for a line when it wants one. So the job, with its sockets and a server perhaps, goes on while someone types.

Ctrl-C on a terminal ends the line that is being typed, or else is told to the job; it ends nothing. In a pipe it ends the job,
as any other signal to end does.
"""

import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

import trio
from attrs import define, field

T = TypeVar("T")
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """Ctrl-C, instead of a line."""


class _End(BaseException):
    """A signal says that it is over."""


@define(eq=False)
class _Wanted:
    """A line that the job waits for; ``line`` is None at the end of the input."""

    prompt: str
    ready: trio.Event = field(factory=trio.Event)
    line: str | None = None
    interrupted: bool = False


@define(eq=False)
class Keyboard(Generic[T]):
    """Standard input. ``typed``: someone sits at a terminal, sees prompts, and edits lines."""

    typed: bool
    on_interrupt: Callable[[], None] = field(default=lambda: None, init=False)
    """What Ctrl-C does while no line is being typed; called in the job's thread."""
    _wanted: "SimpleQueue[_Wanted | None]" = field(factory=SimpleQueue, init=False)
    _reading: bool = field(default=False, init=False)
    _started: threading.Event = field(factory=threading.Event, init=False)
    _token: trio.lowlevel.TrioToken = field(init=False)
    _scope: trio.CancelScope = field(factory=trio.CancelScope, init=False)
    _outcome: T | None = field(default=None, init=False)
    _failure: BaseException | None = field(default=None, init=False)

    # ---- in the job's thread

    async def line(self, prompt: str = "") -> str | None:
        """The next line, without its end; None after the last one. Raises ``Interrupted``.

        Cancelled, what is being typed is dropped when its line ends.
        """
        wanted = _Wanted(prompt)
        self._wanted.put(wanted)
        await wanted.ready.wait()
        if wanted.interrupted:
            raise Interrupted
        return wanted.line

    async def _work(self, job: Callable[[], Awaitable[T]]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._started.set()
        with self._scope:
            self._outcome = await job()

    def _thread(self, job: Callable[[], Awaitable[T]]) -> None:
        try:
            trio.run(self._work, job)
        except BaseException as failure:  # noqa: ASYNC103 - it is raised in the main thread
            self._failure = failure
        finally:
            self._wanted.put(None)

    # ---- in the main thread

    def run(self, job: Callable[[], Awaitable[T]]) -> T | None:
        """What ``job`` returns, or None if a signal has ended it. Raises what it raises."""
        if self.typed:
            with suppress(ImportError):
                import readline  # noqa: F401 - from here on ``input`` edits lines
        thread = threading.Thread(target=self._thread, args=(job,), name="conversation")
        thread.start()
        self._started.wait()
        heeded = [one for one in (signal.SIGINT, *ENDING) if signal.getsignal(one) is not signal.SIG_IGN]
        before = {one: signal.signal(one, self._heard) for one in heeded}
        try:
            while (wanted := self._wanted.get()) is not None:
                self._fill(wanted)
        except _End:
            self._tell_job(self._scope.cancel)
        except BaseException:
            self._tell_job(self._scope.cancel)
            raise
        finally:
            thread.join()
            for one, handler in before.items():
                signal.signal(one, handler)
        if self._failure is not None:
            raise self._failure
        return self._outcome

    def _heard(self, number: int, _: Any) -> None:
        if number in ENDING or not self.typed:
            raise _End
        if self._reading:
            raise KeyboardInterrupt
        self._tell_job(lambda: self.on_interrupt())

    def _fill(self, wanted: _Wanted) -> None:
        try:
            wanted.line = self._read(wanted.prompt)
        except KeyboardInterrupt:
            wanted.interrupted = True
        if self.typed and wanted.line is None:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._tell_job(wanted.ready.set)

    def _read(self, prompt: str) -> str | None:
        self._reading = True
        try:
            if self.typed:
                return input(prompt)
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        except EOFError:
            return None
        finally:
            self._reading = False

    def _tell_job(self, act: Callable[[], object]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(act)
