"""The coding agent: a prompt, the local tools and a hosted search, and one run of a client, in whichever shape."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio
from attrs import frozen

from protocol.codec import to_wire
from protocol.items import CallItem
from tools.local import Shell, Workspace, local_tools
from tools.spec import Outcome, Tool, ToolSpec

from ...account import Shape
from ...chains import open_wire, run_chain
from ...client import Event, connect
from ...client_tools import Toolbox
from .task import PROMPT, Repository

INSTRUCTIONS: Final = (
    "You are a coding agent. You work in a repository with the tools that you are given, and check what you have done by "
    "running the tests."
)
FILE_SEARCH: Final[Mapping[str, Any]] = {"type": "file_search"}


@frozen
class Watched:
    """A tool whose results somebody wants to see: the call, its output, both as JSON values, and the seconds it took."""

    tool: Tool
    on_result: Callable[[Mapping[str, Any], Mapping[str, Any], float], None]

    @property
    def spec(self) -> ToolSpec:
        """The tool's own."""
        return self.tool.spec

    async def call(self, call: CallItem) -> Outcome:
        """Answer as the tool does, and tell."""
        started = time.perf_counter()
        outcome = await self.tool.call(call)
        self.on_result(to_wire(call), to_wire(outcome.item), time.perf_counter() - started)
        return outcome


def make_tools(repository: Repository) -> dict[str, Tool]:
    """The agent's own tools, in the repository and its environment."""
    workspace = Workspace(repository.root)
    tools: dict[str, Tool] = dict(local_tools(workspace))
    return {**tools, "shell": Shell(workspace, env=repository.environment)}


@frozen(kw_only=True)
class Work:
    """What came back: each Response as its terminal event has it. ``seconds`` are from the first create to the last event."""

    responses: Sequence[Mapping[str, Any]]
    bytes_up: int
    bytes_down: int
    """Payload of frames, or bodies."""
    seconds: float


async def work(
    url: str, shape: Shape, model: str, tools: Mapping[str, Tool], on_event: Callable[[Event], object] = lambda _: None
) -> Work:
    """Let ``model`` do the task, at the server with this URL.

    Raises ``RolloutError``, ``ConnectionLost``, ``OSError``, and what ``on_event`` raises. Cancelled, tools and Response are
    cancelled.
    """
    task = {"type": "message", "role": "user", "content": PROMPT}
    body: dict[str, Any] = {"model": model, "instructions": INSTRUCTIONS, "input": [task]}
    started = trio.current_time()
    if shape == "append":
        async with connect(url) as client:
            result = await client.run(**body, tools=tools, tool_definitions=(FILE_SEARCH,), on_event=on_event)
        up, down, responses = result.bytes_up, result.bytes_down, [result.response]
    else:
        async with open_wire(url, shape) as wire:
            toolbox = Toolbox(tools, (FILE_SEARCH,))
            body["tools"] = toolbox.definitions
            chain = await run_chain(wire, body, answer=toolbox.answer, on_event=lambda frame: on_event(Event(frame)))
        up, down, responses = wire.bytes_up, wire.bytes_down, [*chain.responses]
    return Work(responses=responses, bytes_up=up, bytes_down=down, seconds=trio.current_time() - started)
