"""Patches: any edit that can be said as a patch is made by it, exactly; what does not fit changes nothing."""

import contextlib
import difflib
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.items import (
    ApplyPatchCall,
    ApplyPatchCallOutput,
    CustomToolCall,
    CustomToolCallOutput,
    PatchOperation,
)
from tools.local import ApplyPatch, Workspace
from tools.local.disk import commit
from tools.local.patch import PatchError, apply_hunks, parse_hunks, parse_patch

# ---- random edits


def diff_of(old: Sequence[str], new: Sequence[str], context: int) -> str:
    """The update that makes ``new`` of ``old``, with so many lines of context."""
    out: list[str] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(context):
        out.append("@@")
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                out += [f" {line}" for line in old[i1:i2]]
            else:
                out += [f"-{line}" for line in old[i1:i2]] + [f"+{line}" for line in new[j1:j2]]
        if group[-1][2] == len(old):
            out.append("*** End of File")
    return "\n".join(out)


any_line = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n"), max_size=8) | st.sampled_from(
    ["", " ", "x", "x ", "+x", "-x", "@@", "@@ x", "*** End Patch", "*** Update File: f", "\u2028", "a\x0cb"]
)
any_lines = st.lists(any_line, max_size=12)


def ended(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@given(any_lines, any_lines)
def test_round_trip_of_any_text_with_all_of_it_as_context(old: list[str], new: list[str]) -> None:
    if old == new or any(line.endswith("\r") for line in [*old, *new]):
        return
    hunks = parse_hunks(diff_of(old, new, 1000), "f")
    assert apply_hunks(ended(old), hunks, "f") == ended(new)


@st.composite
def edited(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """A file whose lines differ from one another, and an edit of it."""
    old = [f"{draw(st.sampled_from(['', '  ', 'ü ']))}line {number}" for number in range(draw(st.integers(0, 40)))]
    new = list(old)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(new)))
        until = draw(st.integers(at, min(len(new), at + 3)))
        new[at:until] = draw(st.lists(st.sampled_from(["new", "", "other", "  deep"]), max_size=3))
    return old, new


@given(edited(), st.integers(1, 3), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_round_trip_with_a_few_lines_of_context(
    edit: tuple[list[str], list[str]], context: int, last_line_ends: bool, end: str
) -> None:
    old, new = edit
    if old == new:
        return

    def whole(lines: list[str]) -> str:
        text = "".join(line + end for line in lines)
        return text if last_line_ends else text.removesuffix(end)

    if not old or (not last_line_ends and (len(old) < 3 or new == [""] or not new)):
        return  # with fewer than two line ends there is nothing that tells the file's habit
    expected = whole(new)
    assert apply_hunks(whole(old), parse_hunks(diff_of(old, new, context), "f"), "f") == expected
    crlf_patch = diff_of(old, new, context).replace("\n", "\r\n") + "\r\n"
    assert apply_hunks(whole(old), parse_hunks(crlf_patch, "f"), "f") == expected


Tree = dict[str, str]
NAMES = ["a.txt", "b.py", "dir/c", "dir/sub/d", "ü e"]


@st.composite
def patched(draw: st.DrawFn) -> tuple[Tree, Tree, list[str]]:
    """A tree, another one, and the sections of a patch that leads from the one to the other."""
    before: Tree = {name: ended(draw(any_lines)) for name in NAMES if draw(st.booleans())}
    after, sections = dict(before), []
    free = [name for name in [*NAMES, "moved/x", "y"] if name not in before]
    for name in draw(st.permutations(NAMES)):
        if name not in before:
            if name in free and draw(st.booleans()):
                free.remove(name)
                after[name] = ended(lines := draw(st.lists(any_line.filter(lambda line: not line.endswith("\r")))))
                sections.append("\n".join([f"*** Add File: {name}", *(f"+{line}" for line in lines)]))
            continue
        action = draw(st.sampled_from(["keep", "delete", "update", "move"]))
        if action == "delete":
            del after[name]
            sections.append(f"*** Delete File: {name}")
        if action in ("update", "move"):
            old = before[name].split("\n")[:-1]
            new = draw(any_lines)
            if new == old or any(line.endswith("\r") for line in [*old, *new]):
                continue
            target = free.pop() if action == "move" and free else None
            del after[name]
            after[target or name] = ended(new)
            move = [f"*** Move to: {target}"] if target else []
            sections.append("\n".join([f"*** Update File: {name}", *move, diff_of(old, new, 1000)]))
    return before, after, sections


def plant(root: Path, tree: Tree) -> None:
    for name, text in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())


