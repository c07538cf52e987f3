"""What the tests of the Python clients share: a server as a process, a connection that can be cut, programs and tools.

The clients block, or live in asyncio, so the server is a process of its own: ``python -m engine.cli serve``.
"""

import json
import os
import queue
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 30.0
"""How long a server may take to start or to end, and a client to do what it is asked."""

Json = dict[str, Any]


# ---- a server


class Serving:
    """A server that listens at ``url``; it can be ended, and started again at the same place."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        self._port = 0
        self._start()

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self._port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def _start(self) -> None:
        command = [sys.executable, "-m", "engine.cli", "serve", "--port", str(self._port)]
        command += ["--data", str(self._folder / "ledger.sqlite3"), *self._options]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, cwd=self._folder, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
        lines: queue.Queue[bytes] = queue.Queue()
        assert self._process.stdout is not None
        threading.Thread(target=lambda out: lines.put(out.readline()), args=(self._process.stdout,), daemon=True).start()
        line = lines.get(timeout=SECONDS).decode()
        assert line.startswith("listening on "), (line, self.log)
        self._port = int(line.rpartition(":")[2].removesuffix("/v1\n"))

    @property
    def log(self) -> str:
        """What it has logged."""
        return (self._folder / "server.log").read_text(encoding="utf-8")

    def shape_of(self, response_id: str) -> str:
        """The shape that the ledger has of a Response; the row may come a moment after the Response's end."""
        deadline = time.monotonic() + SECONDS
        with closing(sqlite3.connect(self._folder / "ledger.sqlite3")) as ledger:
            while time.monotonic() < deadline:
                for (shape,) in ledger.execute("SELECT shape FROM ledger WHERE response_id = ?", (response_id,)):
                    return str(shape)
                time.sleep(0.02)
        raise AssertionError(f"the ledger has no {response_id}")

    def stop(self) -> None:
        """End it as an operator does; raises if it does not end well, or has met a bug of its own."""
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(SECONDS) == 0
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
        bugs = [line for line in self.log.splitlines() if json.loads(line)["event"] == "bug"]
        assert not bugs, bugs

    def restart(self) -> None:
        """End it, and start it again with the same store at the same port."""
        self.stop()
        self._start()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Serving]:
    """A server with its ledger, store and log in ``folder``."""
    server = Serving(folder, *options)
    try:
        yield server
    finally:
        server.stop()


# ---- a connection that can be cut


class Wire:
    """Stands between a client and a server, passes on bytes, and can drop all connections at once."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        self._listener.close()

    def drop(self) -> None:
        """Cut every connection, without a word to either side."""
        pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._address)
                self._pairs.append((client, server))
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with ExitStack() as stack:
            stack.callback(client.close)
            stack.callback(server.close)
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


# ---- programs, and the tools that they call


def program(*steps: Json, **settings: Any) -> str:
    """A message that makes the model ``scripted`` do ``steps``."""
    return json.dumps({"program": list(steps), **settings})


def call(name: str, arguments: Any = None, **more: Any) -> Json:
    """A step that calls one tool."""
    return {"call": {"name": name, **({} if arguments is None else {"arguments": arguments}), **more}}


def function(name: str, **properties: str) -> Json:
    """A strict function tool whose arguments are all required; ``properties`` are their types."""
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": f"The tool {name}.", "parameters": parameters, "strict": True}


ROLLOUT: Final = program(
    {"reason": "Two sums, side by side; then a note."},
    {"say": "I add."},
    {
        "calls": [
            {"name": "add", "arguments": {"a": 2, "b": 3}},
            {"name": "add", "arguments": '{ "a": 20,  "b": 1 }'},
            {"name": "note", "arguments": "not JSON: {å"},
        ]
    },
    {"if": {"output_of": "note", "contains": "noted"}, "then": [call("add", {"a": 1, "b": 1})], "else": [{"say": "lost"}]},
    {"if": {"output_of": "add", "equals": "2"}, "then": [{"say": "The last sum is {{output}}."}], "else": [{"say": "wrong"}]},
)
"""Reasoning, words, three calls side by side (of a function and of a custom tool), another call, an answer."""
ANSWER: Final = "The last sum is 2."
MADE: Final = ["add 2+3", "add 20+1", "note not JSON: {å", "add 1+1"]
"""The calls that it makes."""
TOOLS: Final = [function("add", a="integer", b="integer"), {"type": "custom", "name": "note", "description": "Notes a text."}]


class Hands:
    """Runs the tools of ``ROLLOUT``, and remembers what it ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def add(self, arguments: str) -> str:
        numbers = json.loads(arguments)
        self.ran.append(f"add {numbers['a']}+{numbers['b']}")
        return str(numbers["a"] + numbers["b"])

    def note(self, text: str) -> str:
        self.ran.append(f"note {text}")
        return "noted"

    def results(self, output: Sequence[Any]) -> list[Json]:
        """The outputs of all calls among the items of a Response, as openai-python gives them."""
        return [self._result(item) for item in output if item.type in ("function_call", "custom_tool_call")]

    def _result(self, item: Any) -> Json:
        text = self.add(item.arguments) if item.type == "function_call" else self.note(item.input)
        return {"type": f"{item.type}_output", "call_id": item.call_id, "output": text}


def roll(create: Callable[..., Any], hands: Hands, **fields: Any) -> list[Any]:
    """Run ``ROLLOUT`` as a chain of Responses; returns them."""
    responses = [create(model="scripted", input=ROLLOUT, tools=TOOLS, **fields)]
    while results := hands.results(responses[-1].output):
        responses.append(create(model="scripted", previous_response_id=responses[-1].id, input=results, tools=TOOLS, **fields))
    return responses
