"""A full-text index of a folder's files, brought up to date before each search.

Goal: a search finds what the files say now, costs a ``stat`` per file that has not changed, and never fails for what
was typed.

The index is an SQLite database in a private temporary file, which SQLite deletes when it is closed: a large folder
takes disk and not memory. A file's stamp, digest and passages change in one transaction, so that whatever interrupts a
refresh, what the index says of a file is true of one version of it. Many files share a transaction, since each costs
one.

A file that was changed just before it was read could be changed again without a new stamp (as ``racy git`` describes).
Such a file is marked ``young`` and read again the next time; its digest then tells whether there is anything to do.

A query is a ladder of attempts, from strict to loose; the first that finds anything answers it (``_attempts``). Words
are quoted, so that nothing in a query is ever FTS5 syntax.

Not thread-safe: one thread at a time, any thread.
"""

import hashlib
import os
import re
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final

from attrs import evolve, frozen

from .folder import Entry, walk
from .passages import Word, index_terms, passages, words

MAX_FILE_BYTES: Final = 1024 * 1024
"""Larger files are data, logs or bundles, whose passages would crowd out the sources."""

MAX_FILES: Final = 50_000
"""More files than this make the ``stat`` calls before each search slower than a person would wait."""

MAX_FOLDER_BYTES: Final = 256 * 1024 * 1024
"""Of text that is indexed. The temporary database is about three times as large."""

YOUNG_NS: Final = 2_000_000_000
"""The coarsest clock of a common file system, in nanoseconds (FAT counts two seconds)."""

QUERY_WORDS: Final = 64
"""Words of one query that are looked for; further ones would only cost time."""

WORD_PARTS: Final = 16
"""Parts of one word that are looked for: longer names exist only in generated code."""

PREFIX_CHARS: Final = 3
"""Shorter words are not extended in a loose attempt, and shorter parts of words not looked for alone: they are everywhere."""

BATCH_FILES: Final = 256
"""Files of one transaction: what an interrupted refresh does again, at most."""

STRICT, PARTS, ANY, LITERAL = range(4)
"""How loose the attempt was that found a passage."""

Check = Callable[[], None]
"""Called often; raises what is to end the work."""


@frozen
class Hit:
    """A passage that was found. ``score`` is above 0 and below 1, larger is better, comparable between queries."""

    file_id: str
    filename: str
    line: int
    text: str
    score: float


@frozen
class _Known:
    """What the index holds of a file. Its passages have the row ids from ``first`` to before ``end``."""

    id: int = 0
    stamp: str = ""
    young: bool = False
    digest: bytes = b""
    size: int = 0
    first: int = 0
    end: int = 0


_SCHEMA: Final = """
create table files (
  id integer primary key, path blob unique, file_id text, filename text,
  stamp text, young integer, digest blob, size integer, first integer, end integer
);
create virtual table passages using fts5 (
  terms, name, text unindexed, line unindexed, file unindexed, tokenize = "ascii tokenchars '_'"
);
"""

_FOUND: Final = """
select {rank}, passages.rowid, files.file_id, files.filename, passages.line, passages.text
from passages join files on files.id = passages.file where {condition} order by 1, 4, 5, 2 limit ?
"""
_MATCHING: Final = _FOUND.format(rank="bm25(passages)", condition="passages match ?")
_CONTAINING: Final = _FOUND.format(rank="-1.0", condition="instr(lower(text), lower(?))")


