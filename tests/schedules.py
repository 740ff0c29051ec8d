"""The schedule's rows as tests see them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import select

from cloudcore.clock import system_clock
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.jobs.faults import Fault
from cloudcore.jobs.queue import later
from cloudcore.jobs.tables import schedules

_ALL: Final = Statement(select(schedules))
_POSTPONE_SECONDS: Final = 400
"""Longer than a test takes. What is later than a period and two leases is taken for the work of a
wrong clock, and then due at once."""


class Turn(NamedTuple):
    """A row of the schedule."""

    name: str
    due_at: int
    lease_token: str | None
    lease_holder: str | None
    ended_at: int | None
    fault: Fault | None


def all_turns(tx: Connection) -> dict[str, Turn]:
    """Return the rows by name."""
    found = {}
    for row in tx.rows(_ALL):
        fault = msgspec.json.decode(row[5], type=Fault) if row[5] else None
        found[row[0]] = Turn(*row)._replace(fault=fault)
    return found


def postpone(data: Path, chore: str) -> None:
    """Have no turn of a chore fall into a test of the registry over `data`, which may be running.

    The turns are at full multiples of their period since the epoch, whenever a registry starts.
    """
    due_at = later(system_clock(), _POSTPONE_SECONDS)
    with closing(sqlite3.connect(data / "metadata.db", timeout=30)) as raw, raw:
        raw.execute(
            "INSERT INTO schedules (name, due_at) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at",
            (chore, due_at),
        )
