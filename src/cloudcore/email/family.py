"""The family of email."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cloudcore.email.suppression import SUPPRESSION
from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler
    from sqlalchemy import Table


def _routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.email.suppressions import SUPPRESSIONS  # noqa: PLC0415 - SQLAlchemy
    from cloudcore.resources.routes import standard_routes  # noqa: PLC0415 - the web framework

    return standard_routes(SUPPRESSIONS)


def _tables() -> Sequence[Table]:
    from cloudcore.email import suppressions  # noqa: PLC0415 - SQLAlchemy

    return (suppressions.ROWS.table,)


EMAIL: Final[Family[Any]] = Family(
    name="email",
    routes=_routes,
    tables=_tables,
    resources=(SUPPRESSION,),
    commands=(CommandGroup("use the platform's services", ("cloudcore.email.commands",)),),
)
