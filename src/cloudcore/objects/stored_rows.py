"""The record of stored bytes: when they were verified, and whether they are damaged.

Bytes are identified by their *stored id*. If an object gets other bytes, its stored id changes;
when bytes are verified, their `verified_at` changes. A report of damage names both, so it never
marks other bytes, nor bytes that were verified since.

The scrub proceeds by `verified_at`, the oldest first (0 means never, or unknown). So it needs no
other record of where it stopped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    bindparam,
    case,
    func,
    select,
    text,
    tuple_,
)

from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import ONE, ZERO, find_all, total
from cloudcore.db.statement import Statement, listed, paged, text_list

FIRST: Final = (-1, "")
"""The position before every object, for `StoredRows.due`."""
EVER: Final = 1 << 62
"""A time later than every `verified_at`."""
_PAGE: Final = 500
Owned = Callable[[Sequence[str]], Awaitable[Collection[str]]]
"""Returns those of the passed stored ids that any row of the tenant names."""


class ObjectRow(NamedTuple):
    """An object's row, with its stored bytes if they are inline."""

    id: str
    digest: str
    account_id: str
    stored_id: str
    stored_size: int
    encoding: str
    is_inline: bool
    checksum: str | None
    """BLAKE3 of the stored bytes, in hex; None if `digest` is their sha256."""
    verified_at: int
    damage: str | None
    body: bytes | None
    """The stored bytes of an inline object; None if they are lost, or are in the store."""


class NamedObject(NamedTuple):
    """An object whose bytes are in the store: the columns that a backup needs."""

    stored_id: str
    digest: str
    stored_size: int


class StoredTotals(NamedTuple):
    """Counts of the objects that have bytes, and of those verified recently."""

    objects: int
    stored_bytes: int
    verified: int
    verified_bytes: int
    damaged: int
    """The number of objects that are marked as damaged."""


