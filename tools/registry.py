"""Tools by name."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

from protocol.items import CallItem, CustomToolCall, FunctionCall

from .spec import ToolSpec


class HasSpec(Protocol):
    """A ``Tool`` or a ``HostedTool``."""

    @property
    def spec(self) -> ToolSpec: ...


T = TypeVar("T", bound=HasSpec)

NATIVE: Final = {"shell_call": "shell", "local_shell_call": "shell", "apply_patch_call": "apply_patch"}
"""The name of the tool that answers each kind of call that bears no name."""


class Registry(Mapping[str, T], Generic[T]):
    """A mapping of names to tools that never changes; raises ``ValueError`` when two have one name."""

    def __init__(self, tools: Iterable[T] = ()) -> None:
        by_name: dict[str, T] = {}
        for tool in tools:
            name = tool.spec.name
            if name in by_name:
                raise ValueError(f"two tools are called {name!r}: {by_name[name]!r} and {tool!r}")
            by_name[name] = tool
        self._by_name = by_name

    def __getitem__(self, name: str) -> T:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        return f"Registry({list(self._by_name.values())!r})"

    def add(self, *tools: T) -> "Registry[T]":
        """A registry with these tools, too; raises ``ValueError`` when one has a name that is taken."""
        return Registry([*self._by_name.values(), *tools])

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told, in the order of the tools."""
        return tuple(tool.spec for tool in self._by_name.values())

    def tool_for(self, call: CallItem) -> T | None:
        """The tool that ``call`` is for: by its name, or by its kind."""
        name = call.name if isinstance(call, FunctionCall | CustomToolCall) else NATIVE.get(call.type)
        return None if name is None else self._by_name.get(name)
