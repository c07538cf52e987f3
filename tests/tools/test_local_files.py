"""read_file, write_file and list_dir on real files; and how arguments are checked, for all tools."""

import os
import stat
import tempfile
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
    FunctionCall,
    FunctionCallOutput,
    PatchOperation,
    ShellAction,
    ShellCall,
    ShellCallOutput,
)
from tools.local import LocalTool, local_tools
from tools.local.files import LIST_ENTRIES, READ_BYTES
from tools.local.workspace import FILE_BYTES
from tools.registry import Registry


@pytest.fixture
def tools(tmp_path: Path) -> Registry[LocalTool]:
    return local_tools(tmp_path)


async def say(tool: LocalTool, arguments: str) -> str:
    """What a function call with these arguments is answered."""
    item = (await tool.call(FunctionCall(call_id="c1", name=tool.spec.name, arguments=arguments))).item
    assert isinstance(item, FunctionCallOutput)
    assert item.call_id == "c1"
    assert isinstance(item.output, str)
    return item.output


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{", "error: the arguments are not valid JSON"),
        ('{"path": "\\ud800"}', "error: the arguments are not valid JSON"),
        ("[]", "error: the arguments must be an object with path, offset, limit; got a list"),
        ("null", "error: the arguments must be an object with path, offset, limit; got null"),
        ("", "error: bad arguments: path: missing (string)"),
        ('{"path": null}', "error: bad arguments: path: missing (string)"),
        ('{"path": 1}', "error: bad arguments: path: expected a string, got 1"),
        ('{"path": "a", "offset": "1"}', "error: bad arguments: offset: expected an integer, got '1'"),
        ('{"path": "a", "offset": true}', "error: bad arguments: offset: expected an integer, got true"),
        ('{"path": "a", "limit": 0}', "error: bad arguments: limit: expected at least 1, got 0"),
        (
            '{"file": "a", "limit": {}}',
            "error: bad arguments: 'file': unknown; allowed: path, offset, limit; path: missing (string); "
            "limit: expected an integer, got an object",
        ),
    ],
)
@pytest.mark.trio
async def test_bad_arguments_are_told_to_the_model(tools: Registry[LocalTool], arguments: str, message: str) -> None:
    assert (await say(tools["read_file"], arguments)).startswith(message)


@pytest.mark.trio
async def test_a_surrogate_that_came_past_the_parser_is_refused(tools: Registry[LocalTool]) -> None:
    said = await tools["write_file"].run({"path": "a", "content": "\ud800", "\udfff": 1})
    assert "content: expected valid Unicode" in said
    said.encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["path", "offset", "limit", "content", "patch", "depth", "command", "workdir", "other"])


@given(st.sampled_from(["read_file", "write_file", "list_dir", "apply_patch"]), st.dictionaries(names, json_values))
@settings(max_examples=100, deadline=None)
def test_no_arguments_raise(name: str, arguments: dict[str, object]) -> None:
    async def main(place: Path) -> None:
        said = await local_tools(place)[name].run(arguments)
        assert said
        said.encode()

    with tempfile.TemporaryDirectory() as place:
        trio.run(main, Path(place))


@pytest.mark.trio
async def test_other_kinds_of_call_are_refused_in_their_own_kind(tools: Registry[LocalTool]) -> None:
    tool = tools["read_file"]
    custom = (await tool.call(CustomToolCall(call_id="c", name="read_file", input="a"))).item
    assert isinstance(custom, CustomToolCallOutput)
    assert "takes a function_call" in str(custom.output)
    shell = (await tool.call(ShellCall(call_id="c", action=ShellAction(commands=("true",))))).item
    assert isinstance(shell, ShellCallOutput)
    assert shell.output[0].outcome.exit_code == 1
    operation = PatchOperation(type="delete_file", path="a")
    patch = (await tool.call(ApplyPatchCall(call_id="c", operation=operation))).item
    assert isinstance(patch, ApplyPatchCallOutput)
    assert patch.status == "failed"


# ---- read_file


