"""The numbers of live repositories in an account, and in each folder of their names.

A folder is a name's prefix up to and including one of its slashes; the empty folder holds all
repositories. A transaction that inserts, deletes or restores a repository updates the numbers.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, ZERO, count, given, value
from cloudcore.db.statement import Statement, listed, text_list
from registry.metadata.control_tables import repository_folders

_f = repository_folders.c
_folders = listed("folders").subquery("folders")
_IN_THEM: Final = (given(_f.account_id), _f.folder.in_(listed("folders")))
# Ordered, so that concurrent changes wait for each other at the empty folder.
_ADD: Final = Statement(
    insert(repository_folders)
    .from_select(
        ["account_id", "folder", "repository_count"],
        select(value("account_id", _f.account_id), _folders.c.value, ONE)
        .where(text("true"))  # else SQLite reads ON CONFLICT as a join's ON
        .order_by(_folders.c.value),
    )
    .on_conflict_do_update(
        index_elements=["account_id", "folder"],
        set_={"repository_count": _f.repository_count + ONE},
    )
)
_LOCK: Final = Statement(
    select(_f.folder).where(given(_f.account_id), _f.folder == text("''")).with_for_update()
)
_TAKE: Final = Statement(
    repository_folders.update().where(*_IN_THEM).values(repository_count=_f.repository_count - ONE)
)
_REMOVE_EMPTY: Final = Statement(
    repository_folders.delete().where(*_IN_THEM, _f.repository_count == ZERO)
)
_COUNT: Final = Statement(select(_f.repository_count).where(given(_f.account_id, _f.folder)))


def _folders_of(name: str) -> list[str]:
    """Return the folders that hold a repository of this name, the empty folder first."""
    ends = (place + 1 for place, letter in enumerate(name) if letter == "/")
    return ["", *(name[:end] for end in ends)]


def count_in(tx: Connection, account_id: str, folder: str) -> int:
    """Return the number of live repositories in a folder, at any depth."""
    return count(tx, _COUNT, account_id=account_id, folder=folder)


def add_to_folders(tx: Connection, account_id: str, name: str) -> None:
    """Increment the counts of the folders that hold a new or restored repository."""
    tx.execute(_ADD, account_id=account_id, folders=text_list(_folders_of(name)))


def take_from_folders(tx: Connection, account_id: str, name: str) -> None:
    """Decrement the counts of the folders that held a deleted repository."""
    folders = text_list(_folders_of(name))
    tx.row(_LOCK, account_id=account_id)
    tx.execute(_TAKE, account_id=account_id, folders=folders)
    tx.execute(_REMOVE_EMPTY, account_id=account_id, folders=folders)
