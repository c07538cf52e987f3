"""An unmodified openai-agents against ``sostenuto serve``: over HTTP and over its WebSocket session, streamed and not."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    CustomTool,
    FileSearchTool,
    LocalShellTool,
    ModelSettings,
    OpenAIProvider,
    RunConfig,
    Runner,
    ShellTool,
    apply_diff,
    function_tool,
    responses_websocket_session,
    set_tracing_disabled,
)
from agents.tool import ShellCallOutcome, ShellCommandOutput, ShellResult
from openai import AsyncOpenAI, BadRequestError
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel

from .matrix import shows
from .programs import ANSWER, MADE, ROLLOUT, Hands, Serving, call, program

set_tracing_disabled(True)

NAME = "scripted"
Run = Callable[..., Any]
"""``run(agent, input, **options)``: what came of it, with the text that was streamed, if it was."""

each_way = pytest.mark.parametrize("transport", ["http", "websocket"])
streamed_or_not = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@asynccontextmanager
async def runner(server: Serving, transport: str, streamed: bool) -> AsyncIterator[Run]:
    """A way to run agents."""

    async def finish(result: Any) -> Any:
        told = [event.data.delta async for event in result.stream_events() if _is_text(event)]
        assert "".join(told).endswith(str(result.final_output)) or not isinstance(result.final_output, str)
        return result

    if transport == "websocket":
        async with responses_websocket_session(api_key="any", base_url=server.url) as session:
            if streamed:
                yield lambda *args, **options: finish(session.run_streamed(*args, **options))
            else:
                yield session.run
        return
    async with AsyncOpenAI(api_key="any", base_url=server.url, max_retries=0) as client:
        config = RunConfig(model_provider=OpenAIProvider(openai_client=client))
        if streamed:
            yield lambda *args, **options: finish(Runner.run_streamed(*args, run_config=config, **options))
        else:
            yield lambda *args, **options: Runner.run(*args, run_config=config, **options)


def _is_text(event: Any) -> bool:
    return event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)


def drive(server: Serving, transport: str, streamed: bool, agent: Agent[Any], text: Any, **options: Any) -> Any:
    """Run one agent in a loop of its own."""

    async def main() -> Any:
        async with runner(server, transport, streamed) as run:
            return await run(agent, text, **options)

    return asyncio.run(main())


def summing(hands: Hands, **settings: Any) -> Agent[Any]:
    """An agent with the tools of ``ROLLOUT``."""

    @function_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return hands.add(f'{{"a": {a}, "b": {b}}}')

    def note(_: Any, text: str) -> str:
        return hands.note(text)

    tools = [add, CustomTool(name="note", description="Notes a text.", on_invoke_tool=note)]
    return Agent(name="summing", model=NAME, tools=tools, instructions="Add.", model_settings=ModelSettings(**settings))


# ---- rollouts


@shows("openai-agents", "http", "`Runner.run`, `run_streamed`: a rollout with parallel calls")
@shows("openai-agents", "create", "`responses_websocket_session`: a rollout with parallel calls")
@each_way
@streamed_or_not
def test_a_rollout(server: Serving, transport: str, streamed: bool) -> None:
    hands = Hands()
    result = drive(server, transport, streamed, summing(hands), ROLLOUT)
    assert sorted(hands.ran) == sorted(MADE)  # it runs calls of one turn in an order of its own
    assert result.final_output == ANSWER
    assert len(result.raw_responses) == 3
    shape = {"http": "http", "websocket": "create"}[transport]
    assert [server.shape_of(response.response_id) for response in result.raw_responses] == [shape] * 3


@shows("openai-agents", "http", "`store=False`; `parallel_tool_calls=False`")
@shows("openai-agents", "create", "`store=False`; `parallel_tool_calls=False`")
@each_way
@streamed_or_not
def test_one_call_a_turn(server: Serving, transport: str, streamed: bool) -> None:
    hands = Hands()
    result = drive(server, transport, streamed, summing(hands, parallel_tool_calls=False, store=False), ROLLOUT)
    assert hands.ran == MADE
    assert result.final_output == ANSWER
    assert len(result.raw_responses) == 5


@shows("openai-agents", "http", "`auto_previous_response_id`: only what is new is sent")
@shows("openai-agents", "create", "`auto_previous_response_id`: only what is new is sent")
@each_way
@streamed_or_not
def test_a_chain(server: Serving, transport: str, streamed: bool) -> None:
    hands = Hands()
    result = drive(server, transport, streamed, summing(hands), ROLLOUT, auto_previous_response_id=True)
    assert sorted(hands.ran) == sorted(MADE)
    assert result.final_output == ANSWER
    usages = [response.usage for response in result.raw_responses]
    assert [usage.input_tokens_details.cached_tokens > 0 for usage in usages] == [False, True, True]


@shows("openai-agents", "http", "several turns of a user")
@shows("openai-agents", "create", "several turns of a user, over one connection")
@each_way
@streamed_or_not
def test_a_conversation(server: Serving, transport: str, streamed: bool) -> None:
    hands = Hands()
    agent = summing(hands)

    async def main() -> list[Any]:
        async with runner(server, transport, streamed) as run:
            first = await run(agent, ROLLOUT)
            again = [
                *first.to_input_list(),
                {"role": "user", "content": program(call("add", {"a": 4, "b": 5}), {"say": "{{output}}"})},
            ]
            second = await run(agent, again)
            third = await run(agent, [*second.to_input_list(), {"role": "user", "content": "Thanks."}])
            return [first.final_output, second.final_output, third.final_output]

    assert asyncio.run(main()) == [ANSWER, "9", "You said: Thanks."]
    assert hands.ran[-1] == "add 4+5"


# ---- tools that are known by their type


class Folder:
    """A shell and an editor for a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def shell(self, request: Any) -> ShellResult:
        return ShellResult(output=[self._run(command) for command in request.data.action.commands])

    def local_shell(self, request: Any) -> str:
        action = request.data.action
        return subprocess.run(action.command, cwd=self.path, capture_output=True, text=True, check=True).stdout

    def create_file(self, operation: Any) -> str:
        (self.path / operation.path).write_text(apply_diff("", operation.diff, mode="create"))
        return f"created {operation.path}"

    def update_file(self, operation: Any) -> str:
        file = self.path / operation.path
        file.write_text(apply_diff(file.read_text(), operation.diff))
        return f"updated {operation.path}"

    def delete_file(self, operation: Any) -> str:
        (self.path / operation.path).unlink()
        return f"deleted {operation.path}"

    def _run(self, command: str) -> ShellCommandOutput:
        done = subprocess.run(command, shell=True, cwd=self.path, capture_output=True, text=True, check=False)
        return ShellCommandOutput(done.stdout, done.stderr, ShellCallOutcome("exit", done.returncode), command)


