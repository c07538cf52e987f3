"""Calls of tools, shortly, for people who watch."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text


def arguments_shortly(arguments: Mapping[str, Any]) -> str:
    """The first one is what it is about."""
    first, *rest = arguments.items() or [("", "")]
    return ", ".join([str(first[1]), *(f"{name} {value}" for name, value in rest)])


def patch_lines(patch: str) -> list[Text]:
    """The files and the lines that go and come."""
    shown = []
    for line in patch.splitlines():
        if line.startswith(("*** Update File: ", "*** Add File: ")):
            shown.append(Text("  " + line.partition(": ")[2], "bold"))
        elif line.startswith(("+", "-")):
            shown.append(Text(f"  {line}", "green" if line[0] == "+" else "red"))
    return shown
