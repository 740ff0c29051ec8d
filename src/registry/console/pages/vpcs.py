"""VPCs, with the picture of what reaches what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cloudcore.network.resources import VPC as OF_VPC
from registry.console import vpc_map
from registry.console.control_plane import unless_refused
from registry.console.described_nouns import noun_of
from registry.console.noun_pages import Shown
from registry.console.page_request import PageRequest


async def _read_reachability(page: PageRequest, vpc: Shown) -> Mapping[str, Any]:
    found = await unless_refused(page.api.get(f"{OF_VPC.path}/{vpc['id']}/reachability"))
    told = None if found is None else found["reachability"]
    return {
        "told": told,
        "picture": None if told is None else vpc_map.vpc_map(told),
        "traffic": vpc_map.traffic_in_words,
        "flow": vpc_map.flow_in_words,
        "place": vpc_map.place_in_words,
    }


VPC: Final = replace(noun_of(OF_VPC), parts="noun_vpc.html", more=_read_reachability)
