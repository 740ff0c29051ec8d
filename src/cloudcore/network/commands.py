"""The commands of networks: ``vpcs``, ``subnets``, ``route-tables`` and so on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Option, argument, method_command
from cloudcore.network.driver import Direction, RuleProtocol
from cloudcore.network.resources import (
    EGRESS_ONLY_GATEWAY,
    INTERNET_GATEWAY,
    NETWORK_INTERFACE,
    ROUTE_TABLE,
    SECURITY_GROUP,
    SUBNET,
    VPC,
)
from cloudcore.resources.commands import noun_of


def _ports(rule: Mapping[str, Any]) -> str:
    first, last = rule.get("port_from"), rule.get("port_to")
    if first is None:
        return "all"
    return str(first) if first == last else f"{first}-{last}"


_ROUTES: Final = (Cell("DESTINATION", "destination", "whole"), Cell("TARGET", "target", "whole"))
_RULES: Final = (
    "direction",
    "protocol",
    Cell("PORTS", "ports", shown=_ports),
    Cell("PEER", "peer", "whole", lambda rule: rule.get("source") or rule.get("destination")),
)


def _add_route(run: Invocation) -> None:
    new = run.values
    others = [r for r in run.record["routes"] if r["destination"] != new["destination"]]
    _put(run, "routes", [*others, new], f"{{name}} sends {new['destination']} there")


def _remove_route(run: Invocation) -> None:
    gone = run.values["destination"]
    others = [each for each in run.record["routes"] if each["destination"] != gone]
    _put(run, "routes", others, f"{{name}} has no route to {gone}")


def _allow(run: Invocation) -> None:
    _put(run, "rules", [*run.record["rules"], run.values], "Added a rule to {name}")


def _revoke(run: Invocation) -> bool:
    if not run.values:
        run.warn("say which rules, such as by --direction inbound; nothing was changed")
        return False
    rules = [each for each in run.record["rules"] if not _is_meant(each, run.values)]
    gone = len(run.record["rules"]) - len(rules)
    _put(run, "rules", rules, f"Took {gone} of its rules from {{name}}")
    return True


def _is_meant(rule: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return True if a rule has all the passed values; a group may be passed by its name."""
    return all(
        rule.get(name) == value or str(rule.get(name)).endswith(f":security-group/{value}")
        for name, value in given.items()
    )


def _put(run: Invocation, field: str, values: Sequence[Any], said: str) -> None:
    (changed,) = run.client.call("PATCH", run.path, {field: values}).values()
    run.say(run.text(said, changed), changed)


_VPC: Final = Option("vpc", "VPC that gets the uplink: name, id or CRN", is_required=True)
_DESTINATION: Final = argument("destination", "network, such as ::/0", metavar="NETWORK")
_RULE: Final = (
    Option("direction", "who begins the flow", choices=get_args(Direction), is_required=True),
    Option("protocol", "of the flow", choices=get_args(RuleProtocol), is_required=True),
    Option("port_from", "first port of the destination; by default every port", "number"),
    Option("port_to", "last port; by default the first alone", "number"),
    Option("source", "of an inbound rule: a network, or a security group"),
    Option("destination", "of an outbound rule: a network, or a security group"),
)
COMMANDS: Final = (
    noun_of(VPC, words="networks of the account's own"),
    noun_of(SUBNET, words="parts of VPCs, which addresses are had from"),
    noun_of(
        ROUTE_TABLE,
        words="where the packets of subnets go",
        commands=(
            Command(
                verb="routes",
                words="show the routes of one",
                run=lambda run: run.show_rows(run.record["routes"], _ROUTES),
            ),
            Command(
                verb="add-route",
                words="send packets to a network to a gateway",
                options=(
                    _DESTINATION,
                    argument("target", "internet gateway or egress-only gateway"),
                ),
                run=_add_route,
            ),
            Command(
                verb="remove-route",
                words="take a route away",
                options=(_DESTINATION,),
                run=_remove_route,
            ),
        ),
    ),
    noun_of(
        INTERNET_GATEWAY,
        words="uplinks of VPCs",
        commands=(
            method_command(
                "attach",
                "give a VPC its uplink",
                "internet_gateway",
                "Attached {name} to {vpc.name}",
            )._replace(options=(_VPC,)),
            method_command(
                "detach", "take the uplink from its VPC", "internet_gateway", "Detached {name}"
            ),
        ),
    ),
    noun_of(EGRESS_ONLY_GATEWAY, words="ways out for IPv6 by which nothing comes in"),
    noun_of(
        SECURITY_GROUP,
        words="which flows may begin at instances and load balancers",
        commands=(
            Command(
                verb="rules",
                words="show the rules of one",
                run=lambda run: run.show_rows(run.record["rules"], _RULES),
            ),
            Command(verb="allow", words="let flows begin", options=_RULE, run=_allow),
            Command(
                verb="revoke",
                words="take the rules away that have all that is given",
                options=tuple(each._replace(is_required=False) for each in _RULE),
                run=_revoke,
            ),
        ),
    ),
    noun_of(NETWORK_INTERFACE, words="who has which address of a subnet"),
)
