"""The folder that an agent works in: names are resolved inside it, and nothing else is touched.

Theory. A path is resolved as the system would, links and ``..`` included, and only then compared with the root. So a
link inside the folder may be followed, but not out of it. This guards against a model's mistakes and against files
that came from strangers; it is no sandbox against a program that swaps links while we look.

All functions here block on the disk for a moment: call them in a thread.
"""

import os
import stat
from pathlib import Path
from threading import Lock
from typing import Final

from attrs import field, frozen

FILE_BYTES: Final = 8 * 1024 * 1024
"""Files up to this size are read into memory; source files are hardly ever a tenth of it."""


class Failure(Exception):
    """An expected failure: its message is for the model to read. It changed nothing."""


def _real_folder(path: str | os.PathLike[str]) -> Path:
    real = Path(path).resolve(strict=True)
    if not real.is_dir():
        raise NotADirectoryError(f"not a folder: {real}")
    return real


@frozen
class Workspace:
    """The folder ``root``; raises ``OSError`` when there is no such folder."""

    root: Path = field(converter=_real_folder)
    writing: Lock = field(factory=Lock, init=False, eq=False, repr=False)
    """Held (in a thread) from reading a file to writing what was made of it, so that parallel calls lose no edit."""

    def resolve(self, path: str) -> Path:
        """Where ``path`` leads, links followed; it need not exist. Raises ``Failure`` when that is outside."""
        return self._inside(path, Path(os.path.realpath(self._joined(path))))

    def locate(self, path: str) -> Path:
        """The entry called ``path``; when it is a link, the link itself. Raises ``Failure`` when it is outside."""
        joined = self._joined(path)
        parent, name = os.path.split(joined)
        if name in ("", ".", ".."):
            return self.resolve(path)
        return self._inside(path, Path(os.path.realpath(parent), name))

    def folder(self, path: str) -> Path:
        """The existing folder ``path``; raises ``Failure``."""
        found = self.resolve(path)
        if not found.is_dir():
            raise Failure(f"{path}: {'not a folder' if found.exists() else 'no such folder'}")
        return found

    def read_text(self, path: str) -> str:
        """The text of the file ``path``, byte for byte; raises ``Failure`` when it is no UTF-8 text, or too large."""
        data = _read_bytes(path, self.resolve(path))
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Failure(f"{path}: not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x})") from None

    def name(self, path: Path) -> str:
        """``path`` as seen from the root, for messages."""
        return printable(os.path.relpath(path, self.root))

    def _joined(self, path: str) -> str:
        if not path:
            raise Failure("the path is empty; '.' is the working folder")
        if "\0" in path:
            raise Failure(f"{printable(path)}: a path can't contain a NUL character")
        return os.path.join(self.root, path)

    def _inside(self, path: str, real: Path) -> Path:
        if not real.is_relative_to(self.root):
            raise Failure(f"{printable(path)}: outside of the working folder; use a path relative to it")
        return real


def printable(name: str) -> str:
    """A file name fit for one line of UTF-8: control characters and broken bytes are escaped."""
    text = os.fsencode(name).decode(errors="backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _read_bytes(shown: str, path: Path) -> bytes:
    # O_NONBLOCK: opening a named pipe would wait for a writer, for ever.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Failure(f"{shown}: no such file") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise Failure(f"{shown}: {'a folder, not a file' if stat.S_ISDIR(found.st_mode) else 'not a regular file'}")
    with open(descriptor, "rb") as file:
        data = file.read(FILE_BYTES + 1)
    if len(data) > FILE_BYTES:
        raise Failure(f"{shown}: too large ({found.st_size} bytes; the limit is {FILE_BYTES})")
    return data
