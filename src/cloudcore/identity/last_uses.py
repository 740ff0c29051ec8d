"""Record when keys, roles and container passwords were last used.

Uses are collected in memory, and written by the hour.
"""

from __future__ import annotations

from typing import Final

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Database
from cloudcore.iam.principal import Principal, PrincipalKind
from cloudcore.identity.rows.last_uses import Used, note_uses

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
        self._uses: dict[Used, int] = {}
        self._written: dict[Used, int] = {}

    def note(self, principal: Principal) -> None:
        """Record that a principal acts now: by its access key, or as a role."""
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
        """Write the recorded uses; keep them for the next flush if the database fails."""
        uses, self._uses = self._uses, {}
        if not uses:
            return
        try:
            await self._database.write_relaxed(note_uses, uses)
        except BaseException:
            self._uses = uses | self._uses
            raise
        hour = max(uses.values())
        self._written = {
            used: each for used, each in (self._written | uses).items() if each == hour
        }
