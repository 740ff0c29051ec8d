"""Generations: ids of successive states of this database; a backup contains them too."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.rows import first, given
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from registry.metadata.blobs.inline import drop_quarantined_bodies
from registry.metadata.blobs.objects import HAS_BYTES
from registry.metadata.control_tables import quarantined_objects, store_generations
from registry.metadata.tables import blob_objects, ended_uploads, uploads

_REMEMBERED: Final = 7 * 24 * 3600 * MICROSECONDS
"""Microseconds for which a generation is kept after the store has saved a later one: longer than
any process may hang between its commit and the saving."""

_g = store_generations.c
_ADD: Final = Statement(
    store_generations.insert().values(
        id=bindparam("id"), noted_at=bindparam("now"), accepted_at=bindparam("accepted_at")
    )
)
_FIND: Final = Statement(select(_g.noted_at).where(given(_g.id)))
_NEWEST_AT: Final = Statement(select(func.max(_g.noted_at)))
_FORGET: Final = Statement(
    store_generations.delete().where(_g.noted_at < bindparam("before"), _g.accepted_at.is_(None))
)
_ACCEPTED: Final = Statement(select(func.max(_g.accepted_at)))
_NEWEST: Final = tuple(
    Statement(select(func.max(column)).where(column.is_not(None)))
    for column in (
        blob_objects.c.stored_id,
        uploads.c.id,
        uploads.c.stage_id,
        quarantined_objects.c.stored_id,
    )
)
_NEWEST_STORED: Final = Statement(
    first(
        select(blob_objects.c.stored_id, blob_objects.c.stored_size)
        .where(~blob_objects.c.is_inline, HAS_BYTES, blob_objects.c.damage.is_(None))
        .order_by(blob_objects.c.stored_id.desc())
    )
)
_FIRST_ACCOUNT: Final = Statement(select(func.min(accounts.c.id)))
_UNFINISHED: Final = (
    # Without its row, a session whose id is still valid would seem to have received nothing.
    Statement(
        insert(ended_uploads)
        .from_select(["id"], select(uploads.c.id).where(uploads.c.id.is_not(None)))
        .on_conflict_do_nothing()
    ),
    Statement(uploads.delete()),
    Statement(quarantined_objects.delete()),
)


def is_known(tx: Connection, generation: str) -> bool:
    """Return True if this database has the generation."""
    return began_at(tx, generation) is not None


def began_at(tx: Connection, generation: str) -> int | None:
    """Return when a generation began; None if this database has never had it."""
    row = tx.row(_FIND, id=generation)
    return None if row is None else row[0]


def newest_at(tx: Connection) -> int | None:
    """Return when the newest generation began; None if no blob store was ever used."""
    row = tx.row(_NEWEST_AT)
    return None if row is None else row[0]


def follow(tx: Connection, noted: str | None, generation: str, now: int) -> bool:
    """Insert `generation` as the successor of `noted`, the generation saved in the blob store.

    `noted` is None if the store has none yet. Return False, and change nothing, if `noted` is a
    generation that this database does not have.
    """
    if noted is not None:
        row = tx.row(_FIND, id=noted)
        if row is None:
            return False
        tx.execute(_FORGET, before=row[0] - _REMEMBERED)
    tx.execute(_ADD, id=generation, now=now, accepted_at=None)
    return True


def accept(tx: Connection, generation: str, now: int) -> None:
    """Insert a generation, and record that an operator accepts this database.

    Stored bytes from before `now` that have no row then count as orphans, however many there are.
    """
    tx.execute(_ADD, id=generation, now=now, accepted_at=now)


def accepted_at(tx: Connection) -> int:
    """Return when an operator last accepted this database, or 0 if never."""
    row = tx.row(_ACCEPTED)
    return 0 if row is None or row[0] is None else int(row[0])


def newest_owner(tx: Connection) -> str:
    """Return the newest id under which an object or an upload has bytes; empty if there is none."""
    rows = [tx.row(statement) for statement in _NEWEST]
    return max((row[0] for row in rows if row is not None and row[0] is not None), default="")


def newest_stored(tx: Connection) -> tuple[str, int] | None:
    """Return the stored id and size of the newest object that the blob store must have, or None."""
    row = tx.row(_NEWEST_STORED)
    return None if row is None else (row[0], row[1])


def first_account(tx: Connection) -> str | None:
    """Return the id of the first account, which is never deleted; None if there is no account."""
    row = tx.row(_FIRST_ACCOUNT)
    return None if row is None else row[0]


def forget_unfinished(tx: Connection) -> None:
    """Delete upload sessions and the quarantine: a backup does not contain their files."""
    drop_quarantined_bodies(tx)
    for statement in _UNFINISHED:
        tx.execute(statement)
