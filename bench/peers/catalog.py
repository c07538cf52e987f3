"""The sides: Sostenuto in its three shapes, and the servers of others, each started as its own documents say.

All listen on the loopback only, log next to nothing, keep their history in memory, and have one process on the servers'
processor. What a gateway forwards to stands on the client's: it works while the client waits.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen

from ..child import shared_out
from ..process import ServerProcess
from . import rollout
from .install import installed
from .play import alone
from .rollout import NewRollout
from .server import PORT, Peer, cpu_seconds, free_port
from .turn import ARGUMENTS, MODEL, TASK, TEXT, TOOL_NAME
from .wire import KEY, Http, Socket, Wire

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]


@frozen(kw_only=True)
class Side:
    """A server, and how a rollout is played on it."""

    name: str
    port: int
    pid: int
    new_rollout: NewRollout
    wire: type[Socket] | type[Http] = Socket
    ours: bool = False
    slow: bool = False
    """It is some ten times slower than the others: few turns are enough."""

    def connect(self) -> Wire:
        """A connection of its own."""
        return self.wire(self.port)

    @property
    def cpu(self) -> float:
        """Seconds that its process has used of processors."""
        return cpu_seconds(self.pid)

    @property
    def memory(self) -> int:
        """Bytes that its process holds."""
        return shared_out(self.pid)


Start = Callable[[Path], AbstractContextManager[Side]]


@contextmanager
def ours(turns: tuple[int, ...]) -> Iterator[list[Side]]:
    """Sostenuto: three sides, one process."""
    shapes: list[tuple[str, NewRollout, type[Socket] | type[Http]]] = [
        ("append", rollout.append, Socket),
        ("create", rollout.create, Socket),
        ("http", rollout.http, Http),
    ]
    with ServerProcess("engine", turns=turns) as server:
        yield [
            Side(name=name, port=server.port, pid=server.pid, new_rollout=new, wire=wire, ours=True)
            for name, new, wire in shapes
        ]


@contextmanager
def fastresponses(folder: Path) -> Iterator[Side]:
    """fastresponses with the smallest adapter: WebSocket."""
    serve = [str(installed("fastresponses") / "bin" / "fastresponses"), "serve", f"{HERE / 'fastresponses_adapter.py'}:adapter"]
    with Peer([*serve, "--port", PORT, "--log-level", "warning"], folder) as peer:
        yield Side(name="fastresponses", port=peer.port, pid=peer.pid, new_rollout=rollout.chained_socket)


@contextmanager
def aimock(folder: Path) -> Iterator[Side]:
    """aimock with one fixture: WebSocket, the whole history each time, since it remembers none."""
    call = {"name": TOOL_NAME, "arguments": ARGUMENTS}
    fixture = {"match": {"userMessage": TASK}, "response": {"content": TEXT, "toolCalls": [call]}}
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": [fixture]}), encoding="utf-8")
    cli = installed("aimock") / "node_modules/@copilotkit/aimock/dist/cli.js"
    options = ["--host", "127.0.0.1", "--port", PORT, "--fixtures", "fixtures.json", "--log-level", "warn"]
    with Peer(["node", str(cli), *options], folder) as peer:
        yield Side(name="aimock", port=peer.port, pid=peer.pid, new_rollout=rollout.repeated_socket)


@contextmanager
def smg(folder: Path) -> Iterator[Side]:
    """smg in front of a worker: HTTP, by the id of the Response before."""
    program = str(installed("smg") / "bin" / "smg")
    with worker(folder) as upstream:
        options = ["--host", "127.0.0.1", "--port", PORT, "--backend", "openai", "--worker-urls", upstream]
        quiet = ["--log-level", "error", "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
        with Peer([program, "launch", *options, "--history-backend", "memory", *quiet], folder) as peer:
            side = Side(name="smg", port=peer.port, pid=peer.pid, new_rollout=rollout.chained_http, wire=Http)
            peer.until(lambda: _answers(side))
            yield side


@contextmanager
def litellm(folder: Path) -> Iterator[Side]:
    """The litellm proxy in front of a worker: WebSocket."""
    program = str(installed("litellm") / "bin" / "litellm")
    with worker(folder) as upstream:
        model = {"model": f"hosted_vllm/{MODEL}", "api_base": f"{upstream}/v1", "api_key": "none"}
        config = {"model_list": [{"model_name": MODEL, "litellm_params": model}], "general_settings": {"master_key": KEY}}
        (folder / "litellm.json").write_text(json.dumps(config), encoding="utf-8")
        options = ["--config", "litellm.json", "--host", "127.0.0.1", "--port", PORT, "--telemetry", "False"]
        with Peer([program, *options], folder, environment={"LITELLM_LOG": "ERROR"}) as peer:
            side = Side(name="litellm", port=peer.port, pid=peer.pid, new_rollout=rollout.repeated_socket, slow=True)
            peer.until(lambda: _answers(side))
            yield side


PEERS: Final[dict[str, Start]] = {"fastresponses": fastresponses, "aimock": aimock, "smg": smg, "litellm": litellm}


@contextmanager
def worker(folder: Path) -> Iterator[str]:
    """What gateways forward to; gives its URL."""
    command = [sys.executable, "-m", "bench.peers.worker", PORT]
    with Peer(command, folder, environment={"PYTHONPATH": str(ROOT)}, with_client=True) as peer:
        yield f"http://127.0.0.1:{peer.port}"


def _answers(side: Side) -> bool:
    """Whether a first request is answered: gateways listen before they know what is behind them."""
    wire = side.connect()
    try:
        alone(wire, side.new_rollout(1), 1)
    except RuntimeError:
        return False
    finally:
        wire.close()
    return True
