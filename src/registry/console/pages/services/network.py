"""VPCs, internet gateways, route tables and security groups: show and change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

import msgspec

from cloudcore.network.driver import Direction, RuleProtocol
from cloudcore.network.resources import INTERNET_GATEWAY, ROUTE_TABLE, SECURITY_GROUP
from cloudcore.network.resources import VPC as OF_VPC
from registry.console.control_plane import unless_refused
from registry.console.nouns.handlers import api_of, one_page, path_of, read_one
from registry.console.nouns.noun_pages import (
    CustomMethod,
    Input,
    NounPages,
    RecordJson,
    read_inputs,
)
from registry.console.nouns.resources import deletion, noun_of
from registry.console.page_request import InjectedPage, PageRequest, PageResponse
from registry.console.pages.services import vpc_map


async def _read_reachability(page: PageRequest, vpc: RecordJson) -> Mapping[str, Any]:
    found = await unless_refused(page.api.get(f"{OF_VPC.path}/{vpc['id']}/reachability"))
    if found is None:
        return {"reachability": None, "picture": None}
    return {**found, "picture": vpc_map.vpc_map(found["reachability"])}


VPC: Final = replace(
    noun_of(OF_VPC),
    parts="noun_vpc.html",
    shows={
        "traffic": vpc_map.traffic_in_words,
        "flow": vpc_map.flow_in_words,
        "place": vpc_map.place_in_words,
    },
    more=_read_reachability,
)


_ATTACHING: Final = (Input("vpc", "VPC", "code", "Name, id or CRN.", is_required=True),)
_ROUTING: Final = (
    Input("destination", "Destination", "code", "A network, such as ::/0.", is_required=True),
    Input(
        "target",
        "Target",
        "code",
        "An internet gateway or an egress-only gateway: name, id or CRN.",
        is_required=True,
    ),
)
_ALLOWING: Final = (
    Input("direction", "Direction", "choice", choices=get_args(Direction), is_required=True),
    Input("protocol", "Protocol", "choice", choices=get_args(RuleProtocol), is_required=True),
    Input("port_from", "First port", "number", "Of the destination; empty: every port."),
    Input("port_to", "Last port", "number", "Empty: the first alone."),
    Input(
        "peer",
        "Source or destination",
        "code",
        "A network, such as ::/0, or a security group: name, id or CRN.",
        is_required=True,
    ),
)


def _forms(inputs: Sequence[Input]) -> Mapping[str, Any]:
    return {"inputs": inputs, "panel_fields": [each.field for each in inputs]}


def _encoded(rule: object) -> str:
    return msgspec.json.encode(rule).decode()


GATEWAY: Final = replace(
    noun_of(INTERNET_GATEWAY),
    created="The internet gateway was created. Attach it to a VPC below.",
    methods=(
        CustomMethod(
            "detach",
            "Detach",
            "network:DetachInternetGateway",
            "It is attached to nothing.",
            asks="Its VPC has no uplink then.",
            can=lambda gateway: gateway["vpc"] is not None,
        ),
        deletion(INTERNET_GATEWAY.noun, INTERNET_GATEWAY.action("delete")),
    ),
    parts="noun_internet_gateway.html",
    shows=_forms(_ATTACHING),
)
TABLE: Final = replace(noun_of(ROUTE_TABLE), parts="noun_route_table.html", shows=_forms(_ROUTING))
GROUP: Final = replace(
    noun_of(SECURITY_GROUP),
    parts="noun_security_group.html",
    shows={**_forms(_ALLOWING), "encoded": _encoded},
)


_TABLE: Final = one_page(TABLE)
_GROUP: Final = one_page(GROUP)


@one_page(GATEWAY).form("/attach")
async def attach_gateway(page: InjectedPage) -> PageResponse:
    """Attach an internet gateway to a VPC."""
    body = read_inputs(_ATTACHING, page.form)
    await page.api.post(f"{api_of(page, GATEWAY)}/attach", body, once=page.once)
    return page.go(path_of(page, GATEWAY), "It is attached.")


@_TABLE.form("/routes", is_nested=True)
async def add_route(page: InjectedPage) -> PageResponse:
    """Add a route, in place of any route with the same destination."""
    new = read_inputs(_ROUTING, page.form)
    routes = (await read_one(page, TABLE))["routes"]
    others = [each for each in routes if each["destination"] != new["destination"]]
    return await _put(page, TABLE, "routes", [*others, new], "The route was added.")


@_TABLE.form("/routes/remove", is_nested=True)
async def remove_route(page: InjectedPage) -> PageResponse:
    """Remove a route."""
    gone = page.form.get("destination")
    routes = (await read_one(page, TABLE))["routes"]
    others = [each for each in routes if each["destination"] != gone]
    return await _put(page, TABLE, "routes", others, "The route was taken away.")


@_GROUP.form("/rules", is_nested=True, fields={"source": "peer", "destination": "peer"})
async def add_rule(page: InjectedPage) -> PageResponse:
    """Add a rule."""
    new = read_inputs(_ALLOWING, page.form)
    new["source" if new["direction"] == "inbound" else "destination"] = new.pop("peer")
    rules = (await read_one(page, GROUP))["rules"]
    return await _put(page, GROUP, "rules", [*rules, new], "The rule was added.")


@_GROUP.form("/rules/remove", is_nested=True)
async def remove_rule(page: InjectedPage) -> PageResponse:
    """Remove the rule that the form contains as JSON."""
    gone = page.form.get("rule")
    rules = (await read_one(page, GROUP))["rules"]
    others = [each for each in rules if _encoded(each) != gone]
    return await _put(page, GROUP, "rules", others, "The rule was taken away.")


async def _put(
    page: PageRequest, noun: NounPages, field: str, values: Sequence[Any], said: str
) -> PageResponse:
    await page.api.change("PATCH", api_of(page, noun), {field: values})
    return page.go(path_of(page, noun), said)
