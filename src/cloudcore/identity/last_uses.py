"""Record when keys, roles and container passwords were last used.

Uses are collected in memory, and written by the hour.
"""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.identity.rows.container_passwords import note_container_password_use
from cloudcore.identity.rows.key_owners import note_key_use
from cloudcore.identity.rows.roles import note_role_use

FLUSH_SECONDS: Final = 60
"""How long a use may wait in memory."""

_HOUR: Final = 3600 * MICROSECONDS


class LastUses:
    """The uses in this process since the last flush; one write per hour and what was used.

    A process notes each principal in a dictionary only, so that a request waits for no write.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._keys: dict[str, int] = {}
        self._roles: dict[str, int] = {}
        self._passwords: dict[str, int] = {}
        self._written: dict[str, int] = {}

    def note(self, principal: Principal) -> None:
        """Record that a principal acts now: by its access key, or as a role."""
        if principal.kind is PrincipalKind.ROLE_SESSION:
            self._note(self._roles, principal.id)
            if principal.container_password_id is not None:
                self._note(self._passwords, principal.container_password_id)
        elif principal.access_key_id is not None:
            self.note_key(principal.access_key_id)

    def note_key(self, key_id: str) -> None:
        """Record that an access key is used now; `key_id` is the id of its row."""
        self._note(self._keys, key_id)

    def _note(self, uses: dict[str, int], row_id: str) -> None:
        now = self._clock()
        hour = now - now % _HOUR
        if self._written.get(row_id) != hour:
            uses[row_id] = hour

    async def flush(self) -> None:
        """Write the recorded uses; keep them for the next flush if the database fails."""
        keys, roles, passwords = self._keys, self._roles, self._passwords
        if not keys and not roles and not passwords:
            return
        self._keys, self._roles, self._passwords = {}, {}, {}
        try:
            await self._database.write_relaxed(_write, keys, roles, passwords)
        except BaseException:
            self._keys, self._roles = keys | self._keys, roles | self._roles
            self._passwords = passwords | self._passwords
            raise
        written = keys | roles | passwords
        hour = max(written.values())
        self._written = {
            row_id: each for row_id, each in (self._written | written).items() if each == hour
        }


def _write(
    tx: Connection, keys: dict[str, int], roles: dict[str, int], passwords: dict[str, int]
) -> None:
    # Sorted, so that two processes lock rows in the same order and never deadlock.
    for key_id, hour in sorted(keys.items()):
        note_key_use(tx, key_id, hour)
    for role_id, hour in sorted(roles.items()):
        note_role_use(tx, role_id, hour)
    for password_id, hour in sorted(passwords.items()):
        note_container_password_use(tx, password_id, hour)
