"""Walking a folder without leaving it.

Directories are opened relative to their parents and links are never followed, so that neither a link nor a rename in
the middle of a walk leads outside. A link to a file inside loses nothing by this: the file is found under its own name.
Hidden files and folders (``.git``, ``.venv``) are left out, and so is what programs generate beside the sources.
"""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Final

from attrs import frozen

SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__"})
"""Folders of generated or foreign files that are rarely what is looked for and often most of the files."""

MAX_DEPTH: Final = 64
"""Folders deeper than this are left out: the walk holds one descriptor per level."""


@frozen
class Entry:
    """A regular file. ``directory`` is an open descriptor of its folder, good until the walk goes on."""

    path: bytes
    """Relative to the folder, parts separated by ``/``."""
    status: os.stat_result
    directory: int

    @property
    def stamp(self) -> str:
        """Changes with the file's content, but for changes within one tick of the file system's clock."""
        status = self.status
        return f"{status.st_mtime_ns}.{status.st_ctime_ns}.{status.st_size}.{status.st_ino}"

    def read(self, limit: int) -> bytes | None:
        """The content, or None if that is longer than ``limit`` bytes. Raises ``OSError``, also if it is now a link."""
        if self.status.st_size > limit:
            return None
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(os.path.basename(self.path), flags, dir_fd=self.directory), "rb") as file:
            data = file.read(limit + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
        return data if len(data) <= limit else None


def walk(folder: str) -> Generator[Entry, None, None]:
    """The files below ``folder``, in the order of their names, folders after files; what can't be read is left out.

    Raises ``OSError`` when the folder itself can't be read.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield from _walk(descriptor, b"", 0)
    finally:
        os.close(descriptor)


def _walk(directory: int, prefix: bytes, depth: int) -> Iterator[Entry]:
    folders = []
    for name, status in _listed(directory):
        if stat.S_ISDIR(status.st_mode) and name not in SKIPPED_FOLDERS:
            folders.append(name)
        elif stat.S_ISREG(status.st_mode):
            yield Entry(prefix + os.fsencode(name), status, directory)
    for name in folders if depth < MAX_DEPTH else ():
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=directory)
        except OSError:
            continue
        try:
            yield from _walk(descriptor, prefix + os.fsencode(name) + b"/", depth + 1)
        finally:
            os.close(descriptor)


def _listed(directory: int) -> list[tuple[str, os.stat_result]]:
    """The names in a directory that are not hidden, sorted, with what they are."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                with suppress(OSError):  # it was removed since
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
    return sorted(found, key=lambda one: one[0])
