"""``GET /v1/usage``: what an account, or each account of an organization, has used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Annotated, Final, Literal

from litestar import get
from msgspec import Meta, field

from cloudcore.account_rows import accounts_of, handle_of
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.metering.needs import MeteringNeeds
from cloudcore.metering.sku import Sku
from cloudcore.metering.usage import HOUR, Sum, UsageSelection, count_sums, list_sums
from cloudcore.resource_names import Crn, UuidParameter
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.organization_scope import account_ref, authorize_organization
from cloudcore.web.pagination import Limit, PageMeta, PageQuery
from cloudcore.web.query import PLUS
from cloudcore.wire import RFC3339, ResponseBody, Timestamp, moment_of, rfc3339

PATH: Final = "/v1/usage"
_HOURS: Final = {"hour": 1, "day": 24}
_DEFAULT_DAYS: Final = 30
_PLACES: Final = Decimal("1e-12")
_Moment = Annotated[Timestamp, PLUS]


class UsageQuery(PageQuery, kw_only=True):
    """The period, SKU and organization whose use is listed."""

    start: (
        Annotated[
            _Moment,
            Meta(
                description="The first moment; its whole hour or day counts. 30 days before `to`."
            ),
        ]
        | None
    ) = field(default=None, name="from")
    end: (
        Annotated[_Moment, Meta(description="The first moment that is not listed; by default now.")]
        | None
    ) = field(default=None, name="to")
    sku: Annotated[str, Meta(max_length=128, description="Only this one.")] = ""
    granularity: Literal["hour", "day"] = "day"
    """Hours and days are in UTC."""
    organization_id: (
        Annotated[
            UuidParameter,
            Meta(
                description="For a person: an organization of the caller's, whose accounts' use"
                " is listed.",
            ),
        ]
        | None
    ) = None
    limit: Limit = 50


class UsageAnswer(ResponseBody):
    """What an account used of one SKU in an hour or a day."""

    start: RFC3339 = field(name="from")
    end: RFC3339 = field(name="to")
    account: ResourceRef
    sku: str
    """The name in the price list."""
    quantity: str
    """A decimal number of `unit`, rounded to 12 places."""
    unit: str
    """The unit that the price is for."""


class ManyUsage(ResponseBody):
    """A page of sums by time, SKU and account; sums of zero are not listed."""

    usage: Sequence[UsageAnswer]
    meta: PageMeta


@get(PATH, opt={"action": "metering:GetUsage", "query": UsageQuery, "statuses": (404,)})
async def list_usage(ctx: Context, needs: Needs[MeteringNeeds]) -> ManyUsage:
    """List what the account has used, by hour or by day.

    With `organization_id`, an owner of an organization, or a member for its bills, lists the use of
    all its accounts. Use of the last seconds may be missing. Hours are kept for 25 months.
    """
    query = ctx.query(UsageQuery)
    accounts = await _accounts(ctx, needs, query.organization_id)
    asked = _asked(query, needs.skus, tuple(accounts), ctx.clock())
    pager = ctx.pager(query, *accounts)

    def read(tx: Connection) -> tuple[list[Sum], int]:
        return list_sums(tx, asked, pager.position, pager.wanted), count_sums(tx, asked)

    sums, meta = pager.cut(*await ctx.database.read(read), key=lambda each: each.place)
    span = asked.hours * HOUR
    return ManyUsage(
        usage=[
            UsageAnswer(
                start=rfc3339(each.span * span),
                end=rfc3339((each.span + 1) * span),
                account=accounts[each.account_id],
                sku=each.sku,
                quantity=quantity_text(each.quantity, needs.skus.get(each.sku)),
                unit=needs.skus[each.sku].unit if each.sku in needs.skus else "",
            )
            for each in sums
        ],
        meta=meta,
    )


async def _accounts(
    ctx: RequestContext, needs: MeteringNeeds, organization_id: str | None
) -> Mapping[str, ResourceRef]:
    """Authorize the route's action; return the accounts to list, by id."""
    if organization_id is None:
        account_id = account_of(ctx)
        ctx.authorize(str(Crn("metering", ctx.settings.region, account_id, "usage", "*")))
        return {account_id: account_ref(account_id, await ctx.database.read(handle_of, account_id))}
    owner_id = await authorize_organization(ctx, organization_id, needs.membership_policy)
    found = await ctx.database.read(accounts_of, owner_id)
    return {account_id: account_ref(account_id, handle) for account_id, handle in found}


def _asked(
    query: UsageQuery, skus: Mapping[str, Sku], accounts: Sequence[str], now: int
) -> UsageSelection:
    """Convert the query to a selection of sums.

    Raise `InvalidInput` if there is no such SKU, or the start is not before the end.
    """
    if query.sku and query.sku not in skus:
        raise InvalidInput(
            f"sku: nothing is metered as {query.sku!r}", field="sku", reason="unknown"
        )
    hours = _HOURS[query.granularity]
    until = -(-_hour_of(query.end, now, up=True) // hours) * hours
    by_default = until - _DEFAULT_DAYS * 24
    first = by_default if query.start is None else _hour_of(query.start, now) // hours * hours
    if first >= until:
        raise InvalidInput("from: is not before to", field="from", reason="out_of_range")
    return UsageSelection(accounts, query.sku, first, until, hours)


def _hour_of(at: datetime | None, now: int, *, up: bool = False) -> int:
    moment = now if at is None else moment_of(at)
    return -(-moment // HOUR) if up else moment // HOUR


def quantity_text(quantity: int, sku: Sku | None) -> str:
    """Convert a number of smallest units to a decimal number of the priced unit."""
    with localcontext(prec=60):
        units = Decimal(quantity) / (1 if sku is None else sku.divisor)
        text = f"{units.quantize(_PLACES, ROUND_HALF_EVEN):f}"
    return text.rstrip("0").rstrip(".")
