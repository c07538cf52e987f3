"""Our side: Sostenuto with the models of ``bench.models``: ``python -m bench.ours engine OPTIONS``."""

import json
import sys
from typing import Any, Final

import trio

from engine import tokens
from engine.config import Config
from engine.logs import log_to_stderr
from engine.models.base import Model
from engine.models.scripted import ScriptedModel
from engine.server import Server, port_of
from engine.services import Services

from .child import answer, raise_file_limit
from .models import BATCHES, CallModel, InstantModel, PacedModel, StreamModel

LONG: Final = 86_400.0
"""A day, in seconds: no ping, no heartbeat and no deadline falls into a run."""

CONFIG: Final = Config(
    ping_seconds=LONG, heartbeat_seconds=LONG, detach_seconds=LONG, park_seconds=LONG, grace_seconds=0.0, seal_seconds=0.5
)


async def main(options: dict[str, Any]) -> None:
    """Serve until standard input ends."""
    log_to_stderr("ERROR")
    raise_file_limit()
    tokens.load()
    models: list[Model] = [
        ScriptedModel(),
        InstantModel(),
        CallModel("call", says_first=False),
        CallModel("turn", says_first=True),
        *(StreamModel(options.get("deltas", 0), batch) for batch in BATCHES),
        *(PacedModel(rate, count) for rate, count in options.get("paces", ())),
    ]
    server = Server(Services(config=CONFIG, models={model.name: model for model in models}))
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1024)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, listeners)
        await answer(port_of(listeners), lambda: {"connections": server.connections, "live": len(server.engine.live)})
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[2]))
