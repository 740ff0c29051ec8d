"""The compute family at run time: its routes, job kind, reconciler and samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.compute import routes, rows
from cloudcore.compute.instance_pool import CPU_HOURS, MEMORY_HOURS
from cloudcore.compute.needs import ComputeNeeds, open_needs
from cloudcore.compute.pools import INSTANCE_POOLS, PLACING, WORK
from cloudcore.compute.reconciler import LOOK_SECONDS, InstanceReconciler
from cloudcore.family import Runtime
from cloudcore.nodes.node import Watch
from cloudcore.resources.routes import handlers_of


def _on_node(needs: ComputeNeeds) -> Sequence[Watch]:
    if needs.driver is None:
        return ()
    return (Watch("the instances", LOOK_SECONDS, InstanceReconciler(needs, needs.driver).run),)


RUNTIME: Final[Runtime[ComputeNeeds]] = Runtime(
    open=open_needs,
    routes=handlers_of(INSTANCE_POOLS, routes),
    job_kinds=lambda needs: (WORK.job_kind(needs, needs.node.name),),
    on_node=_on_node,
    placings=(PLACING,),
    expiry=(rows.forget_deleted,),
    samples={MEMORY_HOURS.name: rows.memory_by_account, CPU_HOURS.name: rows.cpu_by_account},
    uses=(rows.POOLS.counted, rows.WANTED_INSTANCES, rows.WANTED_MEMORY),
)
