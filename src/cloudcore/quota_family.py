"""The family of quotas: how much accounts have and may have of what other families limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cloudcore.family import Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.quotas.quota import NEARLY_REACHED, REACHED

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

    from cloudcore.ports import Opening
    from cloudcore.quotas.needs import QuotaNeeds


async def _open_quotas(opening: Opening) -> QuotaNeeds:
    from cloudcore.quotas import needs  # noqa: PLC0415 - SQLAlchemy

    return await needs.open_needs(opening)


def _quota_routes() -> Sequence[HTTPRouteHandler]:
    from cloudcore.quotas import routes  # noqa: PLC0415 - the web framework

    return routes.HANDLERS


QUOTAS: Final[Family[QuotaNeeds]] = Family(
    name="quotas",
    title="Quotas",
    paths=("/v1/quotas",),
    open=_open_quotas,
    routes=_quota_routes,
    resource_kinds=(
        ResourceKind(
            crn="crn:quotas:<region>:<account>:quota/<name>",
            actions=(
                "quotas:GetQuota",
                "quotas:ListQuotas",
                "quotas:ResetQuota",
                "quotas:SetQuota",
            ),
        ),
    ),
    other_events=(NEARLY_REACHED, REACHED),
    event_words={
        NEARLY_REACHED: "An account has most of what it may have of something",
        REACHED: "An account has all that it may have of something",
    },
)
