"""What the server processes have in common: they print their port, and then answer for their figures on standard input."""

import gc
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio


def raise_file_limit() -> int:
    """Raise the limit of open files as far as it goes; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


async def answer(port: int, more: Callable[[], dict[str, Any]] = dict) -> None:
    """Print ``port``, then answer each line with CPU and memory and what ``more`` says, until standard input ends."""
    print(json.dumps({"port": port}), flush=True)
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as lines:
        async for line in lines:
            if line.strip() == b"memory":
                gc.collect()
            print(json.dumps({"cpu": time.process_time(), "memory": memory_bytes(), **more()}), flush=True)


def memory_bytes() -> int:
    """This process's own share of memory where the system says it, else the most that it ever had resident."""
    try:
        return shared_out("self")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shared_out(pid: int | str) -> int:
    """A process's own share of memory (PSS), in bytes. Raises ``OSError`` where the system does not say it."""
    found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
