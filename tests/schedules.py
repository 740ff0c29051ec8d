"""The schedule's rows as tests see them."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from sqlalchemy import select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.jobs.faults import Fault
from cloudcore.jobs.tables import schedules

_ALL: Final = Statement(select(schedules))


class Turn(NamedTuple):
    """A row of the schedule."""

    name: str
    due_at: int
    lease_token: str | None
    ended_at: int | None
    fault: Fault | None


def all_turns(tx: Connection) -> dict[str, Turn]:
    """Return the rows by name."""
    found = {}
    for row in tx.rows(_ALL):
        fault = msgspec.json.decode(row[4], type=Fault) if row[4] else None
        found[row[0]] = Turn(*row)._replace(fault=fault)
    return found
