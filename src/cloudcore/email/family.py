"""The family of email."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cloudcore.email.ip_pool import IP_POOL
from cloudcore.email.suppression import SUPPRESSION
from cloudcore.email.template import TEMPLATE
from cloudcore.family import CommandGroup, Family
from cloudcore.metering.sku import Sku

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.quotas.limits import Counted


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.email.ip_pools import IP_POOLS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.suppressions import SUPPRESSIONS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.templates import HANDLERS as TEMPLATES  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.resources.routes import standard_routes  # noqa: PLC0415 - the web framework

    return (*standard_routes(SUPPRESSIONS), *standard_routes(IP_POOLS), *TEMPLATES)


MESSAGES: Final = Sku("email.messages", "Messages, by recipient", "1000 messages", 1000)


def _uses() -> Sequence[Counted]:
    from cloudcore.email import ip_pools, suppressions, templates  # noqa: PLC0415 - SQLAlchemy

    return (suppressions.ROWS.counted, ip_pools.ROWS.counted, templates.ROWS.counted)


EMAIL: Final[Family[None]] = Family(
    name="email",
    routes=_routes,
    skus=(MESSAGES,),
    uses=_uses,
    resources=(SUPPRESSION, IP_POOL, TEMPLATE),
    commands=(CommandGroup("use the platform's services", ("cloudcore.email.commands",)),),
)
