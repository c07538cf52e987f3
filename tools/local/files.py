"""Reading, writing and listing files of the working folder."""

import heapq
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import trio

from tools.spec import ToolSpec

from .base import LocalTool, parameters
from .disk import commit
from .workspace import FILE_BYTES, Failure, Workspace, printable

READ_LINES: Final = 2_000
"""Lines of one ``read_file`` unless asked for otherwise: nearly every source file whole."""

READ_BYTES: Final = 64 * 1024
"""Bytes of one ``read_file``, about 16,000 tokens: what a model should take in at once."""

LIST_ENTRIES: Final = 500
"""Entries of one ``list_dir``; a longer list tells a model little."""

LIST_DEPTH: Final = 8
"""Levels of one ``list_dir``, so that a chain of folders can't go on for ever."""

CLOSED_FOLDERS: Final = frozenset({".git"})
"""Listed, but never looked into: their thousands of entries would push out what matters."""


class ReadFile(LocalTool):
    """Gives a text file's lines as they are."""

    def __init__(self, workspace: Workspace) -> None:
        lines = {"type": "integer", "minimum": 1}
        super().__init__(
            workspace,
            ToolSpec(
                name="read_file",
                description="Reads a UTF-8 text file of the working folder. Long files are given in parts.",
                parameters=parameters(
                    required=("path",),
                    path={"type": "string", "description": "Relative to the working folder."},
                    offset={**lines, "default": 1, "description": "The first line to read; lines count from 1."},
                    limit={**lines, "default": READ_LINES, "description": "How many lines to read at most."},
                ),
            ),
        )

    async def work(self, arguments: Mapping[str, Any]) -> str:
        """The lines, and where to read on when there are more. Cancellation waits for the read that is under way."""
        path, offset, limit = arguments["path"], arguments["offset"], arguments["limit"]
        text = await trio.to_thread.run_sync(self.workspace.read_text, path)
        return _excerpt(path, text, offset, limit) if text else "[the file is empty]"


def _excerpt(path: str, text: str, offset: int, limit: int) -> str:
    lines = text.removesuffix("\n").split("\n")
    if offset > len(lines):
        raise Failure(f"{path}: offset {offset} is beyond the end; the file has {len(lines)} lines")
    taken: list[str] = []
    room = READ_BYTES
    for line in lines[offset - 1 : offset - 1 + limit]:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        taken.append(line)
    if not taken:
        whole = lines[offset - 1].encode()
        cut = whole[:READ_BYTES].decode(errors="ignore")
        return f"{cut}\n[line {offset} has {len(whole)} bytes; the rest of it is left out]"
    last = offset - 1 + len(taken)
    if last == len(lines):
        return "\n".join(taken) + ("\n" if text.endswith("\n") else "")
    return "\n".join(taken) + f"\n[lines {offset} to {last} of {len(lines)}; read on with offset {last + 1}]"


class WriteFile(LocalTool):
    """Writes a whole file."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(
            workspace,
            ToolSpec(
                name="write_file",
                description="Writes a text file of the working folder, whole. Missing folders are made.",
                parameters=parameters(
                    required=("path", "content"),
                    path={"type": "string", "description": "Relative to the working folder."},
                    content={"type": "string", "description": "The whole new content."},
                ),
            ),
        )

    async def work(self, arguments: Mapping[str, Any]) -> str:
        """Says what was written. Cancellation leaves the file as it was, or as it was to be."""
        return await trio.to_thread.run_sync(self._write, arguments["path"], arguments["content"].encode())

    def _write(self, path: str, data: bytes) -> str:
        if len(data) > FILE_BYTES:
            raise Failure(f"{path}: the content is too large ({len(data)} bytes; the limit is {FILE_BYTES})")
        with self.workspace.writing:
            target = self.workspace.resolve(path)
            existed = target.exists()
            if existed and not target.is_file():
                raise Failure(f"{path}: {'a folder' if target.is_dir() else 'not a regular file'}, can't be written")
            commit({target: data})
        return f"{'wrote' if existed else 'created'} {self.workspace.name(target)} ({len(data)} bytes)"


class ListDir(LocalTool):
    """Lists a folder, as deep as asked."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(
            workspace,
            ToolSpec(
                name="list_dir",
                description="Lists a folder of the working folder, sorted, a path a line; folders end with /.",
                parameters=parameters(
                    required=(),
                    path={"type": "string", "default": ".", "description": "Relative to the working folder."},
                    depth={
                        "type": "integer",
                        "minimum": 1,
                        "maximum": LIST_DEPTH,
                        "default": 1,
                        "description": "How many levels to list.",
                    },
                ),
            ),
        )

    async def work(self, arguments: Mapping[str, Any]) -> str:
        """The entries, and a note when there are more. Cancellation waits for the listing that is under way."""
        return await trio.to_thread.run_sync(self._list, arguments["path"], arguments["depth"])

    def _list(self, path: str, depth: int) -> str:
        lines: list[str] = []
        for line in _entries(self.workspace.folder(path), "", depth):
            if len(lines) == LIST_ENTRIES:
                lines.append(f"[only the first {LIST_ENTRIES} entries are listed]")
                break
            lines.append(line)
        return "\n".join(lines) or "[the folder is empty]"


def _entries(folder: Path, prefix: str, depth: int) -> Iterator[str]:
    """What is in ``folder``, each folder followed by what is in it. Links are named, not followed."""
    try:
        with os.scandir(folder) as found:
            # One more than is listed, so that the note about more can be made; a bound on memory, whatever the folder.
            entries = heapq.nsmallest(LIST_ENTRIES + 1, found, key=lambda entry: entry.name)
    except OSError as error:
        if not prefix:
            raise
        yield f"{prefix} [{(error.strerror or 'unreadable').lower()}]"
        return
    for entry in entries:
        shown = prefix + printable(entry.name)
        if entry.is_symlink():
            yield f"{shown} -> {printable(os.readlink(entry.path))}"
        elif entry.is_dir(follow_symlinks=False):
            yield shown + "/"
            if depth > 1 and entry.name not in CLOSED_FOLDERS:
                yield from _entries(Path(entry.path), shown + "/", depth - 1)
        else:
            yield shown if entry.is_file(follow_symlinks=False) else f"{shown} [not a regular file]"
