"""A network that breaks in mid-rollout, again and again: python examples/reconnecting.py

Between client and server stands a relay that cuts each of its first connections, by a TCP reset, when it has carried so
many bytes: in the middle of a frame, of a sentence, of a park. There is no code for that in the agent: the client
attaches again behind the last event that it has seen, and repeats what was not acknowledged. The server's loop does not
notice. No task runs twice, and nothing is rendered or billed twice.
"""

import json
import socket
import struct
from collections import Counter
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

import trio

from engine.client import connect
from engine.server import port_of
from engine.serving import Options, running

CUTS = [2_500, 1_500, 4_000, 700, 5_000]
"""Bytes from the server after which a connection is cut, one after the other; later ones live."""

PROGRAM = {
    "program": [
        {"calls": [{"name": "run", "arguments": {"task": "build"}}, {"name": "run", "arguments": {"task": "check"}}]},
        {"say": {"tokens": 30}},
        {"call": {"name": "run", "arguments": {"task": "publish"}}},
        {"say": "The last task: {{output}}"},
    ]
}


class Relay:
    """A network that breaks."""

    def __init__(self, url: str) -> None:
        self._port = urlsplit(url).port or 80
        self._cuts = iter(CUTS)

    async def carry(self, client: trio.SocketStream) -> None:
        """One connection, until it is cut or one side closes it."""
        async with client, await trio.open_tcp_stream("127.0.0.1", self._port) as server, trio.open_nursery() as nursery:
            nursery.start_soon(self._carry_up, client, server, nursery.cancel_scope)
            nursery.start_soon(self._carry_down, server, client, nursery.cancel_scope)

    async def _carry_up(self, client: trio.SocketStream, server: trio.SocketStream, scope: trio.CancelScope) -> None:
        with suppress(trio.BrokenResourceError):
            async for data in client:
                await server.send_all(data)
        scope.cancel()

    async def _carry_down(self, server: trio.SocketStream, client: trio.SocketStream, scope: trio.CancelScope) -> None:
        most = next(self._cuts, None)
        carried = 0
        with suppress(trio.BrokenResourceError):
            async for data in server:
                await client.send_all(data if most is None else data[: most - carried])
                carried += len(data)
                if most is not None and carried >= most:
                    print(f"network: cut after {most:,} bytes")
                    # To linger for no time makes the close that follows a reset.
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
        scope.cancel()


async def main() -> None:
    runs: Counter[str] = Counter()

    async def run(task: str) -> str:
        """Run a task."""
        print(f"agent:   {task} runs")
        runs[task] += 1
        await trio.sleep(0.2)
        return f"{task} is done"

    async with running(Options(port=0, data=":memory:")) as server, trio.open_nursery() as nursery:
        relay = Relay(server.url)
        listeners = await nursery.start(partial(trio.serve_tcp, relay.carry, 0, host="127.0.0.1"))
        async with connect(f"http://127.0.0.1:{port_of(listeners)}/v1") as client:
            result = await client.run(model="scripted", input=json.dumps(PROGRAM), tools={"run": run})
        nursery.cancel_scope.cancel()
    print(f"model:   {result.text}")
    print(f"{result.status} after {result.reconnects} reconnects; runs: {dict(sorted(runs.items()))}")
    print(f"full runs of the server's stages: {result.response['engine']['stage_runs']}")


trio.run(main)
