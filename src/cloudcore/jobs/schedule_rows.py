"""Transactions of the schedule: lease, renew, release and end the turns of chores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import find_all, json_text
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.jobs.faults import Fault, next_fault
from cloudcore.jobs.tables import NO_LEASE, schedules

_s = schedules.c
_IS_OURS: Final = (_s.name == sa.bindparam("chore"), _s.lease_token == sa.bindparam("held"))


_INSERT: Final = Statement(
    insert(schedules)
    .values(name=sa.bindparam("name"), due_at=sa.bindparam("due_at"))
    .on_conflict_do_nothing()
)
_LIST: Final = Statement(
    sa.select(_s.name, _s.due_at).where(_s.name.in_(listed("names"))).order_by(_s.name)
)
_LEASE: Final = Statement(
    sa.update(schedules)
    .where(_s.name.in_(listed("names")), _s.due_at <= sa.bindparam("now"))
    .values(
        lease_token=sa.bindparam("lease_token"),
        lease_holder=sa.bindparam("lease_holder"),
        due_at=sa.bindparam("lease_end"),
    )
    .returning(_s.name)
)
_HASTEN: Final = Statement(
    sa.update(schedules)
    .where(_s.name == sa.bindparam("chore"), _s.due_at == sa.bindparam("seen"))
    .values(due_at=sa.bindparam("now"), **NO_LEASE)
)
_RENEW: Final = Statement(
    sa.update(schedules).where(*_IS_OURS).values(due_at=sa.bindparam("lease_end"))
)
_RELEASE: Final = Statement(
    sa.update(schedules).where(*_IS_OURS).values(due_at=sa.bindparam("now"), **NO_LEASE)
)
_LOCK_OURS: Final = Statement(sa.select(_s.fault).where(*_IS_OURS).with_for_update())
_END: Final = Statement(
    sa.update(schedules)
    .where(*_IS_OURS)
    .values(
        due_at=sa.bindparam("due_at"),
        ended_at=sa.bindparam("now"),
        fault=sa.bindparam("fault"),
        **NO_LEASE,
    )
)


def insert_missing(tx: Connection, due_at: Mapping[str, int]) -> None:
    """Insert rows for the chores that have none; `due_at` maps names to due times."""
    for name in sorted(due_at):
        tx.execute(_INSERT, name=name, due_at=due_at[name])


def due_times(tx: Connection, names: Sequence[str]) -> dict[str, int]:
    """Map each of these chores to its due time: its next turn, or the end of its lease."""
    return {row[0]: row[1] for row in tx.rows(_LIST, names=text_list(names))}


def lease(
    tx: Connection,
    names: Sequence[str],
    token: str,
    until: int,
    now: int,
    holder: str | None = None,
) -> list[str]:
    """Lease those of the chores `names` that are still due, and return their names.

    `holder` is the id of the worker process, so that its leases can be freed if it dies.
    """
    return find_all(
        tx,
        str,
        _LEASE,
        names=text_list(names),
        lease_token=token,
        lease_holder=holder,
        lease_end=until,
        now=now,
    )


def hasten(tx: Connection, name: str, seen: int, now: int) -> bool:
    """Make a chore due now, if its due time is still `seen`; otherwise return False."""
    return tx.execute(_HASTEN, chore=name, seen=seen, now=now) == 1


def renew(tx: Connection, name: str, token: str, until: int) -> bool:
    """Extend a lease; return False if it was lost."""
    return tx.execute(_RENEW, chore=name, held=token, lease_end=until) == 1


def release(tx: Connection, name: str, token: str, now: int) -> None:
    """Release a lease before the turn has ended; the chore is then due now."""
    tx.execute(_RELEASE, chore=name, held=token, now=now)


def end(
    tx: Connection, name: str, token: str, due_at: int, fault: tuple[str, str] | None, now: int
) -> bool:
    """End a turn and release its lease; return False, changing nothing, if the lease was lost.

    The next turn starts at `due_at`; `fault` is (code, message) if this turn failed.
    """
    turn, stored = {"chore": name, "held": token}, None
    if fault is not None:
        row = tx.row(_LOCK_OURS, **turn)
        known = msgspec.json.decode(row[0], type=Fault) if row and row[0] else None
        stored = json_text(next_fault(known, *fault, now))
    return tx.execute(_END, **turn, due_at=due_at, fault=stored, now=now) == 1
