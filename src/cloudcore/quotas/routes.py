"""``GET /v1/quotas``: how much the caller's account has and may have.

Limits are set on the machine of the install, as all that only its operator may do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.crn import Crn
from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.quotas.known import Allowance, QuotaNeeds
from cloudcore.web.app import Needs
from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery, read_page
from cloudcore.wire import ResponseBody

PATH: Final = "/v1/quotas"


class QuotaAnswer(ResponseBody):
    """How much the account has and may have of something."""

    name: str
    """As in `params.quota` of an error."""
    crn: str
    description: str
    """What is limited."""
    unit: Literal["count", "bytes"]
    per: str
    """What has the limit: `account`, or one of its things, such as `queue`."""
    limit: int
    default: int
    """The limit of an account for which the operator has set none."""
    used: int | None
    """What counts at this moment, up to the limit where counting on would be slow; null where it is
    not one number for the account."""


class OneQuota(ResponseBody):
    """A quota, wrapped."""

    quota: QuotaAnswer


class ManyQuotas(ResponseBody):
    """A page of quotas."""

    quotas: Sequence[QuotaAnswer]
    meta: PageMeta


def _crn(ctx: RequestContext, name: str) -> str:
    return str(Crn("quotas", ctx.settings.region, account_of(ctx), "quota", name))


def _answer(ctx: RequestContext, found: Allowance) -> QuotaAnswer:
    quota = found.quota
    return QuotaAnswer(
        name=quota.name,
        crn=_crn(ctx, quota.name),
        description=quota.words,
        unit=quota.unit,
        per=quota.per,
        limit=found.limit,
        default=found.default,
        used=found.used,
    )


@get(PATH, opt={"action": "quotas:ListQuotas", "query": PageQuery})
async def list_quotas(ctx: NamedDependency[RequestContext], needs: Needs[QuotaNeeds]) -> ManyQuotas:
    """List the account's quotas by name, with what it has of each."""
    account_id, region, now = account_of(ctx), ctx.settings.region, ctx.clock()
    query = ctx.query(PageQuery)
    ctx.authorize(_crn(ctx, "*"))

    def rows(tx: Connection, after: str, limit: int) -> Sequence[Allowance]:
        return needs.read(tx, needs.names(after, limit), account_id, region, now)

    def count(_tx: Connection) -> int:
        return len(needs.known)

    found, meta = await read_page(ctx, query, rows, count, key=lambda each: each.quota.name)
    return ManyQuotas(quotas=[_answer(ctx, each) for each in found], meta=meta)


@get(f"{PATH}/{{name:str}}", opt={"action": "quotas:GetQuota", "statuses": (404,)})
async def get_quota(
    ctx: NamedDependency[RequestContext], needs: Needs[QuotaNeeds], name: FromPath[str]
) -> OneQuota:
    """Return one of the account's quotas, with what it has of it."""
    account_id = account_of(ctx)
    if name not in needs.known:
        raise NotFound("there is no such quota")
    ctx.authorize(_crn(ctx, name))
    (found,) = await ctx.database.read(
        needs.read, [name], account_id, ctx.settings.region, ctx.clock()
    )
    return OneQuota(quota=_answer(ctx, found))


HANDLERS: Final = (list_quotas, get_quota)
