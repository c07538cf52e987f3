"""Nothing outside of the working folder is named, read, written or deleted, whatever a path looks like."""

import os
import tempfile
from pathlib import Path

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tools.local import Failure, Workspace, local_tools

STEPS = ["..", ".", "a", "b", "f", "new", "inner", "out", "loop", "back", "", "secret", "ws", "~"]


def plant(base: Path) -> Path:
    """``base/ws`` is the folder, with links in and out of it; ``base/secret`` must stay as it is."""
    base = base.resolve()
    (base / "ws/a/b").mkdir(parents=True)
    (base / "ws-other").mkdir()
    (base / "secret").write_text("secret")
    (base / "ws-other/secret").write_text("secret")
    (base / "ws/f").write_text("fine")
    (base / "ws/a/f").write_text("fine")
    for link, target in (("inner", "a"), ("out", "../ws-other"), ("loop", "loop"), ("back", "../ws/a")):
        (base / "ws" / link).symlink_to(target)
    (base / "ws/a/out").symlink_to(base / "secret")
    return base


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples that change nothing."""
    return plant(tmp_path_factory.mktemp("base"))


def outside(base: Path) -> dict[str, str]:
    """Everything in ``base`` but the folder."""
    paths = [path for path in base.rglob("*") if not path.is_relative_to(base / "ws")]
    return {str(path): path.read_text() if path.is_file() else "" for path in paths}


def leads_inside(base: Path, path: str) -> bool | None:
    """The answer, found in another way: walk step by step, as the system does. None: it goes round for ever."""
    here: list[str] = [] if path.startswith("/") else list((base / "ws").parts[1:])
    steps = path.split("/")
    links = 0
    while steps:
        step = steps.pop(0)
        if step in ("", "."):
            continue
        if step == "..":
            here = here[:-1]
            continue
        at = "/" + "/".join([*here, step])
        if os.path.islink(at):
            links += 1
            if links > 40:
                return None
            target = os.readlink(at)
            here = [] if target.startswith("/") else here
            steps = [*target.split("/"), *steps]
        else:
            here.append(step)
    return here[: len(base.parts)] == [*base.parts[1:], "ws"]


paths = st.builds(
    lambda absolute, steps: (absolute, "/".join(steps)),
    st.sampled_from(["", "", "", "/", "{base}/", "{base}/ws/", "{base}/ws-other/"]),
    st.lists(st.sampled_from(STEPS), max_size=6),
)


@given(paths)
@example(("", "inner/../../secret"))
@example(("", "a/out"))
@example(("", "out/new"))
@example(("{base}/ws", ""))
@example(("{base}/ws", "-other/secret"))
@settings(max_examples=200, deadline=None)
def test_resolve_refuses_what_leads_outside_and_only_that(still: Path, path: tuple[str, str]) -> None:
    text = path[0].replace("{base}", str(still)) + path[1]
    place = Workspace(still / "ws")
    try:
        found = place.resolve(text)
    except Failure:
        assert text == "" or not leads_inside(still, text)
    else:
        assert leads_inside(still, text) is not False
        assert found.is_relative_to(still / "ws")


@given(paths)
@example(("", "out/secret"))
@example(("", "a/out"))
@example(("", "inner/out"))
@example(("", "../ws-other/new"))
@settings(max_examples=50, deadline=None)
def test_no_tool_touches_the_outside(path: tuple[str, str]) -> None:
    async def main(base: Path, text: str) -> None:
        tools = local_tools(base / "ws")
        envelope = "*** Begin Patch\n{}\n*** End Patch"
        said = [
            await tools["read_file"].run({"path": text}),
            await tools["list_dir"].run({"path": text, "depth": 2}),
            await tools["write_file"].run({"path": text, "content": "changed"}),
            await tools["apply_patch"].run({"patch": envelope.format(f"*** Add File: {text}\n+x")}),
            await tools["apply_patch"].run({"patch": envelope.format(f"*** Update File: {text}\n-secret\n+x")}),
            await tools["apply_patch"].run({"patch": envelope.format(f"*** Update File: f\n*** Move to: {text}\n@@\n+x")}),
            await tools["apply_patch"].run({"patch": envelope.format(f"*** Delete File: {text}")}),
        ]
        assert not any("exit code" in one or one == "secret" for one in said)
        if text and leads_inside(base, text) is False:
            assert all(one.startswith("error: ") for one in said[:-1])

    with tempfile.TemporaryDirectory() as name:
        base = plant(Path(name))
        before = outside(base)
        trio.run(main, base, path[0].replace("{base}", str(base)) + path[1])
        assert outside(base) == before
        assert (base / "ws").is_dir()


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_text_is_a_path_or_a_failure(still: Path, text: str) -> None:
    async def main() -> None:
        tools = local_tools(still / "ws")
        for name in ("read_file", "list_dir"):
            said = await tools[name].run({"path": text})
            said.encode()
            assert said != "secret"

    trio.run(main)


def test_messages_name_the_reason(tmp_path: Path) -> None:
    place = Workspace(tmp_path)
    for path, reason in (("a\0b", "NUL"), ("", "empty"), ("../x", "outside"), ("/etc/passwd", "outside")):
        with pytest.raises(Failure, match=reason):
            place.resolve(path)


def test_locate_names_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("x")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "bad").symlink_to("/etc")
    place = Workspace(tmp_path)
    assert place.locate("link") == place.root / "link"
    assert place.resolve("link") == place.root / "target"
    assert place.locate("bad") == place.root / "bad"
    with pytest.raises(Failure, match="outside"):
        place.locate("bad/passwd")
    with pytest.raises(Failure, match="outside"):
        place.locate("..")


def test_the_folder_must_exist(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError):
        Workspace(tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        Workspace(tmp_path / "file")
