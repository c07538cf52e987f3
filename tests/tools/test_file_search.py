"""The hosted tool as the loop uses it: begin, run, cancel, and what the model reads."""

import json
import shutil
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from protocol import codec
from protocol.items import FileSearchCall
from tools.hosted import FileSearch, folder_index, results_text
from tools.hosted.file_search import MAX_QUERIES, MAX_RESULTS
from tools.hosted.folder import Entry, walk
from tools.spec import HostedTool


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "src" / "pedal.py").write_text('"""The pedal."""\n\n\ndef hold(notes):\n    return sustain(notes)\n')
    (project / "src" / "keys.py").write_text("def press(key):\n    return key.note\n")
    (project / "README.md").write_text("# Piano\n\nIt has keys, and pedals that sustain notes.\n")
    return project


@pytest.fixture
def tool(folder: Path) -> Iterator[FileSearch]:
    with FileSearch(folder) as tool:
        yield tool


def ignore(_: str) -> None:
    pass


def ask(**arguments: Any) -> str:
    return json.dumps(arguments)


async def found(tool: FileSearch, **arguments: Any) -> list[str]:
    item = await tool.run(tool.begin("fs_1", ask(**arguments)), ignore)
    assert item.status == "completed"
    assert item.results is not None
    return [f"{one['filename']}:{one['attributes']['line']}" for one in item.results]


def test_it_is_a_hosted_tool(tool: FileSearch) -> None:
    hosted: HostedTool = tool
    assert hosted.item_type == "file_search_call"
    assert hosted.spec.name == "file_search"
    assert hosted.spec.to_wire() == {"type": "file_search"}
    assert set(hosted.spec.parameters["properties"]) == {"query", "queries", "max_num_results"}


# ---- begin


def test_begin_announces_the_call_without_results(tool: FileSearch) -> None:
    item = tool.begin("fs_1", '{"queries": ["sustain", "hold"], "max_num_results": 3}')
    assert codec.to_wire(item) == {
        "type": "file_search_call",
        "id": "fs_1",
        "queries": ["sustain", "hold"],
        "status": "in_progress",
        "results": None,
        "max_num_results": 3,
    }


@pytest.mark.parametrize(
    ("arguments", "queries"),
    [
        ('{"query": "one"}', ("one",)),
        ('{"query": "one", "queries": ["two", "one"]}', ("one", "two")),
        ('{"query": null, "queries": ["two"], "max_num_results": null}', ("two",)),
        ('{"query": ""}', ("",)),
        ('{"queries": ["a\\u0000b", "🎹"]}', ("a\0b", "🎹")),
    ],
)
def test_begin_takes_one_query_or_several(tool: FileSearch, arguments: str, queries: tuple[str, ...]) -> None:
    item = tool.begin("fs_1", arguments)
    assert (item.queries, item.extra) == (queries, {})


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("", "not valid JSON"),
        ('{"query": "cut o', "not valid JSON"),
        ('{"query": "\\ud800"}', "not valid JSON"),
        ('{"query": "\ud800"}', "not valid JSON"),
        ("[" * 10_000, "not valid JSON"),
        ('["sustain"]', "expected an object"),
        ("{}", "expected 1 to"),
        ('{"queries": []}', "expected 1 to"),
        ('{"queries": "sustain"}', "expected a list"),
        ('{"queries": ["a", 1]}', "expected strings"),
        ('{"query": ["a"]}', "expected strings"),
        (ask(queries=["a"] * (MAX_QUERIES + 1)), f"got {MAX_QUERIES + 1}"),
        ('{"query": "a", "max_num_results": 0}', "max_num_results: expected an integer"),
        ('{"query": "a", "max_num_results": true}', "max_num_results: expected an integer"),
        ('{"query": "a", "max_num_results": "3"}', "max_num_results: expected an integer"),
        (ask(query="a", max_num_results=MAX_RESULTS + 1), "max_num_results: expected an integer"),
    ],
)
@pytest.mark.trio
async def test_bad_arguments_fail_with_a_reason_and_search_nothing(tool: FileSearch, arguments: str, reason: str) -> None:
    reports: list[str] = []
    begun = tool.begin("fs_1", arguments)
    done = await tool.run(begun, reports.append)
    assert (begun.status, begun.queries, begun.results) == ("in_progress", (), None)
    assert (done.status, done.queries, done.results, reports) == ("failed", (), None, [])
    assert reason in done.extra["error"]
    assert reason in results_text(done)
    assert codec.item_from_wire(codec.parse(codec.encode(done))) == done


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_begin_takes_whatever_was_sampled(arguments: str) -> None:
    with FileSearch(".") as tool:
        assert tool.begin("fs_1", arguments).status == "in_progress"


