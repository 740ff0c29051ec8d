"""``entrepot load-balancers``: one address in front of the instances of a VPC."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Option
from cloudcore.loadbalancer.load_balancer import LOAD_BALANCER
from cloudcore.resources.commands import noun_of

_OPTIONS: Final = (
    Option("listeners", "a listener, in JSON; repeatable, replaces all", "documents", "listener"),
    Option("backends", "a backend, in JSON; repeatable, replaces all", "documents", "backend"),
    Option("security_groups", "what may reach it: name, id or CRN of a security group", "texts"),
)
_SUBNET: Final = Option(
    "subnet", "the subnet that it is in: name, id or CRN; fixed", is_required=True
)
_HEALTH: Final = (
    "backend",
    "address",
    Cell("INSTANCE", "instance_id", "whole"),
    Cell("PORT", "port", "number"),
    "state",
)


def _show_targets(run: Invocation) -> bool:
    """Show the targets and their health; return False if one is not healthy."""
    found = [
        {"backend": backend["name"], **each}
        for backend in run.record["backends"]
        for each in backend["health"]
    ]
    run.show_rows(found, _HEALTH)
    for fault in run.record["faults"]:
        run.warn(f"{fault['code']}: {fault['message']}")
    return all(each["state"] == "healthy" for each in found)


_NOUN: Final = noun_of(
    LOAD_BALANCER,
    words="load balancers: one address before instances",
    options=_OPTIONS,
    created="Creating {name} at {vip}; 'entrepot load-balancers show {name}' has its status",
    delete_words="tear a load balancer down",
    question="Tear the load balancer {name} down?",
    commands=(
        Command(
            "targets", "show where connections go, and if all is well there", run=_show_targets
        ),
        Command("metrics", "show what it has served", "metrics", "GET", answer="metrics"),
    ),
)
assert _NOUN.create is not None
COMMANDS: Final = (replace(_NOUN, create=(*_NOUN.create, _SUBNET)),)
