"""The transcript in ``docs/append.md``: had from a real server, over real sockets, and compared byte for byte."""

import json
from typing import Any

import trio

from .blocks import check_block
from .doc_server import doc_server
from .tiny_client import TERMINAL, Socket

TOOL = {
    "type": "function",
    "name": "list_dir",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
}
PROGRAM = {
    "program": [
        {"say": "I look."},
        {
            "calls": [
                {"name": "list_dir", "arguments": {"path": "src"}},
                {"name": "list_dir", "arguments": {"path": "docs"}},
            ]
        },
        {"say": "All seen."},
    ]
}
CREATE = {
    "type": "response.create",
    "model": "scripted",
    "input": json.dumps(PROGRAM, separators=(",", ":")),
    "tools": [TOOL],
    "idempotency_key": "rollout-7",
}


class Scribe:
    """Writes down what is said on a socket."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.lines: list[str] = []
        self.connect()

    def connect(self) -> None:
        self.socket = Socket(self._port, {"OpenAI-Beta": "responses_websockets=2026-02-04"})

    def remark(self, text: str) -> None:
        self.lines.append(f"# {text}")

    def send(self, frame: dict[str, Any]) -> None:
        self.socket.send(frame)
        self._write(">", frame)

    def until(self, *kinds: str) -> dict[str, Any]:
        """Read until a frame of one of ``kinds``, and return it."""
        while True:
            frame = self.socket.receive()
            self._write("<", frame)
            if frame["type"] in kinds:
                return frame

    def _write(self, direction: str, frame: dict[str, Any]) -> None:
        self.lines.append(f"{direction} {json.dumps(timeless(frame), separators=(',', ':'), ensure_ascii=False)}")


def timeless(value: Any) -> Any:
    """``value`` with all durations set to 0."""
    if isinstance(value, list):
        return [timeless(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: still(one) if key == "seconds" else timeless(one) for key, one in value.items()}


def still(seconds: Any) -> Any:
    return dict.fromkeys(seconds, 0) if isinstance(seconds, dict) else 0


def output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def conversation(port: int) -> list[str]:
    scribe = Scribe(port)
    scribe.remark("GET /v1/responses, OpenAI-Beta: responses_websockets=2026-02-04")
    scribe.send(CREATE)
    done = scribe.until("response.done")
    first, second = (stub["call_id"] for stub in done["required_input"])
    scribe.remark("the second call's result is ready first")
    scribe.send({"type": "response.append", "input": [output(second, "append.md")]})
    accepted = scribe.until("response.append.accepted")
    scribe.remark("a mistake: nothing is changed by it")
    scribe.send({"type": "response.append", "input": [output("call_9", "main.py")]})
    scribe.until("error")
    scribe.remark("the socket drops; on a new one the client goes on behind the last event that it has handled")
    scribe.socket.close()
    scribe.connect()
    response_id, cursor = done["response"]["id"], done["sequence_number"]
    scribe.send({"type": "response.attach", "response_id": response_id, "starting_after": cursor})
    assert scribe.until("response.append.accepted") == accepted
    scribe.remark("the same result again is a duplicate")
    scribe.send({"type": "response.append", "response_id": response_id, "input": [output(second, "append.md")]})
    scribe.until("response.append.accepted")
    scribe.remark("the last result, and a word of the user")
    message = {"role": "user", "content": "Thank you."}
    last = {"type": "response.append", "response_id": response_id, "input": [output(first, "main.py"), message]}
    scribe.send({**last, "idempotency_key": "rollout-7-1"})
    ended = scribe.until(*TERMINAL)
    assert ended["response"]["status"] == "completed"
    scribe.socket.close()
    return scribe.lines


async def test_the_transcript_is_what_a_server_says() -> None:
    async with doc_server() as port:
        lines = await trio.to_thread.run_sync(conversation, port)
    check_block("append.md", "transcript", "```text\n" + "\n".join(lines) + "\n```\n")