CODING = program(
    {"reason": "A file first."},
    call("apply_patch", {"type": "create_file", "path": "hello.txt", "diff": "+hello\n+wörld"}),
    call("apply_patch", {"type": "update_file", "path": "hello.txt", "diff": "@@\n-hello\n+goodbye\n wörld"}),
    {
        "calls": [
            {"name": "shell", "arguments": {"commands": ["cat hello.txt", "ls nowhere"], "timeout_ms": 5000}},
            {"name": "shell", "arguments": {"commands": ["wc -l < hello.txt"]}},
            {"name": "apply_patch", "arguments": {"type": "create_file", "path": "more.txt", "diff": "+more"}},
        ]
    },
    call("apply_patch", {"type": "delete_file", "path": "hello.txt"}),
    call("apply_patch", {"type": "delete_file", "path": "hello.txt"}),
    {"if": {"output_of": "apply_patch", "failed": True}, "then": [{"say": "It was gone."}], "else": [{"say": "wrong"}]},
    call("shell", {"commands": ["cat *.txt"]}),
    {"say": "Left: {{output_of:shell}}"},
)


@shows("openai-agents", "http", "`ShellTool`, `ApplyPatchTool`, `LocalShellTool`")
@shows("openai-agents", "create", "`ShellTool`, `ApplyPatchTool`, `LocalShellTool`")
@each_way
@streamed_or_not
def test_shell_and_apply_patch(server: Serving, transport: str, streamed: bool, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    agent: Agent[Any] = Agent(name="coder", model=NAME, tools=[ShellTool(executor=folder.shell), ApplyPatchTool(editor=folder)])
    result = drive(server, transport, streamed, agent, CODING)
    assert result.final_output == "Left: more"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["more.txt"]
    made = [item.raw_item for item in result.new_items if item.type == "tool_call_output_item"]
    shells = [item for item in made if item["type"] == "shell_call_output"]
    assert [chunk["stdout"] for chunk in shells[0]["output"]] == ["goodbye\nwörld", ""]
    assert shells[0]["output"][1]["outcome"] == {"type": "exit", "exit_code": 2}
    assert [item["status"] for item in made if item["type"] == "apply_patch_call_output"] == [*["completed"] * 4, "failed"]


@each_way
@streamed_or_not
def test_local_shell(server: Serving, transport: str, streamed: bool, tmp_path: Path) -> None:
    agent: Agent[Any] = Agent(name="coder", model=NAME, tools=[LocalShellTool(executor=Folder(tmp_path).local_shell)])
    action = {"type": "exec", "command": ["echo", "hi"], "env": {}}
    result = drive(server, transport, streamed, agent, program(call("local_shell", action), {"say": "{{output}}"}))
    assert result.final_output.strip() == "hi"


# ---- the rest


class Weather(BaseModel):
    city: str
    degrees: float


@shows("openai-agents", "http", "structured output")
@shows("openai-agents", "create", "structured output")
@each_way
@streamed_or_not
def test_structured_output(server: Serving, transport: str, streamed: bool) -> None:
    agent: Agent[Any] = Agent(name="weather", model=NAME, output_type=Weather)
    result = drive(server, transport, streamed, agent, program({"say": '{"city": "Graz", "degrees": 21.5}'}))
    assert result.final_output == Weather(city="Graz", degrees=21.5)


@shows("openai-agents", "http", "handoffs; agents as tools")
@shows("openai-agents", "create", "handoffs; agents as tools")
@each_way
@streamed_or_not
def test_handoffs_and_agents_as_tools(server: Serving, transport: str, streamed: bool) -> None:
    hands = Hands()
    second = summing(hands)
    helper: Agent[Any] = Agent(name="helper", model=NAME)
    as_tool = helper.as_tool("ask_helper", "Asks the helper.")
    first: Agent[Any] = Agent(name="first", model=NAME, handoffs=[second], tools=[as_tool])
    question = {"input": program({"say": "Six."})}
    steps = program(
        call("ask_helper", question),
        {"say": "The helper said {{output}}"},
        call("transfer_to_summing", {}),
        call("add", {"a": 3, "b": 3}),
        {"say": "And I say {{output}}."},
    )
    result = drive(server, transport, streamed, first, steps)
    assert result.last_agent is second
    assert result.final_output == "And I say 6."
    assert hands.ran == ["add 3+3"]
    said = [item.raw_item["output"] for item in result.new_items if item.type == "tool_call_output_item"]
    assert said == ["Six.", "6"]


@shows("openai-agents", "http", "`FileSearchTool`, hosted here")
@shows("openai-agents", "create", "`FileSearchTool`, hosted here")
@each_way
@streamed_or_not
def test_a_hosted_tool(server: Serving, transport: str, streamed: bool) -> None:
    tool = FileSearchTool(vector_store_ids=["files"], include_search_results=True)
    agent: Agent[Any] = Agent(name="searcher", model=NAME, tools=[tool])
    steps = program(call("file_search", {"query": "pedal"}), {"say": "It says: {{output}}"})
    result = drive(server, transport, streamed, agent, steps)
    assert "holds what sounds" in result.final_output


@shows("openai-agents", "http", "errors")
@shows("openai-agents", "create", "errors")
@each_way
@streamed_or_not
def test_errors(server: Serving, transport: str, streamed: bool) -> None:
    agent: Agent[Any] = Agent(name="hot", model=NAME, model_settings=ModelSettings(temperature=7))
    wanted = BadRequestError if transport == "http" else Exception
    with pytest.raises(wanted, match="temperature: must be from 0 to 2"):
        drive(server, transport, streamed, agent, "x")