def seen(root: Path) -> Tree:
    return {str(path.relative_to(root)): path.read_bytes().decode() for path in root.rglob("*") if path.is_file()}


def envelope(*sections: str) -> str:
    return "\n".join(["*** Begin Patch", *sections, "*** End Patch"]) + "\n"


async def patch(root: Path, text: str) -> str:
    return await ApplyPatch(Workspace(root)).run({"patch": text})


@given(patched())
@settings(max_examples=100, deadline=None)
def test_random_trees_round_trip(case: tuple[Tree, Tree, list[str]]) -> None:
    before, after, sections = case
    if not sections:
        return
    with tempfile.TemporaryDirectory() as name:
        plant(Path(name), before)
        assert trio.run(patch, Path(name), envelope(*sections)).startswith("done\n")
        assert seen(Path(name)) == after


BAD = [
    "*** Update File: none\n@@\n+x",
    "*** Delete File: none",
    "*** Add File: keep\n+x",
    "*** Add File: ../out\n+x",
    "*** Update File: keep\n@@\n-not there\n+x",
    "*** Update File: keep\n*** Move to: /tmp/out\n@@\n+x",
    "*** Add File: keep/below\n+x",
    "*** Update File: keep\nno sign",
]


@given(patched(), st.sampled_from(BAD), st.integers(0, 10))
@settings(max_examples=50, deadline=None)
def test_one_bad_section_and_nothing_changes(case: tuple[Tree, Tree, list[str]], bad: str, at: int) -> None:
    before, _, sections = case
    before = {**before, "keep": "kept\n"}
    sections.insert(min(at, len(sections)), bad)
    with tempfile.TemporaryDirectory() as name:
        plant(Path(name), before)
        folders = {path for path in Path(name).rglob("*") if path.is_dir()}
        assert trio.run(patch, Path(name), envelope(*sections)).startswith("error: ")
        assert seen(Path(name)) == before
        assert {path for path in Path(name).rglob("*") if path.is_dir()} == folders


@given(st.text(max_size=200) | st.lists(any_line | st.sampled_from(BAD), max_size=8).map(lambda s: envelope(*s)))
@settings(max_examples=200)
def test_any_text_parses_or_is_refused(text: str) -> None:
    with contextlib.suppress(PatchError):
        assert parse_patch(text)


# ---- finding the place


def applied(text: str, diff: str) -> str:
    return apply_hunks(text, parse_hunks(diff, "f"), "f")


TWICE = "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n"


def test_an_anchor_chooses_among_equal_places() -> None:
    change = "\n-        return 1\n+        return 2"
    assert applied(TWICE, "@@ class B:" + change) == TWICE[::-1].replace("1", "2", 1)[::-1]
    assert applied(TWICE, "@@ class B:\n@@ def f(self):" + change) == TWICE[::-1].replace("1", "2", 1)[::-1]
    assert applied(TWICE, "@@" + change) == TWICE.replace("1", "2", 1)
    assert applied(TWICE, "@@ -2,1 +2,1 @@ class B:" + change) == TWICE.replace("1", "2", 1)


def test_two_hunks_of_one_function_may_have_one_anchor() -> None:
    text = "def f():\n    a\n    b\n    c\n    d\n"
    assert applied(text, "@@ def f():\n-    a\n+    A\n@@ def f():\n-    c\n+    C") == "def f():\n    A\n    b\n    C\n    d\n"


def test_lines_without_context_go_after_the_anchor_or_to_the_end() -> None:
    assert applied("a\nb\n", "@@ a\n+new") == "a\nnew\nb\n"
    assert applied("a\nb\n", "@@\n+new") == "a\nb\nnew\n"
    assert applied("a\nb\n", "+new") == "a\nb\nnew\n"
    assert applied("", "@@\n+new") == "new\n"


def test_the_end_of_the_file_ties_a_hunk() -> None:
    assert applied("x\na\nx\n", "@@\n-x\n+y\n*** End of File") == "x\na\ny\n"
    with pytest.raises(PatchError, match="does not have these lines at its end"):
        applied("x\na\n", "@@\n-x\n+y\n*** End of File")


