"""``sostenuto serve`` as a process of its own, with a ledger to read when it has ended."""

import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import trio
from attrs import define

ROOT: Final = Path(__file__).resolve().parents[3]
START_SECONDS: Final = 30.0
END_SECONDS: Final = 30.0


@define(eq=False)
class Served:
    """A server that listens at ``url``. ``exit_status`` is there when it has ended."""

    url: str
    data: Path
    exit_status: int | None = None

    def ledger(self) -> list[dict[str, Any]]:
        """Its rows, oldest first, ``stages`` as a JSON value."""
        connection = sqlite3.connect(self.data)
        try:
            connection.row_factory = sqlite3.Row
            rows = [dict(row) for row in connection.execute("SELECT * FROM ledger ORDER BY rowid")]
        finally:
            connection.close()
        return [{**row, "stages": json.loads(row["stages"])} for row in rows]


@asynccontextmanager
async def served(folder: Path, *options: str) -> AsyncIterator[Served]:
    """Run ``sostenuto serve`` with ``options``, its ledger and log in ``folder``; SIGTERM ends it."""
    data = folder / "ledger.sqlite3"
    command = [sys.executable, "-m", "engine.cli", "serve", "--port", "0", "--data", str(data), *options]
    with (folder / "server.log").open("wb") as log:
        process = await trio.lowlevel.open_process(
            command, stdout=PIPE, stderr=log, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    assert process.stdout is not None
    try:
        with trio.fail_after(START_SECONDS):
            line = (await process.stdout.receive_some()).decode()
        assert line.startswith("listening on http://"), (line, (folder / "server.log").read_text())
        server = Served(line.removeprefix("listening on ").strip(), data)
        yield server
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(END_SECONDS):
            server.exit_status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + END_SECONDS):
            await process.wait()
        await process.stdout.aclose()
