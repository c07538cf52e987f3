"""The hosted tool ``file_search``: finds passages of the files in a folder that the server was given.

Its item is ``file_search_call`` as the Responses API has it. Each result has ``file_id`` (stable: made of the name),
``filename`` (relative to the folder), ``score`` (0 to 1), ``text`` (the passage) and ``attributes`` with ``line``, the
1-based line on which the passage begins. Three fields are ours, and stand in the item only when there is something to
say:

- ``max_num_results``: what the model asked for, so that the item holds the whole call;
- ``error``: why the call failed, as ``mcp_call`` has it. ``results`` is null then. Arguments that can't be read are
  told here from ``begin`` on, with no queries; ``run`` then only says ``failed``;
- ``warning``: what the results may miss.

The work is done in a thread, one search at a time for a folder. The thread asks between files and between queries
whether it was cancelled, so a cancelled search ends soon and leaves no thread behind.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Self

import trio
from attrs import evolve, frozen

from protocol.codec import parse
from protocol.errors import ProtocolError
from protocol.fields import Json
from protocol.items import FileSearchCall

from ..spec import ToolSpec
from .folder_index import MAX_FILE_BYTES, MAX_FILES, MAX_FOLDER_BYTES, FolderIndex, Hit

DEFAULT_RESULTS: Final = 10
"""Some 5,000 tokens at most (see ``passages.PASSAGE_CHARS``)."""

MAX_RESULTS: Final = 50
"""As the Responses API has it for ``max_num_results``."""

MAX_QUERIES: Final = 16
"""Queries of one call; models send one to five."""

_QUERY: Final = {"type": "string", "description": "Words or identifiers to look for, for example: parse_frame error"}
_PARAMETERS: Final[Json] = {
    "type": "object",
    "properties": {
        "queries": {
            "type": "array",
            "items": _QUERY,
            "minItems": 1,
            "maxItems": MAX_QUERIES,
            "description": "Several ways to ask for the same; the results are merged, the best first.",
        },
        "query": {**_QUERY, "description": "Short for a list of one query."},
        "max_num_results": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS},
    },
    "additionalProperties": False,
}
_DESCRIPTION: Final = (
    "Search the project's files by words, names or identifiers. Returns passages with file, line and text, the best first."
)
SPEC: Final = ToolSpec(name="file_search", description=_DESCRIPTION, parameters=_PARAMETERS, type="file_search")
"""What a model reads of it."""


class FileSearch:
    """Searches ``folder``; implements ``HostedTool``. Use it as a context manager, or call ``close``.

    The files are read again when they have changed, so a search sees every edit that was finished before it began.
    Hidden files, links, binary files, files above ``max_file_bytes``, and what is beyond ``max_files`` files or
    ``max_folder_bytes`` of text are not searched.

    Raises ``NotADirectoryError``; ``sqlite3.OperationalError`` if this Python's SQLite has no FTS5.
    """

    item_type: ClassVar[str] = FileSearchCall.type

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        max_num_results: int = DEFAULT_RESULTS,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_files: int = MAX_FILES,
        max_folder_bytes: int = MAX_FOLDER_BYTES,
    ) -> None:
        self._index = FolderIndex(folder, max_file_bytes=max_file_bytes, max_files=max_files, max_folder_bytes=max_folder_bytes)
        self._max_num_results = max_num_results
        self._one_at_a_time = trio.CapacityLimiter(1)

    def close(self) -> None:
        """Delete the index. No search may be running; none may follow."""
        self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def spec(self) -> ToolSpec:
        """What the model reads of it."""
        return SPEC

    def begin(self, item_id: str, arguments: str) -> FileSearchCall:
        """The item, in progress. Never raises: arguments that can't be read are the item's ``error``."""
        try:
            asked = _read_arguments(arguments)
        except _BadArguments as bad:
            return FileSearchCall(id=item_id, queries=(), status="in_progress", extra={"error": str(bad)})
        extra = {} if asked.max_num_results is None else {"max_num_results": asked.max_num_results}
        return FileSearchCall(id=item_id, queries=asked.queries, status="in_progress", extra=extra)

    async def run(self, item: FileSearchCall, report: Callable[[str], None]) -> FileSearchCall:
        """Search, and return ``item`` completed with its results, or failed with its ``error``.

        Reports ``searching`` before the work begins. Cancellation ends the search after the file or query at hand; what
        was indexed until then is used by the next search.
        """
        if "error" in item.extra:
            await trio.lowlevel.checkpoint()
            return evolve(item, status="failed")
        report("searching")
        limit = item.extra.get("max_num_results", self._max_num_results)
        try:
            hits, whole = await trio.to_thread.run_sync(self._search, item.queries, limit, limiter=self._one_at_a_time)
        except OSError as error:
            return _failed(item, f"the folder can't be read: {error.strerror or type(error).__name__}")
        except sqlite3.OperationalError as error:  # no room on the disk, for example
            return _failed(item, f"the index can't be used: {error}")
        results = tuple(_result(hit) for hit in hits)
        extra = item.extra if whole else {**item.extra, "warning": _WARNING}
        return evolve(item, status="completed", results=results, extra=extra)

    def _search(self, queries: tuple[str, ...], limit: int) -> tuple[list[Hit], bool]:
        check = trio.from_thread.check_cancelled
        whole = self._index.refresh(check)
        return self._index.search(queries, limit, check), whole


_WARNING: Final = "the folder is too large to be searched as a whole; some files were left out"


def _failed(item: FileSearchCall, reason: str) -> FileSearchCall:
    return evolve(item, status="failed", extra={**item.extra, "error": reason})


def _result(hit: Hit) -> dict[str, Any]:
    return {
        "file_id": hit.file_id,
        "filename": hit.filename,
        "score": round(hit.score, 4),
        "text": hit.text,
        "attributes": {"line": hit.line},
    }


# ---- arguments


class _BadArguments(Exception):
    """What the model sampled can't be read. The message is for the model."""