# ---- run


@pytest.mark.trio
async def test_run_completes_the_item_with_results_as_the_api_has_them(tool: FileSearch) -> None:
    reports: list[str] = []
    begun = tool.begin("fs_1", '{"query": "hold notes"}')
    done = await tool.run(begun, reports.append)
    assert reports == ["searching"]
    assert (done.id, done.queries, done.status) == ("fs_1", ("hold notes",), "completed")
    assert done.results is not None
    (result,) = done.results
    assert result.keys() == {"file_id", "filename", "score", "text", "attributes"}
    assert result["filename"] == "src/pedal.py"
    assert result["attributes"] == {"line": 1}
    assert result["text"] == '"""The pedal."""\n\n\ndef hold(notes):\n    return sustain(notes)'
    assert result["file_id"].startswith("file-")
    assert 0 < result["score"] < 1
    assert codec.item_from_wire(codec.parse(codec.encode(done))) == done


@pytest.mark.trio
async def test_several_queries_are_merged_without_duplicates_best_first(tool: FileSearch) -> None:
    item = await tool.run(tool.begin("fs_1", ask(queries=["press key", "sustain", "notes", "nothing like it"])), ignore)
    assert item.results is not None
    assert sorted(one["filename"] for one in item.results) == ["README.md", "src/keys.py", "src/pedal.py"]
    scores = [one["score"] for one in item.results]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.trio
async def test_the_number_of_results_is_the_calls_or_else_the_tools(folder: Path) -> None:
    for number in range(20):
        (folder / f"{number}.txt").write_text("sustain")
    with FileSearch(folder) as tool:
        assert len(await found(tool, query="sustain")) == 10
        assert len(await found(tool, query="sustain", max_num_results=3)) == 3
        assert len(await found(tool, query="sustain", max_num_results=50)) == 22
    with FileSearch(folder, max_num_results=2) as tool:
        assert len(await found(tool, queries=["sustain", "notes"])) == 2


@pytest.mark.trio
async def test_edits_between_searches_are_seen(tool: FileSearch, folder: Path) -> None:
    assert await found(tool, query="damper") == []
    (folder / "src" / "damper.py").write_text("x = 1\n")
    assert await found(tool, query="damper") == ["src/damper.py:1"]
    (folder / "src" / "keys.py").write_text("\n\n\ndamper = 1\n")
    assert await found(tool, query="damper = 1") == ["src/damper.py:1", "src/keys.py:4"]
    (folder / "src" / "damper.py").unlink()
    (folder / "src" / "keys.py").rename(folder / "src" / "keyboard.py")
    assert await found(tool, query="damper") == ["src/keyboard.py:4"]


@pytest.mark.trio
async def test_a_folder_above_the_limits_is_searched_in_part_and_says_so(folder: Path) -> None:
    with FileSearch(folder, max_files=2) as tool:
        item = await tool.run(tool.begin("fs_1", ask(query="notes note keys")), ignore)
    assert "some files were left out" in item.extra["warning"]
    assert "some files were left out" in results_text(item)
    with FileSearch(folder, max_files=3) as tool:
        assert (await tool.run(tool.begin("fs_1", ask(query="notes")), ignore)).extra == {}


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        FileSearch(tmp_path / "missing")


