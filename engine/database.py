"""The ledger and the store in one SQLite file.

Commits cost a millisecond, whoever makes them; so one thread makes them for all who wait: what arrives while a commit runs
is in the next one (group commit). SQLite's WAL mode lets readers read meanwhile.

A file that an earlier version has made is brought up to date when it is opened: tables and indexes that it lacks are made, and
filled from what is there.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import trio
from attrs import define

from protocol.codec import encode, from_wire, item_from_wire, parse, to_wire
from protocol.items import Item
from protocol.response import Response

from .ledger import Row
from .store import Conversation, Kept, Stored

VERSION: Final = 1
"""``user_version`` of a file whose items can be found by their ids."""
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS ledger (
  response_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, model TEXT NOT NULL, shape TEXT NOT NULL, status TEXT NOT NULL,
  reason TEXT, created_at REAL NOT NULL, ended_at REAL NOT NULL, input_tokens INTEGER NOT NULL,
  cached_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL,
  tool_calls INTEGER NOT NULL, parks INTEGER NOT NULL, flags TEXT NOT NULL, stages TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS responses (
  tenant TEXT NOT NULL, id TEXT NOT NULL, created_at INTEGER NOT NULL, previous_id TEXT, response TEXT NOT NULL,
  items TEXT NOT NULL, stops TEXT NOT NULL, input TEXT NOT NULL, events BLOB NOT NULL,
  PRIMARY KEY (tenant, id));
CREATE TABLE IF NOT EXISTS response_items (
  tenant TEXT NOT NULL, id TEXT NOT NULL, response_id TEXT NOT NULL, sent INTEGER NOT NULL, item TEXT NOT NULL,
  PRIMARY KEY (tenant, id));
CREATE INDEX IF NOT EXISTS items_of_response ON response_items (tenant, response_id);
CREATE TRIGGER IF NOT EXISTS response_deleted AFTER DELETE ON responses BEGIN
  DELETE FROM response_items WHERE tenant = OLD.tenant AND response_id = OLD.id;
END;
CREATE TABLE IF NOT EXISTS conversations (
  tenant TEXT NOT NULL, id TEXT NOT NULL, created_at INTEGER NOT NULL, metadata TEXT NOT NULL, PRIMARY KEY (tenant, id));
CREATE TABLE IF NOT EXISTS conversation_items (
  place INTEGER PRIMARY KEY, tenant TEXT NOT NULL, conversation_id TEXT NOT NULL, id TEXT NOT NULL, stop INTEGER NOT NULL,
  item TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS items_of_conversation ON conversation_items (tenant, conversation_id, place);
CREATE INDEX IF NOT EXISTS conversation_item_ids ON conversation_items (tenant, id, place);
"""
ROW_COLUMNS: Final = tuple(Row.__annotations__)
INSERT_ROW: Final = f"INSERT INTO ledger ({', '.join(ROW_COLUMNS)}) VALUES ({', '.join(':' + name for name in ROW_COLUMNS)})"
INSERT_RESPONSE: Final = "INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
INSERT_RESPONSE_ITEM: Final = """
INSERT INTO response_items (tenant, id, response_id, sent, item) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (tenant, id) DO UPDATE SET response_id = excluded.response_id, sent = excluded.sent, item = excluded.item
WHERE sent AND item != excluded.item
"""
"""To whom it belongs: see ``store``."""
FIND_ITEM: Final = """
SELECT coalesce(
  (SELECT item FROM response_items WHERE tenant = :tenant AND id = :id),
  (SELECT item FROM conversation_items WHERE tenant = :tenant AND id = :id ORDER BY place DESC LIMIT 1))
"""
INSERT_CONVERSATION: Final = "INSERT OR REPLACE INTO conversations VALUES (?, ?, ?, ?)"
INSERT_ITEM: Final = """
INSERT INTO conversation_items (tenant, conversation_id, id, stop, item)
SELECT tenant, id, ?, ?, ? FROM conversations WHERE tenant = ? AND id = ?
"""
"""None, if the conversation was deleted meanwhile."""
OF_CONVERSATION: Final = "conversation_items WHERE tenant = ? AND conversation_id = ?"