@pytest.mark.parametrize(
    ("line", "quoted"),
    [
        ("  deep  ", "  deep"),
        ("\tdeep", "deep"),
        ("say “hi” – now", 'say "hi" - now'),
        ("a\u00a0b", "a b"),
        ("deep", " deep "),
        ('a "b"', "a “b”"),
    ],
)
def test_misquoted_lines_are_found_and_not_rewritten(line: str, quoted: str) -> None:
    assert applied(f"{line}\nb\n", f"@@\n {quoted}\n-b\n+c") == f"{line}\nc\n"


def test_an_exact_place_is_better_than_an_earlier_inexact_one() -> None:
    assert applied("  x\nx\n", "@@\n-x\n+y") == "  x\ny\n"


def test_empty_lines_that_lost_their_space_and_separators() -> None:
    assert applied("a\n\nb\n", "@@\n a\n\n-b\n+c\n\n") == "a\n\nc\n"
    assert applied("a\nb\nc\n", "\n@@\n-a\n+A\n\n@@\n-c\n+C\n \n") == "A\nb\nC\n"


def test_the_end_of_the_last_line_and_crlf_are_kept() -> None:
    assert applied("a\nb", "@@\n-b\n+c") == "a\nc"
    assert applied("a\r\nb\r\n", "@@\n a\n-b\n+c") == "a\r\nc\r\n"
    assert applied("a\n", "@@\n-a") == ""


def test_errors_say_where_and_what() -> None:
    with pytest.raises(PatchError, match=r"f: hunk 2: the file does not have these lines after line 3:\na\nThey are at l"):
        applied("a\nb\nc\n", "@@\n-c\n+C\n@@\n-a\n+A")
    with pytest.raises(PatchError, match="f: hunk 1: no line '@@ nowhere' in the file"):
        applied("a\n", "@@ nowhere\n-a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with the line"),
        ("*** Begin Patch\n*** Add File: f\n+x", "ends with the line"),
        (envelope(), "the patch is empty"),
        (envelope("hello"), "line 2: expected"),
        (envelope("*** Add File: f", "x"), r"line 3: each line of the new file f begins with '\+', got 'x'"),
        (envelope("*** Add File:  "), "the path is missing|expected"),
        (envelope("*** Delete File: f", "", "+x"), "line 4: nothing may follow"),
        (envelope("*** Update File: f"), "the update of f has no hunks"),
        (envelope("*** Update File: f", "@@ x"), "hunk 1 of f has no lines"),
        (envelope("*** Update File: f", "@@", " a", "b"), "line 5: a line begins with"),
        (envelope("*** Update File: f", "@@", " a", "*** Rename: g"), "line 5: unknown marker"),
    ],
)
def test_malformed_envelopes_are_refused_with_the_line(text: str, message: str) -> None:
    with pytest.raises(PatchError, match=message):
        parse_patch(text)


# ---- the tool


@pytest.mark.trio
async def test_a_patch_of_all_kinds(tmp_path: Path) -> None:
    plant(tmp_path, {"old": "1\n2\n", "gone": "x\n", "edit": "a\nb\n"})
    (tmp_path / "old").chmod(0o755)
    said = await patch(
        tmp_path,
        envelope(
            "*** Add File: new/file",
            "+hello",
            "*** Update File: old",
            "*** Move to: new/name",
            "@@",
            "-1",
            "+one",
            "",
            "*** Delete File: gone",
            "*** Update File: edit",
            " a",
            "+between",
        ),
    )
    assert said == "done\nA new/file\nR old -> new/name\nD gone\nM edit"
    assert seen(tmp_path) == {"new/file": "hello\n", "new/name": "one\n2\n", "edit": "a\nbetween\nb\n"}
    assert stat.S_IMODE((tmp_path / "new/name").stat().st_mode) == 0o755


@pytest.mark.trio
async def test_sections_see_earlier_ones(tmp_path: Path) -> None:
    plant(tmp_path, {"f": "a\n", "g": "g\n"})
    said = await patch(
        tmp_path,
        envelope(
            "*** Delete File: f",
            "*** Add File: f",
            "+b",
            "*** Update File: f",
            "-b",
            "+c",
            "*** Update File: g",
            "*** Move to: h",
            "*** Add File: brief",
            "*** Delete File: brief",
        ),
    )
    assert said == "done\nD f\nA f\nM f\nR g -> h\nA brief\nD brief"
    assert seen(tmp_path) == {"f": "c\n", "h": "g\n"}
    gone = envelope("*** Delete File: f", "*** Update File: f", "-c")
    assert await patch(tmp_path, gone) == "error: f: deleted earlier in this patch"
    assert await patch(tmp_path, envelope("*** Add File: f", "+x")) == (
        "error: f: exists already; update it, or delete it first"
    )


