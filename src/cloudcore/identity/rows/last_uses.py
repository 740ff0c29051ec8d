"""When access keys, roles and container passwords were last used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from sqlalchemy import BindParameter, Table, bindparam, case, or_

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import access_keys, container_passwords, roles

Used = tuple[Literal["key", "role", "password"], str]
"""What was used: its kind, and the id of its row."""


def _note(table: Table) -> Statement:
    c = table.c
    hour: BindParameter[Any] = bindparam("hour")
    return Statement(
        table.update()
        .where(c.id == bindparam("used_id"), or_(c.last_used_at.is_(None), c.last_used_at < hour))
        # Not before it was created, within the hour.
        .values(last_used_at=case((c.created_at > hour, c.created_at), else_=hour))
    )


_NOTE: Final = {
    "key": _note(access_keys),
    "role": _note(roles),
    "password": _note(container_passwords),
}


def note_uses(tx: Connection, uses: Mapping[Used, int]) -> None:
    """Record what was used in the hours that begin at these moments."""
    # In one order, so that two processes lock rows alike and never deadlock.
    for kind, note in _NOTE.items():
        for (_, used_id), hour in sorted(each for each in uses.items() if each[0][0] == kind):
            tx.execute(note, used_id=used_id, hour=hour)
