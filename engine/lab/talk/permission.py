"""The tools of a conversation, in one folder, and the question before one of them changes something."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Literal

from attrs import define, field

from protocol.client import Frame
from tools.local import LocalTool, local_tools
from tools.registry import NATIVE

from ...client_tools import Toolbox

Choice = Literal["none", "read", "all"]
READING: Final = frozenset({"list_dir", "read_file"})
"""Those that change nothing."""

Verdict = Literal["yes", "no", "always"]
Ask = Callable[[Frame], Awaitable[Verdict]]


def name_of(call: Frame) -> str:
    """The tool that ``call`` is for."""
    return str(call.get("name") or NATIVE.get(call["type"], call["type"]))


def chosen(choice: Choice, folder: Path) -> dict[str, LocalTool]:
    """The tools that ``--tools`` asks for, confined to ``folder``; raises ``OSError`` if it isn't there."""
    tools = local_tools(folder)
    return {name: tool for name, tool in tools.items() if choice == "all" or (choice == "read" and name in READING)}


@define(eq=False)
class GuardedTools:
    """``conversation.Hands``: tools of which all that may change something need the word of ``ask``, or ``--yes``."""

    tools: dict[str, LocalTool]
    ask: Ask
    allowed: set[str] = field(factory=set)
    """The names of those that nobody is asked about."""
    _toolbox: Toolbox = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._toolbox = Toolbox(self.tools, ())
        self.allowed |= READING

    @property
    def definitions(self) -> list[Frame]:
        """As the model is told of them."""
        return self._toolbox.definitions

    def asks_first(self, call: Frame) -> bool:
        """Whether a person is asked; not about tools that there aren't."""
        return name_of(call) in self.tools and name_of(call) not in self.allowed

    async def allows(self, call: Frame) -> bool:
        """Whether ``call`` may run, asked if need be."""
        verdict = await self.ask(call) if self.asks_first(call) else "yes"
        if verdict == "always":
            self.allowed.add(name_of(call))
        return verdict != "no"

    async def answer(self, call: Frame) -> Frame:
        """Run ``call``; its output. Cancelled, the tool has left no process behind."""
        return await self._toolbox.answer(call)
