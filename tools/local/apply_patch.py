"""The tool that edits files by patches; ``patch`` has the format, ``disk`` the all-or-nothing.

Plan. All sections are applied to an overlay over the folder, in memory; only when each has found its place are the
changes written, together. Sections see what earlier ones did, so that a file may be deleted and added anew.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import trio
from attrs import field, frozen

from protocol.items import ApplyPatchCall, CallItem, OutputOfCall, PatchOperation
from tools.spec import ToolSpec

from .base import LocalTool, answer, parameters
from .disk import commit
from .patch import (
    AddFile,
    DeleteFile,
    PatchError,
    Section,
    UpdateFile,
    apply_hunks,
    parse_hunks,
    parse_new_file,
    parse_patch,
)
from .workspace import Workspace, printable

DESCRIPTION: Final = """Edits files of the working folder. The patch is applied whole, or not at all. Its form:
*** Begin Patch
*** Add File: path
+each line of the new file
*** Update File: path
*** Move to: new path (optional)
@@ optional: a line before the place, such as a function's first
 a line that stays (give about three around a change)
-a line that goes
+a line that comes
*** Delete File: path
*** End Patch"""


class ApplyPatch(LocalTool):
    """Applies a patch. ``form`` is the type under which the model is told of it; calls of each kind are answered."""

    free_text = "patch"

    def __init__(self, workspace: Workspace, *, form: Literal["function", "custom", "apply_patch"] = "function") -> None:
        super().__init__(
            workspace,
            ToolSpec(
                name="apply_patch",
                type=form,
                description=DESCRIPTION,
                parameters=parameters(
                    required=("patch",), patch={"type": "string", "description": "The whole patch, with its envelope."}
                ),
            ),
        )

    async def work(self, arguments: Mapping[str, Any]) -> str:
        """Says which files were added (A), modified (M), deleted (D) and renamed (R).

        Cancellation leaves all of the patch applied, or nothing.
        """
        return await trio.to_thread.run_sync(self._apply, parse_patch(arguments["patch"]))

    async def answer_native(self, call: CallItem) -> OutputOfCall:
        """Answer an ``apply_patch_call``, which holds one operation."""
        if not isinstance(call, ApplyPatchCall):
            return await super().answer_native(call)
        return answer(call, await trio.to_thread.run_sync(self._operate, call.operation), failed=False)

    def _operate(self, operation: PatchOperation) -> str:
        path, diff = operation.path, operation.diff or ""
        if operation.type == "create_file":
            return self._apply([AddFile(path, parse_new_file(diff, path))])
        if operation.type == "delete_file":
            return self._apply([DeleteFile(path)])
        return self._apply([UpdateFile(path, parse_hunks(diff, path))])

    def _apply(self, sections: Sequence[Section]) -> str:
        with self.workspace.writing:
            overlay = _Overlay(self.workspace)
            done = [overlay.apply(section) for section in sections]
            commit({path: None if text is None else text.encode() for path, text in overlay.texts.items()}, overlay.like)
        return "\n".join(["done", *done])


@frozen
class _Overlay:
    """The folder as it will be."""

    workspace: Workspace
    texts: dict[Path, str | None] = field(factory=dict)
    """What changed, by real path; None is deleted."""
    like: dict[Path, Path] = field(factory=dict)
    """Of a renamed file, where it comes from: it keeps its mode."""

    def apply(self, section: Section) -> str:
        """Take in one section, and say what it did; raises ``Failure``."""
        if isinstance(section, AddFile):
            self._create(section.path, section.content)
            return f"A {printable(section.path)}"
        if isinstance(section, DeleteFile):
            self._delete(section.path)
            return f"D {printable(section.path)}"
        text = apply_hunks(self._text(section.path), section.hunks, section.path)
        if section.move_to is None:
            self.texts[self._key(section.path)] = text
            return f"M {printable(section.path)}"
        source = self._key(section.path)
        self._delete(section.path)
        self.like[self._create(section.move_to, text)] = self.like.get(source, source)
        return f"R {printable(section.path)} -> {printable(section.move_to)}"

    def _key(self, path: str) -> Path:
        # A link that this patch deleted leads nowhere any more.
        entry = self.workspace.locate(path)
        return entry if entry in self.texts else self.workspace.resolve(path)

    def _text(self, path: str) -> str:
        key = self._key(path)
        if key not in self.texts:
            return self.workspace.read_text(path)
        if (text := self.texts[key]) is None:
            raise PatchError(f"{path}: deleted earlier in this patch")
        return text

    def _exists(self, key: Path) -> bool:
        return self.texts[key] is not None if key in self.texts else os.path.lexists(key)

    def _create(self, path: str, text: str) -> Path:
        key = self._key(path)
        if self._exists(key):
            raise PatchError(f"{path}: exists already; update it, or delete it first")
        self.texts[key] = text
        return key

    def _delete(self, path: str) -> None:
        key = self.workspace.locate(path)
        if not self._exists(key):
            raise PatchError(f"{path}: no such file")
        if key.is_dir() and not key.is_symlink():
            raise PatchError(f"{path}: a folder, not a file")
        if os.path.lexists(key):
            self.texts[key] = None
        else:
            del self.texts[key]
