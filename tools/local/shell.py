"""The tool that runs shell commands, for the three kinds of call that models make.

The folder confines where a command begins, not what it does: a command runs with all rights of the agent's process.
Who needs more runs the agent in a container.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import trio

from protocol.items import (
    CallItem,
    LocalShellAction,
    LocalShellCall,
    OutputOfCall,
    ShellAction,
    ShellCall,
    ShellCallOutput,
    ShellOutcome,
    ShellOutputChunk,
)
from tools.spec import ToolSpec

from .base import LocalTool, answer, parameters
from .process import Ended, run_program
from .workspace import Failure, Workspace

DEFAULT_SECONDS: Final = 30.0
"""A command's time unless asked for otherwise: most take a second, and a stuck one should not cost minutes."""

MAX_SECONDS: Final = 600.0
"""What may be asked for: a long test run."""

MIN_SECONDS: Final = 0.001
"""A native call may ask for no time at all; it gets as much as makes a time limit."""

OUTPUT_BYTES: Final = 64 * 1024
"""Kept of a command's output, about 16,000 tokens: its beginning and its end, where errors are."""


class Shell(LocalTool):
    """Runs a command. ``form`` is the type under which the model is told of it; calls of each kind are answered.

    ``env`` is the environment of the commands; None: the agent's own, keys and all.
    """

    free_text = "command"

    def __init__(
        self,
        workspace: Workspace,
        *,
        form: Literal["function", "custom", "shell", "local_shell"] = "function",
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            workspace,
            ToolSpec(
                name="shell",
                type=form,
                description=(
                    "Runs a shell command in the working folder and gives its exit code and its output. "
                    "It has no input, and what it leaves in the background ends with it."
                ),
                parameters=parameters(
                    required=("command",),
                    command={"type": "string", "description": "The command, for bash (or sh where there is none)."},
                    workdir={"type": "string", "default": ".", "description": "Where to run it; a relative path."},
                    timeout_seconds={
                        "type": "number",
                        "minimum": MIN_SECONDS,
                        "maximum": MAX_SECONDS,
                        "default": DEFAULT_SECONDS,
                        "description": "When to end it.",
                    },
                ),
            ),
        )
        self._env = env

    async def work(self, arguments: Mapping[str, Any]) -> str:
        """The exit code and the output, standard error included. Cancellation ends the command and its processes."""
        seconds = arguments["timeout_seconds"]
        ended = await self._run(_shell(arguments["command"]), arguments["workdir"], seconds, merged=True)
        return _told(ended, seconds)

    async def answer_native(self, call: CallItem) -> OutputOfCall:
        """Answer a ``shell_call``, its commands one after the other, or a ``local_shell_call``."""
        if isinstance(call, ShellCall):
            await trio.lowlevel.checkpoint()  # there may be no command
            chunks = [await self._chunk(command, call.action) for command in call.action.commands]
            return ShellCallOutput(call_id=call.call_id, output=tuple(chunks), max_output_length=call.action.max_output_length)
        if isinstance(call, LocalShellCall):
            return answer(call, await self._local(call.action), failed=False)
        return await super().answer_native(call)

    async def _chunk(self, command: str, action: ShellAction) -> ShellOutputChunk:
        length = OUTPUT_BYTES if action.max_output_length is None else max(0, action.max_output_length)
        seconds = _seconds(action.timeout_ms)
        ended = await self._run(_shell(command), ".", seconds, merged=False, output_bytes=min(length, OUTPUT_BYTES))
        outcome = (
            ShellOutcome(type="timeout") if ended.exit_code is None else ShellOutcome(type="exit", exit_code=ended.exit_code)
        )
        return ShellOutputChunk(stdout=ended.stdout, stderr=ended.stderr, outcome=outcome)

    async def _local(self, action: LocalShellAction) -> str:
        if not action.command:
            raise Failure("the command is empty")
        if action.user:
            raise Failure("commands run as the agent's own user; leave 'user' out")
        if bad := [name for name, value in action.env.items() if not isinstance(value, str)]:
            raise Failure(f"env: the value of {bad[0]} is no string")
        env = {**(os.environ if self._env is None else self._env), **action.env}
        seconds = _seconds(action.timeout_ms)
        return _told(await self._run(action.command, action.working_directory or ".", seconds, merged=True, env=env), seconds)

    async def _run(
        self,
        argv: Sequence[str],
        workdir: str,
        seconds: float,
        *,
        merged: bool,
        output_bytes: int = OUTPUT_BYTES,
        env: Mapping[str, str] | None = None,
    ) -> Ended:
        if any("\0" in text for text in (*argv, *(env or {}).values(), *(env or {}))):
            raise Failure("a command can't contain a NUL character")
        cwd = await trio.to_thread.run_sync(self.workspace.folder, workdir)
        env = self._env if env is None else env
        return await run_program(argv, cwd=cwd, env=env, seconds=seconds, output_bytes=output_bytes, merged=merged)


def _shell(command: str) -> tuple[str, str, str]:
    return (shutil.which("bash") or "/bin/sh", "-c", command)


def _seconds(timeout_ms: int | None) -> float:
    return DEFAULT_SECONDS if timeout_ms is None else min(max(timeout_ms / 1000, MIN_SECONDS), MAX_SECONDS)


def _told(ended: Ended, seconds: float) -> str:
    """What the model reads."""
    if ended.exit_code is None:
        first = f"timed out after {seconds:g} s and was ended"
    else:
        first = f"exit code {ended.exit_code}"
        if ended.left_behind:
            first += "; what it left in the background was ended"
    return f"{first}\n{ended.stdout or '[no output]'}"
