"""The coding agent: a prompt, the local tools and a hosted search, and one run of the client. It does not know the shape."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen

from protocol.codec import to_wire
from protocol.items import CallItem
from tools.local import Shell, Workspace, local_tools
from tools.spec import Outcome, Tool, ToolSpec

from ...client import Client, Event, Result
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


async def work(client: Client, model: str, tools: Mapping[str, Tool], on_event: Callable[[Event], object]) -> Result:
    """Let ``model`` do the task. Raises as ``Client.run`` does; cancelled, tools and Response are cancelled."""
    return await client.run(
        model=model,
        instructions=INSTRUCTIONS,
        input=PROMPT,
        tools=tools,
        tool_definitions=(FILE_SEARCH,),
        on_event=on_event,
    )
