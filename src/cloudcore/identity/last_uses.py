"""Record when access keys, roles and container passwords were last used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from sqlalchemy import BindParameter, Table, bindparam, case, or_

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.statement import Statement
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.identity.tables import access_keys, container_passwords, roles

Used = tuple[Literal["key", "role", "password"], str]
"""What was used: its kind, and the id of its row."""


def _note(table: Table) -> Statement:
    c = table.c
    hour: BindParameter[Any] = bindparam("hour")
    return Statement(
        table.update()
        .where(c.id == bindparam("used_id"), or_(c.last_used_at.is_(None), c.last_used_at < hour))
        # At least the time of creation, which may be within the hour.
        .values(last_used_at=case((c.created_at > hour, c.created_at), else_=hour))
    )


_NOTE: Final = {
    "key": _note(access_keys),
    "role": _note(roles),
    "password": _note(container_passwords),
}


def record_uses(tx: Connection, uses: Mapping[Used, int]) -> None:
    """Store the last uses of rows; `uses` maps each to its time, rounded down to the hour."""
    # Sorted, so that two processes lock rows in the same order and never deadlock.
    for kind, note in _NOTE.items():
        for (_, used_id), hour in sorted(each for each in uses.items() if each[0][0] == kind):
            tx.execute(note, used_id=used_id, hour=hour)


FLUSH_SECONDS: Final = 60
"""How long a use may stay in memory before it is written."""

_HOUR: Final = 3600 * MICROSECONDS


class LastUses:
    """Records uses in memory until the next flush; each row is written at most once per hour.

    Requests only update a dictionary, so that none waits for a write.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._uses: dict[Used, int] = {}
        self._written: dict[Used, int] = {}

    def note(self, principal: Principal) -> None:
        """Record that a principal acts now, as a use of its access key, role or container password.

        Persons who have not assumed a role are not recorded.
        """
        if principal.kind is PrincipalKind.ROLE_SESSION:
            self._note(("role", principal.id))
            if principal.container_password_id is not None:
                self._note(("password", principal.container_password_id))
        elif principal.access_key_id is not None:
            self.note_key(principal.access_key_id)

    def note_key(self, key_id: str) -> None:
        """Record that an access key is used now; `key_id` is the id of its row."""
        self._note(("key", key_id))

    def _note(self, used: Used) -> None:
        now = self._clock()
        hour = now - now % _HOUR
        if self._written.get(used) != hour:
            self._uses[used] = hour

    async def flush(self) -> None:
        """Write the recorded uses; if this fails, raise, and keep them for the next flush."""
        uses, self._uses = self._uses, {}
        if not uses:
            return
        try:
            await self._database.write_relaxed(record_uses, uses)
        except BaseException:
            self._uses = uses | self._uses
            raise
        hour = max(uses.values())
        self._written = {
            used: each for used, each in (self._written | uses).items() if each == hour
        }
