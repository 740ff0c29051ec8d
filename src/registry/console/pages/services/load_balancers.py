"""Load balancers, with their listeners and the health of their targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cloudcore.loadbalancer import load_balancer
from registry.console.nouns.noun_pages import CREATED, DESCRIPTION, TAGS, Column, Input
from registry.console.nouns.resources import noun_of, slow_deletion

_STATES: Final = {
    "provisioning": "Is being made",
    "active": "Serves",
    "updating": "Is being changed",
    "degraded": "Serves, but something is gone",
    "failed": "Does not serve",
    "deleting": "Is being torn down",
}
_STATE: Final = Column("State", "status", "mark", _STATES, usual="active")
_SUBNET: Final = Column("Subnet", "subnet", "reference")


LOAD_BALANCER: Final = replace(
    noun_of(
        load_balancer.LOAD_BALANCER,
        "A load balancer leads connections to the instances of a VPC that are well.",
    ),
    columns=(_STATE, Column("Address", "vip"), _SUBNET, CREATED),
    details=(CREATED,),
    updates=(
        DESCRIPTION,
        Input(
            "replica_count",
            "Proxies",
            "number",
            "So many share the address.",
        ),
        TAGS,
    ),
    methods=(
        slow_deletion(
            load_balancer.LOAD_BALANCER.action("delete"),
            "The load balancer is being torn down.",
            "Nothing is reached at its address then.",
        ),
    ),
    commands=(
        ("How its targets are", "entrepot load-balancers targets NAME"),
        ("What it served", "entrepot load-balancers metrics NAME"),
    ),
    parts="noun_load_balancer.html",
    shows={"states": _STATES},
)
