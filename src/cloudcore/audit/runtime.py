"""The audit family in a server."""

from __future__ import annotations

from typing import Final

from cloudcore.audit import routes
from cloudcore.audit.log import OFFERS, AuditNeeds, open_needs
from cloudcore.audit.rows import forget_events
from cloudcore.clock import MICROSECONDS
from cloudcore.db.rows import forget_all
from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.resources.routes import handlers_of

_HOUR: Final = 3600


async def _forget(needs: AuditNeeds) -> None:
    before = needs.clock() - needs.kept_seconds * MICROSECONDS
    await forget_all(needs.database, forget_events, before)


RUNTIME: Final[Runtime[AuditNeeds]] = Runtime(
    open=open_needs,
    offers=OFFERS,
    routes=handlers_of(routes),
    schedule=scheduled(("audit.expired_events", _HOUR, _forget)),
)
