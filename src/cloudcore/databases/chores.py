"""Let registered clusters be looked at when it is time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.databases.rows import CLUSTERS, due_checks
from cloudcore.databases.work import WORK
from cloudcore.db.base import Connection

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseNeeds

EVERY_SECONDS: Final = 60
_PAGE: Final = 100


async def wake_due(needs: DatabaseNeeds) -> None:
    """Wake the work of registered clusters that are to be looked at."""
    now, after = needs.clock(), ""
    while found := await needs.database.read(due_checks, now, after, _PAGE):
        for place in found:
            await needs.database.write(_wake, *place, now)
        after = found[-1][1]


def _wake(tx: Connection, account_id: str, cluster_id: str, now: int) -> None:
    found = CLUSTERS.find(tx, account_id, cluster_id)
    if found is not None:
        WORK.wake(tx, found, now, hastens=False)