@pytest.mark.parametrize("text", ["a\n", "a", "a\r\nb\r\n", "\n", "ü\u2028b\x0cc\n\n", "\ufeffbom\n"])
@pytest.mark.trio
async def test_read_gives_a_file_as_it_is(tools: Registry[LocalTool], tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_bytes(text.encode())
    assert await say(tools["read_file"], '{"path": "f"}') == text


@pytest.mark.trio
async def test_read_in_parts(tools: Registry[LocalTool], tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n2\n3\n4\n")
    read = tools["read_file"]
    assert await read.run({"path": "f", "limit": 2}) == "1\n2\n[lines 1 to 2 of 4; read on with offset 3]"
    assert await read.run({"path": "f", "offset": 3, "limit": 2}) == "3\n4\n"
    assert await read.run({"path": "f", "offset": 5}) == "error: f: offset 5 is beyond the end; the file has 4 lines"


@pytest.mark.trio
async def test_read_has_a_limit_of_bytes(tools: Registry[LocalTool], tmp_path: Path) -> None:
    (tmp_path / "f").write_text("ü" * READ_BYTES + "\nshort\n" + "x" * (READ_BYTES - 4) + "\nlast\n" + "y" * 10)
    read = tools["read_file"]
    first = await read.run({"path": "f"})
    assert first.endswith(f"[line 1 has {2 * READ_BYTES} bytes; the rest of it is left out]")
    assert len(first.encode()) < READ_BYTES + 100
    assert "\ufffd" not in first
    assert (await read.run({"path": "f", "offset": 2})).endswith("\n[lines 2 to 2 of 5; read on with offset 3]")
    assert (await read.run({"path": "f", "offset": 4})) == "last\nyyyyyyyyyy"


@pytest.mark.trio
async def test_read_tells_why_not(tools: Registry[LocalTool], tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"ab\xff")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(FILE_BYTES + 1)
    os.mkfifo(tmp_path / "pipe")
    read = tools["read_file"]
    assert await read.run({"path": "empty"}) == "[the file is empty]"
    assert await read.run({"path": "binary"}) == "error: binary: not UTF-8 text (byte 2 is 0xff)"
    assert await read.run({"path": "none"}) == "error: none: no such file"
    assert await read.run({"path": "folder"}) == "error: folder: a folder, not a file"
    assert await read.run({"path": "pipe"}) == "error: pipe: not a regular file"
    assert (await read.run({"path": "large"})).startswith("error: large: too large")
    assert (await read.run({"path": "x" * 300})).endswith("file name too long")


# ---- write_file


@pytest.mark.trio
async def test_write_makes_folders_and_replaces(tools: Registry[LocalTool], tmp_path: Path) -> None:
    write = tools["write_file"]
    assert await write.run({"path": "a/b/c.txt", "content": "ü\r\n"}) == "created a/b/c.txt (4 bytes)"
    assert (tmp_path / "a/b/c.txt").read_bytes() == "ü\r\n".encode()
    assert await write.run({"path": "a/b/c.txt", "content": ""}) == "wrote a/b/c.txt (0 bytes)"
    assert (tmp_path / "a/b/c.txt").read_bytes() == b""
    assert os.listdir(tmp_path / "a/b") == ["c.txt"]


@pytest.mark.trio
async def test_write_keeps_mode_and_link(tools: Registry[LocalTool], tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("old")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "link").symlink_to("run.sh")
    await tools["write_file"].run({"path": "link", "content": "new"})
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "run.sh").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o755


@pytest.mark.trio
async def test_write_tells_why_not_and_leaves_nothing(tools: Registry[LocalTool], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    write = tools["write_file"]
    assert await write.run({"path": "folder", "content": ""}) == "error: folder: a folder, can't be written"
    assert await write.run({"path": "pipe", "content": ""}) == "error: pipe: not a regular file, can't be written"
    assert (await write.run({"path": "file/x/y", "content": ""})).startswith("error: ")
    assert (await write.run({"path": "new/" + "x" * 300, "content": ""})).startswith("error: ")
    assert (await write.run({"path": "f", "content": "x" * (FILE_BYTES + 1)})).startswith("error: f: the content is too")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "pipe"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.trio
async def test_parallel_writes_and_reads_see_whole_files(tools: Registry[LocalTool], tmp_path: Path) -> None:
    texts = {str(number) * 50_000 for number in range(8)}
    (tmp_path / "f").write_text("0" * 50_000)
    seen: list[str] = []

    async def read() -> None:
        seen.append(await tools["read_file"].run({"path": "f"}))

    async with trio.open_nursery() as nursery:
        for text in sorted(texts):
            nursery.start_soon(tools["write_file"].run, {"path": "f", "content": text})
            nursery.start_soon(read)
    assert set(seen) <= texts
    assert os.listdir(tmp_path) == ["f"]


# ---- list_dir


@pytest.mark.trio
async def test_list_is_sorted_and_marks_folders(tools: Registry[LocalTool], tmp_path: Path) -> None:
    (tmp_path / "src/deep/er").mkdir(parents=True)
    (tmp_path / ".git/objects").mkdir(parents=True)
    (tmp_path / "src/a.py").write_text("")
    (tmp_path / "new\nline").write_text("")
    (tmp_path / "link").symlink_to("src")
    (tmp_path / "out").symlink_to("/etc")
    listing = tools["list_dir"]
    assert await listing.run({}) == ".git/\nlink -> src\nnew\\nline\nout -> /etc\nsrc/"
    assert await listing.run({"path": "src", "depth": 8}) == "a.py\ndeep/\ndeep/er/"
    deep = await listing.run({"depth": 2})
    assert deep == ".git/\nlink -> src\nnew\\nline\nout -> /etc\nsrc/\nsrc/a.py\nsrc/deep/"
    assert await listing.run({"path": "link"}) == "a.py\ndeep/"
    assert await listing.run({"path": "src/deep/er"}) == "[the folder is empty]"


@pytest.mark.trio
async def test_list_tells_why_not(tools: Registry[LocalTool], tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    listing = tools["list_dir"]
    assert await listing.run({"path": "f"}) == "error: f: not a folder"
    assert await listing.run({"path": "none"}) == "error: none: no such folder"
    assert await listing.run({"depth": 9}) == "error: bad arguments: depth: expected at most 8, got 9"


@pytest.mark.trio
async def test_list_is_bounded(tools: Registry[LocalTool], tmp_path: Path) -> None:
    for number in range(LIST_ENTRIES + 7):
        (tmp_path / f"{number:04}").write_bytes(b"")
    lines = (await tools["list_dir"].run({})).split("\n")
    assert lines[:-1] == [f"{number:04}" for number in range(LIST_ENTRIES)]
    assert lines[-1] == f"[only the first {LIST_ENTRIES} entries are listed]"


@pytest.mark.trio
async def test_list_escapes_names_that_are_not_utf8(tools: Registry[LocalTool], tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff")).write_text("")
    assert await tools["list_dir"].run({}) == "a\\xff"
