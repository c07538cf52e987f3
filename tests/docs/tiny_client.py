"""A client for the append shape from nothing but a standard library, written from ``docs/append.md`` alone.

It blocks (10 seconds at most), and runs one tool at a time. ``Rollout.run`` survives drops: it attaches, and sends again
what was not acknowledged.
"""

import base64
import hashlib
import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TERMINAL = ("response.completed", "response.incomplete", "response.failed")
OUTPUT_OF = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
Frame = dict[str, Any]


class Dropped(Exception):
    """The socket is gone."""


class Socket:
    """A WebSocket: JSON frames in and out."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        key = base64.b64encode(os.urandom(16))
        lines = ["GET /v1/responses HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade"]
        lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key.decode()}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._file = self._socket.makefile("rb")
        status, accept = self._file.readline(), b""
        while (line := self._file.readline().strip()) != b"":
            if line.lower().startswith(b"sec-websocket-accept:"):
                accept = line.partition(b":")[2].strip()
        if b" 101 " not in status or accept != base64.b64encode(hashlib.sha1(key + GUID).digest()):
            self.close()
            raise Dropped(status.decode())

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, frame: Frame) -> None:
        self._write(0x1, json.dumps(frame).encode())

    def receive(self) -> Frame:
        """The next text frame; raises ``Dropped``. Answers pings on the way."""
        message = b""
        while True:
            first, second = self._read(2)
            size = second & 127
            if size >= 126:
                size = int.from_bytes(self._read(2 if size == 126 else 8), "big")
            payload, opcode = self._read(size), first & 15
            if opcode == 0x8:
                raise Dropped("closed")
            if opcode == 0x9:
                self._write(0xA, payload)
            elif opcode in (0x0, 0x1):
                message += payload
                if first & 128:
                    frame: Frame = json.loads(message)
                    return frame

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise Dropped("the connection ended")
        return data

    def _write(self, opcode: int, payload: bytes) -> None:
        size, mask = len(payload), os.urandom(4)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        self._socket.sendall(head + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload)))


class Rollout:
    """One rollout: ``tools`` maps names to functions from arguments to a result."""

    def __init__(self, connect: Callable[[], Socket], create: Frame, tools: dict[str, Callable[[str], str]]) -> None:
        self._connect = connect
        self._create = {"type": "response.create", "idempotency_key": os.urandom(8).hex(), **create}
        self._tools = tools
        self._open: dict[str, Frame] = {}
        self._unacknowledged: dict[str, Frame] = {}
        self._past = -1
        self.response_id: str | None = None
        self.cursor = -1
        self.events: list[Frame] = []

    def run(self) -> Frame:
        """The Response as its terminal event has it."""
        while True:
            connection = self._connect()
            try:
                return self._converse(connection)
            except (Dropped, ConnectionError):
                continue
            finally:
                connection.close()

    def _converse(self, connection: Socket) -> Frame:
        if self.response_id is None:
            connection.send(self._create)
        else:
            connection.send({"type": "response.attach", "response_id": self.response_id, "starting_after": self.cursor})
        for append in list(self._unacknowledged.values()):
            connection.send(append)
        while True:
            frame = connection.receive()
            kind, number = frame["type"], frame.get("sequence_number")
            if kind == "error":
                raise RuntimeError(frame["message"])
            if kind == "response.attach.accepted":
                self._past = frame["last_sequence_number"]
            if number is not None:
                if number <= self.cursor:
                    continue
                self.cursor = number
                self.events.append(frame)
                self._take(kind, frame)
                if kind in TERMINAL:
                    response: Frame = frame["response"]
                    return response
            if self.cursor >= self._past:
                self._run_tools(connection)

    def _take(self, kind: str, frame: Frame) -> None:
        if kind == "response.created":
            self.response_id = frame["response"]["id"]
        elif kind == "response.output_item.done":
            item = frame["item"]
            if item["type"] in OUTPUT_OF and item["status"] == "completed":
                self._open[item["call_id"]] = item
        elif kind == "response.append.accepted":
            for call_id in frame["append"]["call_ids"]:
                self._open.pop(call_id, None)
                self._unacknowledged.pop(call_id, None)

    def _run_tools(self, connection: Socket) -> None:
        for call_id, item in list(self._open.items()):
            if call_id not in self._unacknowledged:
                result = self._tools[item["name"]](item.get("arguments") or item.get("input") or "")
                output = {"type": OUTPUT_OF[item["type"]], "call_id": call_id, "output": result}
                append = {"type": "response.append", "response_id": self.response_id, "input": [output]}
                self._unacknowledged[call_id] = append
                connection.send(append)
