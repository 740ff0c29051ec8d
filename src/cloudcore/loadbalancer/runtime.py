"""The load balancer family at run time: its routes, job kind and watch."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.loadbalancer import routes, rows, watch
from cloudcore.loadbalancer.balancers import LOAD_BALANCERS
from cloudcore.loadbalancer.load_balancer import HOURS
from cloudcore.loadbalancer.needs import LoadBalancerNeeds, open_needs
from cloudcore.loadbalancer.workflow import WORK
from cloudcore.nodes.node import Watch
from cloudcore.nodes.rows import Placing
from cloudcore.resources.routes import handlers_of

RUNTIME: Final[Runtime[LoadBalancerNeeds]] = Runtime(
    open=open_needs,
    routes=handlers_of(LOAD_BALANCERS, routes),
    job_kinds=lambda needs: (WORK.job_kind(needs, needs.node.name),),
    on_node=lambda needs: (
        Watch("the proxies of load balancers", watch.EVERY_SECONDS, watch.ProxyWatch(needs).turn),
    ),
    placings=(Placing(rows.ROWS, WORK.wake),),
    samples={HOURS.name: lambda database: database.read(rows.counted)},
    uses=(rows.ROWS.counted,),
)