@define(eq=False)
class _Pending:
    statements: Sequence[tuple[str, Any]]
    """Each with the values of one row; or a list, of many."""
    done: bool = False
    error: Exception | None = None


class Database:
    """A ``Ledger`` and a ``Store`` in ``path`` (or ``:memory:``)."""

    def __init__(self, path: str | Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.executescript(SCHEMA)
        self._bring_up_to_date()
        self._thread = trio.CapacityLimiter(1)
        self._waiting: list[_Pending] = []
        self._turn = trio.Lock()

    async def write(self, row: Row) -> None:
        """Keep a ledger row; see ``Ledger.write``."""
        await self._commit((INSERT_ROW, row.as_dict()))

    async def put(self, stored: Stored) -> None:
        """Keep a Response; see ``Store.put``."""
        response = stored.response
        each = {id(item): item for item in (*stored.items, *stored.input, *response.output)}
        texts = {key: encode(wire).decode() for key, wire in zip(each, to_wire(tuple(each.values())), strict=True)}
        items, given = (f"[{','.join(texts[id(item)] for item in part)}]" for part in (stored.items, stored.input))
        wire = encode(to_wire(response)).decode(), items, encode(stored.stops).decode(), given
        row = (stored.tenant, response.id, response.created_at, stored.previous_id, *wire, stored.events)
        owned = [[(item.id, texts[id(item)]) for item in part] for part in (response.output, stored.input)]
        rows = _item_rows(stored.tenant, response.id, *owned)
        await self._commit((INSERT_RESPONSE, row), (INSERT_RESPONSE_ITEM, rows))

    async def get(self, tenant: str, response_id: str) -> Stored | None:
        """The Response, if ``tenant`` has one of that id."""
        query = "SELECT previous_id, events, response, items, stops, input FROM responses WHERE tenant = ? AND id = ?"
        rows = await self._query(query, tenant, response_id)
        if not rows:
            return None
        previous_id, events, *texts = rows[0]
        response, items, stops, given = map(parse, texts)
        return Stored(
            tenant=tenant,
            response=from_wire(response, Response),
            items=tuple(map(item_from_wire, items)),
            stops=tuple(stops),
            input=tuple(map(item_from_wire, given)),
            events=events,
            previous_id=previous_id,
        )

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Forget a Response; whether there was one."""
        if not await self._query("SELECT 1 FROM responses WHERE tenant = ? AND id = ?", tenant, response_id):
            return False
        await self._commit(("DELETE FROM responses WHERE tenant = ? AND id = ?", (tenant, response_id)))
        return True

    async def put_conversation(self, conversation: Conversation) -> None:
        """Keep a conversation; see ``Store``."""
        metadata = encode(conversation.metadata).decode()
        values = (conversation.tenant, conversation.id, conversation.created_at, metadata)
        await self._commit((INSERT_CONVERSATION, values))

    async def get_conversation(self, tenant: str, conversation_id: str) -> Conversation | None:
        """The conversation, if ``tenant`` has one of that id."""
        query = "SELECT created_at, metadata FROM conversations WHERE tenant = ? AND id = ?"
        for created_at, metadata in await self._query(query, tenant, conversation_id):
            return Conversation(tenant=tenant, id=conversation_id, created_at=created_at, metadata=parse(metadata))
        return None

    async def delete_conversation(self, tenant: str, conversation_id: str) -> bool:
        """Forget a conversation and its items; whether there was one."""
        if await self.get_conversation(tenant, conversation_id) is None:
            return False
        key = (tenant, conversation_id)
        await self._commit(
            ("DELETE FROM conversations WHERE tenant = ? AND id = ?", key), (f"DELETE FROM {OF_CONVERSATION}", key)
        )
        return True

    async def add_items(self, tenant: str, conversation_id: str, items: Sequence[Kept]) -> bool:
        """Add ``items`` at the end, all or none; whether there is such a conversation."""
        if await self.get_conversation(tenant, conversation_id) is None:
            return False
        rows = [(one.id, one.stop, encode(to_wire(one.item)).decode(), tenant, conversation_id) for one in items]
        await self._commit((INSERT_ITEM, rows))
        return True

    async def get_items(self, tenant: str, conversation_id: str) -> Sequence[Kept]:
        """The items of a conversation in order; none, if there is no such conversation."""
        query = f"SELECT id, stop, item FROM {OF_CONVERSATION} ORDER BY place"
        found = await self._query(query, tenant, conversation_id)
        return [Kept(item_id, item_from_wire(parse(item)), bool(stop)) for item_id, stop, item in found]

    async def delete_item(self, tenant: str, conversation_id: str, item_id: str) -> bool:
        """Forget an item; whether there was one."""
        if not await self._query(f"SELECT 1 FROM {OF_CONVERSATION} AND id = ?", tenant, conversation_id, item_id):
            return False
        await self._commit((f"DELETE FROM {OF_CONVERSATION} AND id = ?", (tenant, conversation_id, item_id)))
        return True

    async def find_items(self, tenant: str, ids: Collection[str]) -> Mapping[str, Item]:
        """The items of ``tenant`` that have these ids; see ``Store``."""

        def texts() -> dict[str, str | None]:
            execute = self._connection.execute
            return {item_id: execute(FIND_ITEM, {"tenant": tenant, "id": item_id}).fetchone()[0] for item_id in ids}

        found = await self._in_thread(texts)
        return {item_id: item_from_wire(parse(text)) for item_id, text in found.items() if text is not None}

    async def rows(self) -> list[dict[str, Any]]:
        """The whole ledger, oldest first."""
        query = f"SELECT {', '.join(ROW_COLUMNS)} FROM ledger ORDER BY rowid"
        return [dict(zip(ROW_COLUMNS, row, strict=True)) for row in await self._query(query)]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _bring_up_to_date(self) -> None:
        """Fill the items' table, if the file is older than it: all of it, or nothing."""
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version >= VERSION:
            return
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            kept = self._connection.execute("SELECT tenant, id, response, input FROM responses ORDER BY rowid")
            for tenant, response_id, response, given in kept:
                parts = parse(response)["output"], parse(given)
                owned = [[(item.get("id"), encode(item).decode()) for item in part] for part in parts]
                self._connection.executemany(INSERT_RESPONSE_ITEM, _item_rows(tenant, response_id, *owned))
            self._connection.execute(f"PRAGMA user_version = {VERSION}")

    async def _query(self, sql: str, *values: Any) -> Any:
        return await self._in_thread(lambda: self._connection.execute(sql, values).fetchall())

    async def _commit(self, *statements: tuple[str, Any]) -> None:
        """Execute all of them, or none."""
        mine = _Pending(statements)
        self._waiting.append(mine)
        async with self._turn:
            if not mine.done:  # else somebody else's commit took it along
                batch, self._waiting = self._waiting, []
                await self._in_thread(lambda: self._execute(batch))
        if mine.error is not None:
            raise mine.error

    def _execute(self, batch: list["_Pending"]) -> None:
        try:
            with self._connection:
                for sql, values in (one for pending in batch for one in pending.statements):
                    many = isinstance(values, list)
                    (self._connection.executemany if many else self._connection.execute)(sql, values)
        except sqlite3.Error as error:
            for pending in batch:
                pending.error = error
        for pending in batch:
            pending.done = True

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await trio.to_thread.run_sync(work, limiter=self._thread)


def _item_rows(
    tenant: str, response_id: str, output: Iterable[tuple[str | None, str]], given: Iterable[tuple[str | None, str]]
) -> list[tuple[str, str, str, bool, str]]:
    """Rows for a Response's items, of which each has an id, perhaps, and its text."""
    marked = ((sent, *item) for sent, part in ((False, output), (True, given)) for item in part)
    return [(tenant, item_id, response_id, sent, text) for sent, item_id, text in marked if item_id]
