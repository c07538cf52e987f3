"""The index against real folders: what is in it, that it keeps up with edits, and that any query is safe."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.hosted import folder_index
from tools.hosted.folder import MAX_DEPTH, Entry, walk
from tools.hosted.folder_index import QUERY_WORDS, FolderIndex, Hit


def search(index: FolderIndex, *queries: str, limit: int = 10) -> list[str]:
    index.refresh()
    return [f"{hit.filename}:{hit.line}" for hit in index.search(queries, limit)]


def stands(folder: Path, hit: Hit) -> bool:
    """Whether the hit's text begins on its line of its file."""
    lines = (folder / hit.filename).read_bytes().decode("utf-8-sig", "replace").replace("\r\n", "\n").split("\n")
    rest = "\n".join(lines[hit.line - 1 :])
    return 0 <= rest.find(hit.text) <= len(lines[hit.line - 1])


@pytest.fixture
def index(tmp_path: Path) -> Iterator[FolderIndex]:
    index = FolderIndex(tmp_path)
    yield index
    index.close()


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written count as old."""
    monkeypatch.setattr(folder_index, "YOUNG_NS", -(10**18))


# ---- what is in it


def test_hidden_and_generated_files_are_left_out(tmp_path: Path, index: FolderIndex) -> None:
    for name in (".git/config", ".env", "a/.cache/x", "node_modules/x.js", "b/__pycache__/x.py", "b/kept.py", "kept"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("needle")
    assert sorted(search(index, "needle")) == ["b/kept.py:1", "kept:1"]


def test_binary_and_large_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"needle\n" * 2000 + b"\0")
    (tmp_path / "large").write_bytes(b"needle\n" * 2000 + b"more")
    (tmp_path / "kept").write_bytes(b"needle\n" * 2000)
    index = FolderIndex(tmp_path, max_file_bytes=14_000)
    assert {name.split(":")[0] for name in search(index, "needle")} == {"kept"}
    assert search(index, "more") == []


def test_the_walk_never_leaves_the_folder(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (outside / "secret").write_text("needle")
    inside.mkdir()
    (inside / "kept").write_text("needle")
    (inside / "link").symlink_to(outside / "secret")
    (inside / "folder").symlink_to(outside)
    (inside / "up").symlink_to("..")
    (inside / "again").symlink_to("kept")
    (inside / "loop").symlink_to(".")
    (inside / "dangling").symlink_to("nowhere")
    os.mkfifo(inside / "pipe")
    assert search(FolderIndex(inside), "needle") == ["kept:1"]


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "kept").write_text("needle")
    (tmp_path / "link").symlink_to("real")
    assert search(FolderIndex(tmp_path / "link"), "needle") == ["kept:1"]


def test_a_file_that_becomes_a_link_during_the_walk_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("needle")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "file").write_text("harmless")

    def swapped() -> Iterator[bytes | None]:
        for entry in walk(str(inside)):
            (inside / "file").unlink()
            (inside / "file").symlink_to(tmp_path / "secret")
            yield entry.read(1000)

    with pytest.raises(OSError, match="symbolic link"):
        list(swapped())


def test_a_folder_that_becomes_a_link_during_the_walk_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("needle")
    (tmp_path / "inside" / "sub").mkdir(parents=True)
    (tmp_path / "inside" / "first").write_text("")
    seen = []
    for entry in walk(str(tmp_path / "inside")):
        seen.append(entry.path)
        (tmp_path / "inside" / "sub").rmdir()
        (tmp_path / "inside" / "sub").symlink_to(tmp_path / "outside")
    assert seen == [b"first"]


def test_folders_that_are_too_deep_are_left_out(tmp_path: Path, index: FolderIndex) -> None:
    path = tmp_path
    for _ in range(MAX_DEPTH + 5):
        path /= "d"
        path.mkdir()
        (path / "f").write_text("needle")
    assert len(search(index, "needle", limit=1000)) == MAX_DEPTH


def test_no_descriptor_stays_open(tmp_path: Path, index: FolderIndex) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("needle")
    index.refresh()
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    def stop() -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            index.refresh(stop)
        assert search(index, "needle") == ["a/b/file:1"]
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


# ---- how texts are read


def test_text_of_any_bytes_is_found_and_has_no_surrogates(tmp_path: Path, index: FolderIndex) -> None:
    (tmp_path / "latin").write_bytes(b"\xe9t\xe9 needle \xed\xa0\x80")
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfneedle\r\n\r\nnext\r\n")
    (tmp_path / os.fsdecode(b"bad\xff")).write_text("needle")
    index.refresh()
    hits = {hit.filename: hit for hit in index.search(["needle"], 10)}
    assert hits.keys() == {"latin", "marked", "bad\ufffd"}
    assert hits["marked"].text == "needle\n\nnext"
    assert hits["latin"].text.startswith("\ufffdt\ufffd needle")
    for hit in hits.values():
        assert (hit.filename + hit.text).encode()
    assert len({hit.file_id for hit in hits.values()}) == 3


def test_lines_count_as_editors_count_them(tmp_path: Path, index: FolderIndex) -> None:
    (tmp_path / "f").write_bytes(b"\n\r\n\x0c\n\xe2\x80\xa8\n\n  needle\x0b\rhere\n")
    assert search(index, "needle") == ["f:6"]


# ---- how it is found


def test_identifiers_are_found_whole_and_by_their_parts(tmp_path: Path, index: FolderIndex) -> None:
    (tmp_path / "a").write_text("parseHTTPReply(data)")
    (tmp_path / "b").write_text("parse_http_reply(data)")
    assert search(index, "parse_http_reply") == ["b:1"]
    assert search(index, "PARSEHTTPREPLY") == ["a:1"]
    assert search(index, "http reply") == ["a:1", "b:1"]
    assert search(index, "parseHttpReply()") == ["a:1"]
    assert search(index, "http_reply") == ["a:1", "b:1"]


def test_the_ladder_goes_from_strict_to_loose(tmp_path: Path, index: FolderIndex) -> None:
    (tmp_path / "a").write_text("the sustained note")
    (tmp_path / "b").write_text("a note == another 🎹 \N{CJK UNIFIED IDEOGRAPH-4F60}\N{CJK UNIFIED IDEOGRAPH-597D}")
    assert search(index, "sustained note") == ["a:1"], "all words"
    assert search(index, "sustain note") == ["a:1"], "beginnings"
    assert search(index, "where is sustained missing") == ["a:1"], "any word"
    assert search(index, "SustainedMissing") == ["a:1"], "any part"
    assert search(index, "MissingA") == [], "but no short ones"
    assert search(index, "no such thing") == search(index, "") == search(index, " \t") == search(index, "\0") == []
    assert search(index, "== ") == search(index, "🎹") == search(index, "\N{CJK UNIFIED IDEOGRAPH-597D}") == ["b:1"]


def test_stricter_answers_score_higher_also_between_queries(tmp_path: Path, index: FolderIndex) -> None:
    for name, text in {"a": "== 1", "b": "alpha x", "c": "gamma delta", "d": "epsilon"}.items():
        (tmp_path / name).write_text(text)
    queries = ["== 1 ==", "==", "alp", "gamma missing", "epsilon"]
    index.refresh()
    hits = index.search(queries, 10)
    assert [hit.filename for hit in hits] == ["a", "d", "b", "c"]
    assert [int(hit.score * 4) for hit in hits] == [3, 3, 2, 1]
    assert [int(hit.score * 4) for hit in index.search(["=="], 10)] == [0]


def test_files_are_found_by_their_names(tmp_path: Path, index: FolderIndex) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "pedalBoard.py").write_text("x = 1")
    (tmp_path / "src" / "other.py").write_text("y = 1")
    assert search(index, "pedalboard.py") == search(index, "pedal board") == ["src/pedalBoard.py:1"]


def test_what_is_about_it_comes_before_what_mentions_it(tmp_path: Path, index: FolderIndex) -> None:
    (tmp_path / "a").write_text("words " * 100 + "sustain")
    (tmp_path / "b").write_text("sustain, sustain!")
    for name in "cdefg":
        (tmp_path / name).write_text("other")
    assert search(index, "sustain") == ["b:1", "a:1"]


# ---- keeping up


@pytest.mark.usefixtures("aged")
def test_files_that_have_not_changed_are_not_read_again(
    tmp_path: Path, index: FolderIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[bytes] = []
    read = Entry.read

    def recorded(entry: Entry, limit: int) -> bytes | None:
        reads.append(entry.path)
        return read(entry, limit)

    monkeypatch.setattr(Entry, "read", recorded)
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    index.refresh()
    index.refresh()
    assert reads == [b"a", b"b"]
    status = os.stat(tmp_path / "b")
    (tmp_path / "b").write_text("six")
    os.utime(tmp_path / "b", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert search(index, "six") == ["b:1"]
    assert reads == [b"a", b"b", b"b"]


def test_an_edit_within_one_tick_of_the_clock_is_seen(
    tmp_path: Path, index: FolderIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Entry, "stamp", "the same")
    (tmp_path / "a").write_text("one")
    assert search(index, "one") == ["a:1"]
    (tmp_path / "a").write_text("two")
    assert search(index, "one") == []
    assert search(index, "two") == ["a:1"]


@pytest.mark.usefixtures("aged")
def test_a_file_that_could_not_be_read_is_tried_again(
    tmp_path: Path, index: FolderIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("one")

    def refuse(entry: Entry, limit: int) -> bytes | None:
        raise OSError("too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Entry, "read", refuse)
        assert search(index, "one") == []
    assert search(index, "one") == ["a:1"]


@pytest.mark.usefixtures("aged")
def test_an_interrupted_refresh_keeps_what_was_done(
    tmp_path: Path, index: FolderIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_index, "BATCH_FILES", 3)
    for number in range(10):
        (tmp_path / str(number)).write_text("needle")
    left = 8

    def interrupt() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.refresh(interrupt)
    assert len(index.search(["needle"], 50)) == 5
    assert len(search(index, "needle", limit=50)) == 10


def test_the_limits_of_a_folder_count_what_is_indexed(tmp_path: Path) -> None:
    (tmp_path / "a-large").write_bytes(b"x" * 5000)
    (tmp_path / "b").write_text("needle " * 10)
    (tmp_path / "c").write_text("needle " * 10)
    index = FolderIndex(tmp_path, max_file_bytes=1000, max_folder_bytes=139)
    assert index.refresh() is False
    assert [hit.filename for hit in index.search(["needle"], 10)] == ["b"]
    (tmp_path / "b").write_text("needle " * 9)
    assert index.refresh() is True
    assert sorted(hit.filename for hit in index.search(["needle"], 10)) == ["b", "c"]
    assert FolderIndex(tmp_path, max_files=2).refresh() is False
    assert FolderIndex(tmp_path, max_files=3).refresh() is True


NAMES = st.sampled_from(["a.py", "b.txt", "sub/a.py", "sub/deeper/ü.md", ".hidden", "sub/c"])
CONTENTS = st.lists(
    st.sampled_from(
        [
            b"alpha beta",
            b"parseHTTPReply",
            b"\xff\xfe alpha",
            b"",
            b"",
            b"gamma" * 500,
            b"\0",
            "é 🎹".encode(),
            b"end\r",
        ]
    ),
    max_size=60,
).map(b"\n".join)
STEPS = st.lists(st.tuples(st.sampled_from(["write", "delete", "rename"]), NAMES, NAMES, CONTENTS), max_size=6)


def apply(folder: Path, step: tuple[str, str, str, bytes]) -> None:
    action, name, other, content = step
    path, target = folder / name, folder / other
    if action == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    elif path.exists() and action == "delete":
        path.unlink()
    elif path.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_after_any_edits_the_index_answers_as_a_fresh_one(steps: list[tuple[str, str, str, bytes]]) -> None:
    queries = ["alpha", "alpha beta", "http reply", "gam", "py", "🎹", "e"]
    with tempfile.TemporaryDirectory() as name:
        folder, index = Path(name), FolderIndex(name)
        for step in steps:
            apply(folder, step)
            index.refresh()
            fresh = FolderIndex(name)
            fresh.refresh()
            for query in queries:
                hits = index.search([query], 20)
                assert hits == fresh.search([query], 20)
                assert all(stands(folder, hit) for hit in hits)
            fresh.close()
        index.close()


# ---- any query


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, FolderIndex]]:
    """A folder of code and prose that contains FTS5's own syntax, and its index."""
    folder = tmp_path_factory.mktemp("house")
    (folder / "code.py").write_text('def near(a, b):\n    return a AND b OR NOT "c" * 2\n' * 40)
    (folder / "prose.md").write_text("NEAR the piano, 你好世界 🎹 été\n\n{terms name} : ^start - minus\n" * 30)
    (folder / "line").write_text("x = 1; " * 2000)
    index = FolderIndex(folder)
    index.refresh()
    yield folder, index
    index.close()


