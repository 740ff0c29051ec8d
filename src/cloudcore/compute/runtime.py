"""The compute family at run time: its routes, job kind, reconciler and samples."""

from __future__ import annotations

from typing import Final

from cloudcore.compute import reconciler, routes, rows
from cloudcore.compute.instance_pool import CPU_HOURS, MEMORY_HOURS
from cloudcore.compute.needs import ComputeNeeds, open_needs
from cloudcore.compute.pools import INSTANCE_POOLS, PLACING, WORK
from cloudcore.family import Runtime
from cloudcore.resources.routes import handlers_of

RUNTIME: Final[Runtime[ComputeNeeds]] = Runtime(
    open=open_needs,
    routes=handlers_of(INSTANCE_POOLS, routes),
    job_kinds=lambda needs: (WORK.job_kind(needs, needs.node.name),),
    on_node=lambda needs: (reconciler.watch(needs, needs.driver),) if needs.driver else (),
    placings=(PLACING,),
    expiry=(rows.forget_deleted,),
    samples={MEMORY_HOURS.name: rows.memory_by_account, CPU_HOURS.name: rows.cpu_by_account},
    uses=(rows.POOLS.counted, rows.WANTED_INSTANCES, rows.WANTED_MEMORY),
)
