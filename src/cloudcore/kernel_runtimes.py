"""The metering and quotas families in a server."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.metering import needs as metering
from cloudcore.metering import routes as usage_routes
from cloudcore.metering import sampling
from cloudcore.quotas import needs as quotas
from cloudcore.quotas import routes as quota_routes
from cloudcore.resources.routes import handlers_of


async def _sample(needs: metering.MeteringNeeds) -> None:
    await sampling.sample(needs.database, needs.clock, needs.region, needs.samples)


METERING: Final[Runtime[metering.MeteringNeeds]] = Runtime(
    open=metering.open_needs,
    routes=handlers_of(usage_routes),
    schedule=scheduled(("metering.samples", sampling.EVERY_SECONDS, _sample)),
)
QUOTAS: Final[Runtime[quotas.QuotaNeeds]] = Runtime(
    open=quotas.open_needs, routes=handlers_of(quota_routes)
)