PIECES = st.sampled_from(
    [
        '"',
        "''",
        "*",
        "(",
        ")",
        "NEAR(",
        "AND",
        "OR",
        "NOT",
        "terms:",
        "^",
        "-",
        "+",
        "{",
        "\0",
        "\ud800",
        "🎹",
        "near",
        "%",
    ]
)
QUERIES = st.text(st.characters()) | st.lists(PIECES, max_size=8).map(" ".join) | st.lists(PIECES, max_size=8).map("".join)


@settings(max_examples=300, deadline=None)
@given(queries=st.lists(QUERIES, max_size=4), limit=st.integers(1, 50))
def test_any_query_is_safe_and_what_is_found_stands_there(
    house: tuple[Path, FolderIndex], queries: list[str], limit: int
) -> None:
    folder, index = house
    hits = index.search(queries, limit)
    assert len(hits) <= limit
    assert len({(hit.filename, hit.line, hit.text) for hit in hits}) == len(hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert 0 < hit.score < 1
        assert stands(folder, hit)


@pytest.mark.parametrize(
    "query",
    ["piano " * 100_000, "_".join("ab" * 20_000), '"' * 100_000, "x" * 1_000_000, " ".join(map(str, range(10_000)))],
)
def test_huge_queries_are_safe(house: tuple[Path, FolderIndex], query: str) -> None:
    folder, index = house
    assert all(stands(folder, hit) for hit in index.search([query], 10))


def test_words_beyond_the_limit_are_not_looked_for(house: tuple[Path, FolderIndex]) -> None:
    _, index = house
    missing = ["zz" + "a" * number for number in range(QUERY_WORDS)]
    assert index.search([" ".join([*missing[1:], "piano"])], 10) != []
    assert index.search([" ".join([*missing, "piano"])], 10) == []


def test_syntax_of_fts5_is_searched_for_and_not_obeyed(house: tuple[Path, FolderIndex]) -> None:
    _, index = house
    assert {hit.filename for hit in index.search(["a AND b OR NOT"], 50)} == {"code.py"}
    assert index.search(["terms:zzz"], 50) == index.search(["terms zzz"], 50) != []
    assert index.search(["piano NOT piano_"], 50) != []