class FolderIndex:
    """The index of one folder. Close it, or let it be collected: nothing of it stays on the disk."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_files: int = MAX_FILES,
        max_folder_bytes: int = MAX_FOLDER_BYTES,
    ) -> None:
        """Opens an empty index. Raises ``NotADirectoryError``; ``sqlite3.OperationalError`` if SQLite has no FTS5."""
        self._folder = os.path.realpath(os.fspath(folder))
        if not os.path.isdir(self._folder):
            raise NotADirectoryError(f"not a folder: {os.fspath(folder)}")
        self._max_file_bytes = max_file_bytes
        self._max_files = max_files
        self._max_folder_bytes = max_folder_bytes
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, self._database.close)
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Delete the index. May be called again."""
        self._database.close()

    # ---- keeping up

    def refresh(self, check: Check = lambda: None) -> bool:
        """Bring the index up to date. False if the folder is above the limits, so that its last files are not in it.

        ``check`` is called before each file. What it raises ends the refresh; most of the files
        that were done stay indexed. Raises ``OSError`` when the folder can't be read.
        """
        try:
            self._database.execute("begin")
            whole = self._refresh(check)
            self._database.execute("commit")
        except BaseException:
            self._database.rollback()
            raise
        return whole

    def _refresh(self, check: Check) -> bool:
        known = {path: _Known(*row) for path, *row in self._database.execute(_KNOWN)}
        room, whole = self._max_folder_bytes, True
        with closing(walk(self._folder)) as entries:
            for count, entry in enumerate(entries):
                check()
                if count == self._max_files or room < self._expected_size(entry):
                    whole = False
                    break
                if count % BATCH_FILES == BATCH_FILES - 1:
                    self._database.execute("commit")
                    self._database.execute("begin")
                room -= self._keep_up(entry, known.pop(entry.path, None))
        for path, gone in known.items():
            check()
            self._forget(path, gone)
        return whole

    def _expected_size(self, entry: Entry) -> int:
        return entry.status.st_size if entry.status.st_size <= self._max_file_bytes else 0

    def _keep_up(self, entry: Entry, known: _Known | None) -> int:
        """Index ``entry`` if it has changed; return how many bytes of it are in the index."""
        if known is not None and known.stamp == entry.stamp and not known.young:
            return known.size
        data, young = self._read(entry)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        now = evolve(known or _Known(), stamp=entry.stamp, young=young, digest=digest, size=len(data))
        if known is None or known.digest != digest:
            self._forget(entry.path, known)
            now = self._remember(entry.path, _text(data), now)
        self._database.execute(
            "update files set stamp = ?, young = ?, digest = ?, size = ?, first = ?, end = ? where id = ?",
            (now.stamp, now.young, now.digest, now.size, now.first, now.end, now.id),
        )
        return now.size

    def _read(self, entry: Entry) -> tuple[bytes, bool]:
        """The bytes of a text file (nothing of one that is too large or binary), and whether to read it again."""
        changed_ns = max(entry.status.st_mtime_ns, entry.status.st_ctime_ns)
        young = time.time_ns() - changed_ns < YOUNG_NS
        try:
            data = entry.read(self._max_file_bytes)
        except OSError:  # it may be readable next time
            return b"", True
        return b"" if data is None or b"\0" in data else data, young

    def _remember(self, path: bytes, text: str, file: _Known) -> _Known:
        """Insert a file and its passages."""
        filename = path.decode("utf-8", errors="replace")
        file_id = "file-" + hashlib.blake2b(path, digest_size=12).hexdigest()
        id_ = self._database.execute(
            "insert into files (path, file_id, filename) values (?, ?, ?)", (path, file_id, filename)
        ).lastrowid
        assert id_ is not None
        last = self._database.execute("select rowid from passages order by rowid desc limit 1").fetchone()
        first = last[0] + 1 if last else 1
        name = index_terms(filename)
        found = [(row, index_terms(one.text), name, one.text, one.line, id_) for row, one in enumerate(passages(text), first)]
        self._database.executemany(
            "insert into passages (rowid, terms, name, text, line, file) values (?, ?, ?, ?, ?, ?)", found
        )
        return evolve(file, id=id_, first=first, end=first + len(found))

    def _forget(self, path: bytes, file: _Known | None) -> None:
        """Delete a file and its passages, if it is known."""
        if file is None:
            return
        self._database.execute("delete from passages where rowid >= ? and rowid < ?", (file.first, file.end))
        self._database.execute("delete from files where path = ?", (path,))

    # ---- finding

    def search(self, queries: Sequence[str], limit: int, check: Check = lambda: None) -> list[Hit]:
        """At most ``limit`` passages for all of ``queries`` together, the best first, each once.

        Finds what the last ``refresh`` saw. Any string is a query. ``check`` is called before each attempt.
        """
        best: dict[int, Hit] = {}
        for query in queries:
            for row, hit in self._answer(query, limit, check):
                if row not in best or best[row].score < hit.score:
                    best[row] = hit
        ranked = sorted(best.values(), key=lambda hit: (-hit.score, hit.filename, hit.line))
        return ranked[:limit]

    def _answer(self, query: str, limit: int, check: Check) -> list[tuple[int, Hit]]:
        for looseness, sql, argument in _attempts(query):
            check()
            rows = self._database.execute(sql, (argument, limit)).fetchall()
            if rows:
                return [
                    (row, Hit(file_id, filename, line, text, _score(looseness, rank)))
                    for rank, row, file_id, filename, line, text in rows
                ]
        return []


_KNOWN: Final = "select path, id, stamp, young, digest, size, first, end from files"


def _text(data: bytes) -> str:
    """Lines end with a line feed, as editors and ``grep -n`` count them."""
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""In no indexed text, and nothing that SQLite could be given."""


def _attempts(query: str) -> Iterator[tuple[int, str, str]]:
    """The ladder: every word; every word, as it is or by its parts' beginnings; any of them; the very characters.

    The last finds what has no words (``==``, emoji) or no spaces between them (Chinese, Japanese).
    """
    asked = list(dict.fromkeys(words(query)))[:QUERY_WORDS]
    if asked:
        yield STRICT, _MATCHING, " AND ".join(_quoted(word.whole) for word in asked)
        yield PARTS, _MATCHING, " AND ".join(_by_parts(word) for word in asked)
        yield ANY, _MATCHING, " OR ".join(_by_any_part(word) for word in asked)
    literal = query.strip()
    if literal and not _SURROGATE.search(literal):
        yield LITERAL, _CONTAINING, literal


def _by_parts(word: Word) -> str:
    parts = " AND ".join(_beginning(part) for part in word.parts[:WORD_PARTS])
    return f"({_beginning(word.whole)} OR ({parts}))" if parts else _beginning(word.whole)


def _by_any_part(word: Word) -> str:
    telling = (part for part in word.parts[:WORD_PARTS] if len(part) >= PREFIX_CHARS)
    return " OR ".join(_beginning(term) for term in (word.whole, *telling))


def _beginning(term: str) -> str:
    return _quoted(term) + (" *" if len(term) >= PREFIX_CHARS else "")


def _quoted(term: str) -> str:
    return f'"{term}"'


def _score(looseness: int, rank: float) -> float:
    """Each step of the ladder has a band of its own; within it, SQLite's rank (negative, lower is better) decides."""
    return (LITERAL - looseness + rank / (rank - 1.0)) / (LITERAL + 1)