class StoredRows:
    """The statements for one tenant's table, and functions that run them in a transaction.

    - `rows`: a query for the `ObjectRow`s of the table
    - `stored_id`: the column that identifies the bytes of a row
    - `checksum`: the column of `ObjectRow.checksum`
    - `has_bytes`: the condition that a row has bytes which are needed. An index on
      ``verified_at, id`` covers these rows, except those with `damage`
    - `is_stored`: the condition that the bytes are in the store, even if nothing needs them

    Statements for backups read only the columns of `NamedObject` and of `is_stored`.
    """

    def __init__(
        self,
        table: Table,
        rows: Select[Any],
        *,
        stored_id: ColumnElement[str],
        digest: ColumnElement[str],
        checksum: ColumnElement[Any],
        has_bytes: ColumnElement[bool],
        is_stored: ColumnElement[bool],
    ) -> None:
        of = table.c
        self.table: Final = table
        before = of.verified_at < bindparam("verified_before")
        bytes_of = of.account_id == bindparam("account_id"), stored_id == bindparam("bytes_id")
        seen = *bytes_of, of.verified_at == bindparam("verified_at_before")
        is_verified = of.damage.is_(None) & (of.verified_at >= bindparam("since"))
        self.rows: Final = rows.where(has_bytes)
        """The query for the objects that have bytes; callers may add conditions."""
        self._due: Final = paged(
            self.rows.where(
                of.damage.is_(None),
                before,
                tuple_(of.verified_at, of.id)
                > tuple_(bindparam("after_at"), bindparam("after_id")),
            ).order_by(of.verified_at, of.id)
        )
        self._all: Final = paged(
            self.rows.where(before, of.id > bindparam("after")).order_by(of.id)
        )
        self._totals: Final = Statement(
            select(
                func.count(),
                total(of.stored_size),
                total(case((is_verified, ONE), else_=ZERO)),
                total(case((is_verified, of.stored_size), else_=ZERO)),
                func.count(of.damage),
            ).where(has_bytes)
        )
        self._is_unchanged: Final = Statement(
            select(of.id).where(*seen, of.id == bindparam("object_id"), has_bytes)
        )
        self._mark: Final = Statement(
            table.update()
            .where(*seen, of.damage.is_(None), has_bytes)
            .values(damage=bindparam("found"), damaged_at=bindparam("now"))
        )
        self._confirm: Final = Statement(
            table.update()
            .where(*seen, func.coalesce(of.damage, text("''")) == bindparam("damage_before"))
            .values(damage=text("NULL"), damaged_at=text("NULL"), verified_at=bindparam("now"))
        )
        self._count_stored: Final = Statement(
            select(func.count(), total(of.stored_size)).where(is_stored)
        )
        self._list_stored: Final = paged(
            select(stored_id, digest, of.stored_size)
            .where(stored_id > bindparam("after"), is_stored)
            .order_by(stored_id)
        )
        self._checksums: Final = Statement(
            select(stored_id, checksum).where(stored_id.in_(listed("ids")), is_stored)
        )
        self._find_stored: Final = Statement(
            select(stored_id).where(stored_id.in_(listed("ids")), is_stored)
        )

    @property
    def statements(self) -> dict[str, Statement]:
        """Map names to statements, for tests of all statements."""
        return {
            name.removeprefix("_"): each
            for name, each in vars(self).items()
            if isinstance(each, Statement)
        }

    def due(
        self, tx: Connection, verified_before: int, after: tuple[int, str], limit: int
    ) -> list[ObjectRow]:
        """Return a page of undamaged objects last verified before a time, the oldest first.

        `after` is the (`verified_at`, id) of the previous page's last row; `FIRST` for the first
        page.
        """
        at = {"after_at": after[0], "after_id": after[1]}
        return find_all(
            tx, ObjectRow, self._due, verified_before=verified_before, **at, limit=limit
        )

    def all(
        self, tx: Connection, after: str, limit: int, verified_before: int = EVER
    ) -> list[ObjectRow]:
        """Return a page of objects last verified before a time, even damaged ones, sorted by id.

        `after` is the id of the previous page's last row; empty for the first page.
        """
        of = {"verified_before": verified_before, "after": after}
        return find_all(tx, ObjectRow, self._all, **of, limit=limit)

    async def each(
        self, database: Database, verified_before: int = EVER
    ) -> AsyncIterator[ObjectRow]:
        """Yield the objects of all accounts that were last verified before a time, sorted by id."""
        after = ""
        while found := await database.read(self.all, after, _PAGE, verified_before):
            for row in found:
                yield row
            after = found[-1].id

    def totals(self, tx: Connection, since: int) -> StoredTotals:
        """Count the objects with bytes, and those verified at `since` or later. Reads all rows."""
        row = tx.row(self._totals, since=since)
        assert row is not None
        return StoredTotals(*map(int, row))

    def count_stored(self, tx: Connection) -> tuple[int, int]:
        """Return (number of objects in the store, their total bytes there)."""
        row = tx.row(self._count_stored)
        assert row is not None
        return int(row[0]), int(row[1])

    def list_stored(self, tx: Connection, after: str, limit: int) -> list[NamedObject]:
        """Return up to `limit` objects in the store with stored ids after `after`, in order."""
        return find_all(tx, NamedObject, self._list_stored, after=after, limit=limit)

    def checksums(self, tx: Connection, stored_ids: Sequence[str]) -> dict[str, str | None]:
        """Return the checksums (as in `ObjectRow`) of objects in the store, by stored id."""
        return {row[0]: row[1] for row in tx.rows(self._checksums, ids=text_list(stored_ids))}

    def find_stored(self, tx: Connection, stored_ids: Sequence[str]) -> set[str]:
        """Return those of `stored_ids` that belong to objects in the store."""
        return {row[0] for row in tx.rows(self._find_stored, ids=text_list(stored_ids))}

    def is_unchanged(self, tx: Connection, row: ObjectRow) -> bool:
        """Return False if an object was deleted, has other bytes now, or was verified meanwhile."""
        seen = _seen(row.account_id, row.stored_id, row.verified_at)
        return tx.row(self._is_unchanged, **seen, object_id=row.id) is not None

    def mark(
        self,
        tx: Connection,
        account_id: str,
        stored_id: str,
        verified_at: int,
        damage: str,
        now: int,
    ) -> bool:
        """Mark the object that has these bytes as damaged.

        Return False if the object is already marked or was deleted, has other bytes now, or was
        verified after `verified_at` was read. Read `verified_at` before the bytes.
        """
        seen = _seen(account_id, stored_id, verified_at)
        return tx.execute(self._mark, **seen, found=damage, now=now) == 1

    def confirm(
        self,
        tx: Connection,
        account_id: str,
        stored_id: str,
        verified_at: int,
        damage: str | None,
        now: int,
    ) -> None:
        """Record that an object's bytes are intact: remove the mark, set `verified_at` to `now`.

        Change nothing if the object has other bytes now, or was verified or marked after
        `verified_at` and `damage` were read. Read these before the bytes.
        """
        seen = _seen(account_id, stored_id, verified_at)
        tx.execute(self._confirm, **seen, damage_before=damage or "", now=now)

    def confirm_all(self, tx: Connection, rows: Sequence[ObjectRow], now: int) -> None:
        """Record that these objects were read and are intact; see `confirm`.

        A mark that was set since its row was read stays: hours may pass between reading the first
        and the last row.
        """
        for row in rows:
            self.confirm(tx, row.account_id, row.stored_id, row.verified_at, row.damage, now)


def _seen(account_id: str, stored_id: str, verified_at: int) -> dict[str, Any]:
    return {"account_id": account_id, "bytes_id": stored_id, "verified_at_before": verified_at}
