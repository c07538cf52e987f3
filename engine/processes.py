"""Processes of ours, which end when their standard input does."""

from typing import Final

import trio

END_SECONDS: Final = 5.0
"""One that has nothing to do ends at once; one that does not end is killed."""


async def end(process: trio.Process) -> None:
    """End ``process``, by force if it takes long, and close all that leads to it. Also when cancelled."""
    assert process.stdin is not None
    with trio.CancelScope(shield=True, deadline=trio.current_time() + END_SECONDS):
        await process.stdin.aclose()
        await process.wait()
    if process.poll() is None:
        process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + END_SECONDS):
            await process.wait()
    with trio.CancelScope(shield=True, deadline=trio.current_time() + END_SECONDS):
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()
