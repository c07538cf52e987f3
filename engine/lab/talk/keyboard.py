"""What is typed, and Ctrl-C, for a job on trio.

The main thread reads, since only there ``input`` can edit lines (readline) and be interrupted; the job runs in a thread of its
own and asks for a line when it wants one. So the job, with its sockets and a server perhaps, goes on while someone types.

Ctrl-C on a terminal ends the line that is being typed, or else is told to the job; it ends nothing. In a pipe it ends the job,
as any other signal to end does.
"""

import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

import trio
from attrs import define, field

from ...client import background

T = TypeVar("T")
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
REPEATED_SECONDS: Final = 0.05


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
    _over: bool = field(default=False, init=False)
    _signals: socket.socket = field(init=False)
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
            async with background() as nursery:
                nursery.start_soon(self._repeat)
                self._outcome = await job()

    async def _repeat(self) -> None:
        """Send a signal to end again until it is heard.

        While readline waits, Python looks for signals only when the wait is interrupted: one that came between the prompt
        and the wait would not be heard before the next key.
        """
        signals = trio.socket.from_stdlib_socket(self._signals)
        main = threading.main_thread().ident or 0
        while True:
            for number in {*await signals.recv(64)}.intersection(ENDING):
                await trio.sleep(REPEATED_SECONDS)
                while not self._over:
                    signal.pthread_kill(main, number)
                    await trio.sleep(REPEATED_SECONDS)

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
        self._signals, told = socket.socketpair()
        with self._signals, told:
            told.setblocking(False)
            thread = threading.Thread(target=self._thread, args=(job,), name="conversation")
            thread.start()
            self._started.wait()
            with self._heeding_signals(told):
                try:
                    while (wanted := self._wanted.get()) is not None:
                        self._fill(wanted)
                except (_End, SystemError):  # the second from input() that was told twice
                    self._tell_job(self._scope.cancel)
                    if not self._over:
                        raise
                except BaseException:
                    self._tell_job(self._scope.cancel)
                    raise
                finally:
                    thread.join()
        if self._failure is not None:
            raise self._failure
        return self._outcome

    @contextmanager
    def _heeding_signals(self, told: socket.socket) -> Iterator[None]:
        heeded = [one for one in (signal.SIGINT, *ENDING) if signal.getsignal(one) is not signal.SIG_IGN]
        before = {one: signal.signal(one, self._heard) for one in heeded}
        told_before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(told_before)
            for one, handler in before.items():
                signal.signal(one, handler)

    def _heard(self, number: int, _: Any) -> None:
        if self._over:
            return
        if number in ENDING or not self.typed:
            self._over = True
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
