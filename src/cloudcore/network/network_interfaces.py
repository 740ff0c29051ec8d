"""``/v1/network-interfaces``: who has which address; other families make and change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.network.network_interface import NetworkInterface
from cloudcore.network.rows import INTERFACES as ROWS
from cloudcore.network.security_group import SECURITY_GROUP
from cloudcore.resources.bodies import Composite
from cloudcore.resources.methods import Methods
from cloudcore.web.references import ResourceRef


def _show(found: NetworkInterface) -> Sequence[ResourceRef]:
    of = (found.region, found.account_id)
    return [
        ResourceRef(id=each.id, crn=SECURITY_GROUP.crn(*of, each.name), name=each.name)
        for each in found.security_groups
    ]


NETWORK_INTERFACES: Final = Methods(
    ROWS,
    composites=(
        Composite(
            name="security_groups",
            words="The groups whose rules hold for it.",
            shown=Sequence[ResourceRef],
            is_always=True,
            show=_show,
        ),
    ),
)