@frozen
class _Arguments:
    queries: tuple[str, ...]
    max_num_results: int | None


def _read_arguments(arguments: str) -> _Arguments:
    try:
        asked = parse(arguments)
    except ProtocolError as error:
        raise _BadArguments(f"arguments: {error.message}") from None
    if not isinstance(asked, dict):
        raise _BadArguments('arguments: expected an object such as {"queries": ["…"]}')
    return _Arguments(_read_queries(asked), _read_limit(asked.get("max_num_results")))


def _read_queries(asked: Mapping[str, Any]) -> tuple[str, ...]:
    """``query`` and ``queries``, each once; null is as good as absent."""
    several = asked.get("queries")
    one = asked.get("query")
    if several is not None and not isinstance(several, list):
        raise _BadArguments("queries: expected a list of strings")
    queries = ([] if one is None else [one]) + (several or [])
    if not all(isinstance(query, str) for query in queries):
        raise _BadArguments("queries: expected strings only")
    if not 1 <= len(queries) <= MAX_QUERIES:
        raise _BadArguments(f"queries: expected 1 to {MAX_QUERIES}, got {len(queries)}")
    return tuple(dict.fromkeys(queries))


def _read_limit(limit: object) -> int | None:
    if limit is None:
        return None
    if type(limit) is not int or not 1 <= limit <= MAX_RESULTS:
        raise _BadArguments(f"max_num_results: expected an integer from 1 to {MAX_RESULTS}")
    return limit


# ---- what the model reads


def results_text(item: FileSearchCall) -> str:
    """A finished call as the text that the model reads: each result as ``filename:line`` and its passage below.

    Takes results of other servers as well, which may lack a line or a text. Equal items give equal texts.
    """
    if item.status == "failed":
        return f"The search failed: {item.extra.get('error', 'no reason was given')}"
    if item.results is None:
        return "The results of this search are not in the conversation."
    blocks = [_block(result) for result in item.results] or ["No results."]
    if "warning" in item.extra:
        blocks.append(f"Note: {item.extra['warning']}.")
    return "\n\n".join(blocks)


def _block(result: Json) -> str:
    attributes = result.get("attributes")
    line = attributes.get("line") if isinstance(attributes, Mapping) else None
    place = str(result.get("filename") or result.get("file_id") or "unknown file")
    return f"{place if line is None else f'{place}:{line}'}\n{result.get('text') or ''}"
