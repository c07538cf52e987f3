"""Runs a program with limits: on its time, on what is kept of its output, and on what outlives it, which is nothing.

Theory. The program leads a session and process group of its own, so that what it starts can be ended with it. Ended
means SIGTERM, a grace, SIGKILL, for the whole group: at the time limit, when we are cancelled, and also after the
program has exited by itself, for what it left in the background. A process that went on to a group of its own escapes
this; it can hold the pipes open, but we stop listening after a bounded wait.

The group's id stays ours: a process id is not given away while a group of that id has members, and between the end of
the leader and our signal there is no pause but the wait for output, which only lasts while somebody holds the pipes.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import trio
from attrs import frozen

GRACE_SECONDS: Final = 2.0
"""Between SIGTERM and SIGKILL: enough to remove a lock file, short for someone who waits."""

DRAIN_SECONDS: Final = 0.5
"""How long output is awaited after the program has exited, while something in the background still holds the pipes."""

POLL_SECONDS: Final = 0.02
"""How often we look whether the group is gone: the system offers nothing to wait on."""

PROC: Final = Path("/proc")
DEAD_STATES: Final = "ZX"

NOTE_BYTES: Final = 64
"""Room for the note about what was left out, so that the whole stays in its limit."""


class HeadTail:
    """Keeps the beginning and the end of a stream, ``limit`` bytes in all, whatever its length."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def feed(self, data: bytes | bytearray) -> None:
        """Take in the next bytes."""
        taken = max(0, self._limit // 2 - len(self._head))
        self._head += data[:taken]
        self._tail += data[taken:]
        excess = len(self._tail) - (self._limit - self._limit // 2)
        if excess > 0:
            del self._tail[:excess]
            self._left_out += excess

    def text(self) -> str:
        """What was kept, as UTF-8 with replacement characters, and a note in the place of what was not.

        No character is cut in two.
        """
        if not self._left_out:
            return (self._head + self._tail).decode(errors="replace")
        half = max(0, self._limit - NOTE_BYTES) // 2
        head, tail = _whole_end(self._head[:half]), _whole_start(self._tail[len(self._tail) - half :])
        left_out = self._left_out + len(self._head) + len(self._tail) - len(head) - len(tail)
        return f"{head.decode(errors='replace')}\n[… {left_out} bytes left out …]\n{tail.decode(errors='replace')}"


def _whole_start(data: bytearray) -> bytearray:
    """Without the rest of a character that was cut: at most three bytes that continue one; more are no UTF-8."""
    cut = next((index for index, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), len(data))
    return data[cut:] if cut < 4 else data


def _whole_end(data: bytearray) -> bytearray:
    """Without the beginning of a character that was cut: a leading byte that wants more bytes than follow."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            wanted = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if wanted > back else data
    return data


@frozen(kw_only=True)
class Ended:
    """How a program ended. ``exit_code`` is None after its time limit, and 128 plus the number of a signal."""

    exit_code: int | None
    stdout: str
    stderr: str
    left_behind: bool
    """Whether something that it had left in the background was ended."""


async def run_program(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None,
    seconds: float,
    output_bytes: int,
    merged: bool,
) -> Ended:
    """Run ``argv`` in ``cwd`` for at most ``seconds``, keeping ``output_bytes`` of each stream.

    ``merged`` puts what it writes to standard error into ``stdout``, in order. Standard input is empty. Raises
    ``OSError`` when it can't be started. Cancellation ends it, with its group, and takes little more than the grace.
    """
    process = await trio.lowlevel.open_process(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    out, err = HeadTail(output_bytes), HeadTail(output_bytes)
    left_behind = True
    async with trio.open_nursery() as nursery:
        closed = trio.Event()
        nursery.start_soon(_listen, ((process.stdout, out), (process.stderr, err)), closed)
        try:
            with trio.move_on_after(seconds) as limit:
                await process.wait()
            if not limit.cancelled_caught:
                await _closed_soon(closed)
        finally:
            with trio.move_on_after(2 * GRACE_SECONDS, shield=True):
                left_behind = await _end_group(process)
        await _closed_soon(closed)
        nursery.cancel_scope.cancel()
    code = None if limit.cancelled_caught else process.returncode
    return Ended(
        exit_code=128 - code if code is not None and code < 0 else code,
        stdout=out.text(),
        stderr=err.text(),
        left_behind=left_behind,
    )


async def _listen(streams: Sequence[tuple[trio.abc.ReceiveStream | None, HeadTail]], closed: trio.Event) -> None:
    """Keep what comes from the streams, until all of them end; then set ``closed``."""
    async with trio.open_nursery() as nursery:
        for stream, kept in streams:
            if stream is not None:
                nursery.start_soon(_keep, stream, kept)
    closed.set()


async def _keep(stream: trio.abc.ReceiveStream, kept: HeadTail) -> None:
    async with stream:
        async for data in stream:
            kept.feed(data)


async def _closed_soon(closed: trio.Event) -> None:
    with trio.move_on_after(DRAIN_SECONDS):
        await closed.wait()


async def _end_group(process: trio.Process) -> bool:
    """End what is left of the group of ``process``, and say whether there was anything. Reaps ``process``."""
    lived = _group_lives(process.pid)
    if lived:
        _signal_group(process.pid, signal.SIGTERM)
    with trio.move_on_after(GRACE_SECONDS):
        await process.wait()
        while True:
            if not _group_lives(process.pid):
                return lived
            await trio.sleep(POLL_SECONDS)
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()
    return True


def _signal_group(group: int, number: int) -> bool:
    """Whether there was a process to send the signal to."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        return False
    return True


def _group_lives(group: int) -> bool:
    """Whether a process of the group still runs.

    The dead count as members until they are reaped; in a container whose first process never does, that is for ever. So
    where there is a ``/proc``, and the group has members, we look at their states.
    """
    if not _signal_group(group, 0):
        return False
    if not (PROC / "self/stat").exists():
        return True
    return any(_runs_in(group, int(name)) for name in os.listdir(PROC) if name.isdecimal())


def _runs_in(group: int, pid: int) -> bool:
    try:
        # "pid (name) state parent group …"; a name may hold anything, also brackets and spaces.
        state, _, its_group = (PROC / f"{pid}/stat").read_bytes().rpartition(b")")[2].split()[:3]
    except OSError:
        return False
    return int(its_group) == group and state.decode() not in DEAD_STATES
