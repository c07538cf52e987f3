"""Tools that an agent runs in its own process, all in one working folder.

An engine client takes them as functions: ``{name: tool.run for name, tool in local_tools("folder").items()}``.
"""

import os

from tools.registry import Registry

from .apply_patch import ApplyPatch
from .base import LocalTool
from .files import ListDir, ReadFile, WriteFile
from .shell import Shell
from .workspace import Failure, Workspace

__all__ = [
    "ApplyPatch",
    "Failure",
    "ListDir",
    "LocalTool",
    "ReadFile",
    "Shell",
    "Workspace",
    "WriteFile",
    "local_tools",
]


def local_tools(workspace: Workspace | str | os.PathLike[str]) -> Registry[LocalTool]:
    """All local tools, for a folder that exists; raises ``OSError`` when it does not."""
    place = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    tools: list[LocalTool] = [Shell(place), ReadFile(place), WriteFile(place), ApplyPatch(place), ListDir(place)]
    return Registry(tools)
