"""The family of networks: VPCs and what belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cloudcore.family import Family
from cloudcore.ports import known

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.network.needs import NetworkNeeds
    from cloudcore.ports import Offer, Opening


async def _open(opening: Opening) -> NetworkNeeds:
    from cloudcore.network import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _offers() -> Sequence[Offer]:
    from cloudcore.network import needs  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.network.interfaces import Interfaces  # noqa: PLC0415 - SQLAlchemy

    return (known(needs.INTERFACES, Interfaces()),)


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.network import rows  # noqa: F401, PLC0415 - SQLAlchemy

    return ()


NETWORK: Final[Family[NetworkNeeds]] = Family(
    name="network",
    offers=_offers,
    routes=_routes,
)
