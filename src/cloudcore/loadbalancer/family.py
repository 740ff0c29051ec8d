"""The load balancer family: one address in front of the instances of a VPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import CommandGroup, Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.loadbalancer.load_balancer import GET_POOL, HOURS, LOAD_BALANCER

if TYPE_CHECKING:
    from cloudcore.loadbalancer.needs import LoadBalancerNeeds


LOADBALANCER: Final[Family[LoadBalancerNeeds]] = Family(
    name="loadbalancer",
    title="Load balancers",
    runs="cloudcore.loadbalancer.runtime:RUNTIME",
    resources=(LOAD_BALANCER,),
    foreign_kinds=(
        ResourceKind(
            crn="crn:compute:<region>:<account>:instance-pool/<name>", actions=(GET_POOL,)
        ),
    ),
    skus=(HOURS,),
    commands=(CommandGroup("use the platform's services", ("cloudcore.loadbalancer.commands",)),),
)
