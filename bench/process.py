"""A server in a process of its own, and what it says of itself."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, cast

from .client import Client, HttpClient

PROCESSORS: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def pin_client() -> None:
    """Keep this process on the first processor, as the servers are kept on the last, where the system can do that.

    Else it is chance, and the same for a whole run, whether a server shares the client's processor, and that changes its times
    by a third.
    """
    if PROCESSORS:
        os.sched_setaffinity(0, PROCESSORS[:1])


@contextmanager
def unpinned() -> Iterator[None]:
    """Let this process, and those that it starts meanwhile, run anywhere."""
    if PROCESSORS:
        os.sched_setaffinity(0, PROCESSORS)
    try:
        yield
    finally:
        pin_client()


class ServerProcess:
    """A side as a child: ``engine``, ``loop`` or ``echo``. As a context it is there until left."""

    def __init__(self, side: str, **options: Any) -> None:
        module = "bench.ours" if side == "engine" else "bench.plain"
        command = [sys.executable, "-m", module, side, json.dumps(options)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port: int = self._line()["port"]
        if PROCESSORS:
            os.sched_setaffinity(self._child.pid, PROCESSORS[-1:])

    def __enter__(self) -> "ServerProcess":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    @property
    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        return cast(float, self.figures()["cpu"])

    @property
    def memory(self) -> int:
        """Bytes that it holds, its garbage collected."""
        return cast(int, self.figures("memory")["memory"])

    def figures(self, question: str = "figures") -> dict[str, Any]:
        """All that it says of itself, garbage collected before if ``question`` is ``memory``."""
        assert self._child.stdin is not None
        self._child.stdin.write(question + "\n")
        self._child.stdin.flush()
        return self._line()

    def connect(self) -> Client:
        """A client of it."""
        return Client(self.port)

    def connect_http(self) -> HttpClient:
        """A client of it that speaks HTTP."""
        return HttpClient(self.port)

    def _line(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError("the server process has ended; its standard error says why")
        return cast(dict[str, Any], json.loads(line))
