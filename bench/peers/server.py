"""A peer as a child on a free port of the loopback, and what the system says of its processor time and memory."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

from ..process import PROCESSORS

START_SECONDS: Final = 90.0
"""A gateway with a hundred modules takes its time."""
PORT: Final = "PORT"
"""Stands in a command for the port that was found to be free."""


class Unavailable(Exception):
    """A peer can't be had here; says why."""


class Peer:
    """A server of others. As a context it is there until left. Raises ``Unavailable`` if it does not start.

    ``with_client``: kept on the client's processor, as a fake upstream is, which works while client and server wait for it.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, *, environment: Mapping[str, str] | None = None, with_client: bool = False
    ) -> None:
        self.port = free_port()
        self._log = folder / f"{self.port}.log"
        words = [word.replace(PORT, str(self.port)) for word in command]
        with self._log.open("wb") as out, _kept_on(PROCESSORS[:1] if with_client else PROCESSORS[-1:]):
            self._child = subprocess.Popen(
                words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **(environment or {})}
            )
        try:
            self.until(self._listens)
        except Unavailable:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._child.terminate()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._child.pid

    def until(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready``, a few times a second. Raises ``Unavailable``."""
        until = time.monotonic() + START_SECONDS
        while not ready():
            if self._child.poll() is not None or time.monotonic() > until:
                last = self._log.read_text(errors="replace").strip().splitlines()[-1:]
                raise Unavailable(f"it did not start: {' '.join(last)}")
            time.sleep(0.1)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def _kept_on(processors: Sequence[int]) -> Iterator[None]:
    """Children that begin meanwhile are kept on these, and see no others when they count them."""
    if not processors:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used of processors. In nanoseconds where the system counts them, else in ticks."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
