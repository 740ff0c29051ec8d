"""The family of email."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cloudcore.email.ip_pool import IP_POOL
from cloudcore.email.message import MESSAGE
from cloudcore.email.suppression import SUPPRESSION
from cloudcore.email.template import TEMPLATE
from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.db.deletion import Forget


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.email.ip_pools import IP_POOLS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.messages import HANDLERS as MESSAGES  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.suppressions import SUPPRESSIONS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.email.templates import HANDLERS as TEMPLATES  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.resources.routes import standard_routes  # noqa: PLC0415 - the web framework

    return (*standard_routes(SUPPRESSIONS), *standard_routes(IP_POOLS), *TEMPLATES, *MESSAGES)


def _expiry() -> Sequence[Forget]:
    from cloudcore.email import message_rows  # noqa: PLC0415 - SQLAlchemy

    return (message_rows.forget_content, message_rows.forget, message_rows.forget_rates)


EMAIL: Final[Family[None]] = Family(
    name="email",
    routes=_routes,
    resources=(SUPPRESSION, IP_POOL, TEMPLATE, MESSAGE),
    expiry=_expiry,
    commands=(CommandGroup("use the platform's services", ("cloudcore.email.commands",)),),
)
