"""Changes files so that either all of a change is seen, or none of it.

Plan. New contents are written beside their targets first, and the old files are copied; both can fail (a full disk, a
missing right) and neither is seen. Then come renames only, each of which the system does whole; when one fails, those
before it are taken back. A crash of the whole process in between may leave some changes done, and files named
``.sostenuto-*``. These functions block: call them in a thread, which also keeps cancellation from cutting them in
two.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType


def commit(changes: Mapping[Path, bytes | None], like: Mapping[Path, Path] = MappingProxyType({})) -> None:
    """Give each file its new contents, or delete it where they are None. Missing folders are made.
    A changed file keeps its mode; ``like`` names, for a new one, the file whose mode it takes.

    Raises ``OSError``, and then nothing has changed.
    """
    with ExitStack() as cleanup, ExitStack() as undo:
        staged = {
            target: _stage(target, data, like.get(target, target), undo) for target, data in changes.items() if data is not None
        }
        for target in changes:
            _prepare_undo(target, cleanup, undo)
            if target in staged:
                os.replace(staged[target], target)
            else:
                target.unlink()
        undo.pop_all()


def _stage(target: Path, data: bytes, like: Path, undo: ExitStack) -> Path:
    for folder in reversed([target.parent, *target.parent.parents]):
        if not folder.exists():
            folder.mkdir()
            undo.callback(folder.rmdir)
    staged = _beside(target)
    undo.callback(staged.unlink, missing_ok=True)
    # 0o666 without the umask's bits is what any program would give a new file.
    with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as file:
        file.write(data)
        if like.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(like.stat().st_mode))
    return staged


def _prepare_undo(target: Path, cleanup: ExitStack, undo: ExitStack) -> None:
    if not os.path.lexists(target):
        undo.callback(target.unlink, missing_ok=True)
        return
    backup = _beside(target)
    cleanup.callback(backup.unlink, missing_ok=True)
    shutil.copy2(target, backup, follow_symlinks=False)
    undo.callback(os.replace, backup, target)


def _beside(target: Path) -> Path:
    return target.with_name(f".sostenuto-{secrets.token_hex(8)}")