@pytest.mark.trio
async def test_a_folder_that_has_gone_fails_the_call_and_may_come_back(tool: FileSearch, folder: Path) -> None:
    moved = folder.rename(folder.with_name("moved"))
    item = await tool.run(tool.begin("fs_1", ask(query="sustain")), ignore)
    assert (item.status, item.results) == ("failed", None)
    assert item.extra["error"] == "the folder can't be read: No such file or directory"
    shutil.move(moved, folder)
    assert len(await found(tool, query="sustain")) == 2


@pytest.mark.trio
async def test_searches_at_the_same_time_take_turns(tool: FileSearch, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[list[str]] = []
    running = 0

    def lone_walk(root: str) -> Generator[Entry, None, None]:
        nonlocal running
        running += 1
        time.sleep(0.002)  # long enough for another thread to come in between, if it could
        assert running == 1
        yield from walk(root)
        running -= 1

    monkeypatch.setattr(folder_index, "walk", lone_walk)

    async def search() -> None:
        answers.append(await found(tool, query="hold"))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(search)
    assert answers == [["src/pedal.py:1"]] * 20


# ---- cancellation


@pytest.mark.parametrize("at", range(7))
@pytest.mark.trio
async def test_cancellation_ends_the_thread_and_harms_no_later_search(
    tool: FileSearch, folder: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Cancelled from within the thread, before the file numbered ``at``; there are six."""
    for number in range(3):
        (folder / f"{number}.txt").write_text("sustain")
    monkeypatch.setattr(folder_index, "BATCH_FILES", 2)
    visited = 0
    scope = trio.CancelScope()

    def cancelling_walk(root: str) -> Generator[Entry, None, None]:
        nonlocal visited
        for number, entry in enumerate(walk(root)):
            if number == at:
                trio.from_thread.run_sync(scope.cancel)
            visited += 1
            yield entry
        trio.from_thread.run_sync(scope.cancel)

    with scope:
        monkeypatch.setattr(folder_index, "walk", cancelling_walk)
        await found(tool, query="sustain")
    assert scope.cancelled_caught
    assert visited == min(at + 1, 6)
    monkeypatch.setattr(folder_index, "walk", walk)
    assert len(await found(tool, query="sustain")) == 5


@pytest.mark.trio
async def test_cancellation_while_waiting_for_another_search(tool: FileSearch, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    answers: list[list[str]] = []

    def waiting_walk(root: str) -> Generator[Entry, None, None]:
        go_on.wait()
        yield from walk(root)

    async def search() -> None:
        answers.append(await found(tool, query="hold"))

    monkeypatch.setattr(folder_index, "walk", waiting_walk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(search)
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await search()
        assert scope.cancelled_caught
        assert answers == []
        go_on.set()
    assert answers == [["src/pedal.py:1"]]


# ---- what the model reads


@pytest.mark.trio
async def test_the_model_reads_file_line_and_passage(tool: FileSearch) -> None:
    item = await tool.run(tool.begin("fs_1", ask(queries=["press", "pedals"])), ignore)
    assert "src/keys.py:1\ndef press(key):\n    return key.note" in results_text(item)
    assert "README.md:1\n# Piano\n\nIt has keys, and pedals that sustain notes." in results_text(item)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (FileSearchCall(id="fs_1", queries=("a",), status="completed", results=()), "No results."),
        (
            FileSearchCall(id="fs_1", queries=("a",), status="completed"),
            "The results of this search are not in the conversation.",
        ),
        (FileSearchCall(id="fs_1", queries=(), status="failed"), "The search failed: no reason was given"),
        (
            FileSearchCall(
                id="fs_1",
                queries=("a",),
                status="completed",
                results=({"filename": "a.pdf", "text": "A", "attributes": {"year": 1}}, {"file_id": "file-1"}, {}),
            ),
            "a.pdf\nA\n\nfile-1\n\n\nunknown file\n",
        ),
    ],
)
def test_the_model_reads_calls_of_other_servers_too(item: FileSearchCall, text: str) -> None:
    assert results_text(item) == text