@pytest.mark.trio
async def test_links_folders_and_binaries(tmp_path: Path) -> None:
    plant(tmp_path, {"real": "a\n", "folder/f": ""})
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "out").symlink_to("/etc/passwd")
    assert await patch(tmp_path, envelope("*** Update File: link", "-a", "+b")) == "done\nM link"
    assert (tmp_path / "real").read_text() == "b\n"
    assert (tmp_path / "link").is_symlink()
    assert await patch(tmp_path, envelope("*** Delete File: link", "*** Delete File: out")) == "done\nD link\nD out"
    assert (await patch(tmp_path, envelope("*** Delete File: folder"))) == "error: folder: a folder, not a file"
    assert "not UTF-8" in await patch(tmp_path, envelope("*** Update File: binary", "-a"))
    assert await patch(tmp_path, envelope("*** Delete File: binary")) == "done\nD binary"
    assert sorted(os.listdir(tmp_path)) == ["folder", "real"]


@pytest.mark.trio
async def test_a_patch_call_holds_one_operation(tmp_path: Path) -> None:
    tool = ApplyPatch(Workspace(tmp_path), form="apply_patch")
    assert tool.spec.to_wire() == {"type": "apply_patch"}

    async def operate(operation: PatchOperation) -> tuple[str, str | None]:
        item = (await tool.call(ApplyPatchCall(call_id="c", operation=operation))).item
        assert isinstance(item, ApplyPatchCallOutput)
        assert item.call_id == "c"
        return item.status, item.output

    create = PatchOperation(type="create_file", path="d/f", diff="+a\n+b\n")
    assert await operate(create) == ("completed", "done\nA d/f")
    assert await operate(create) == ("failed", "error: d/f: exists already; update it, or delete it first")
    update = PatchOperation(type="update_file", path="d/f", diff="@@\n a\n-b\n+c\n")
    assert await operate(update) == ("completed", "done\nM d/f")
    assert (tmp_path / "d/f").read_text() == "a\nc\n"
    assert (await operate(update))[0] == "failed"
    assert await operate(PatchOperation(type="update_file", path="d/f")) == (
        "failed",
        "error: the update of d/f has no hunks",
    )
    assert await operate(PatchOperation(type="delete_file", path="d/f")) == ("completed", "done\nD d/f")
    assert await operate(PatchOperation(type="delete_file", path="d/f")) == ("failed", "error: d/f: no such file")


@pytest.mark.trio
async def test_a_custom_call_holds_the_envelope(tmp_path: Path) -> None:
    call = CustomToolCall(call_id="c", name="apply_patch", input=envelope("*** Add File: f", "+x"))
    item = (await ApplyPatch(Workspace(tmp_path)).call(call)).item
    assert item == CustomToolCallOutput(call_id="c", output="done\nA f")
    assert (tmp_path / "f").read_text() == "x\n"


@pytest.mark.trio
async def test_parallel_patches_lose_no_edit(tmp_path: Path) -> None:
    plant(tmp_path, {"f": ended([f"line {number}" for number in range(20)])})
    tool = ApplyPatch(Workspace(tmp_path))
    async with trio.open_nursery() as nursery:
        for number in range(20):
            change = envelope("*** Update File: f", f"-line {number}", f"+done {number}")
            nursery.start_soon(tool.run, {"patch": change})
    assert (tmp_path / "f").read_text() == ended([f"done {number}" for number in range(20)])


# ---- all or nothing on the disk


def test_commit_undoes_what_it_did_when_a_later_file_fails(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "a", "b": "b", "folder/in": "x"})
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(OSError, match="directory"):
        commit(
            {
                tmp_path / "a": b"changed",
                tmp_path / "b": None,
                tmp_path / "link": None,
                tmp_path / "made/for/it": b"new",
                tmp_path / "folder": b"a folder can't be replaced",
            }
        )
    assert seen(tmp_path) == {"a": "a", "b": "b", "folder/in": "x", "link": "a"}
    assert (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "folder", "link"]
