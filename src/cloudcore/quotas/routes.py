"""``/v1/quotas``: the use and the limits of an account; operators set limits.

The install's settings name the accounts of the operators; the policies of these accounts decide
which of their principals may set limits. Other accounts can only see their own limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from litestar import delete, get, put
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from cloudcore.account_rows import find_account, handle_of
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, InvalidInput, NotFound
from cloudcore.quotas.limits import EVERY_ACCOUNT, MAX_QUOTA, OperatorLimits, operator_limits
from cloudcore.quotas.needs import QuotaNeeds
from cloudcore.resource_names import Crn
from cloudcore.web.app import Context, Needs
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import PageMeta, PageQuery, read_page
from cloudcore.wire import RequestBody, ResponseBody

PATH: Final = "/v1/quotas"
_ONE: Final = f"{PATH}/{{name:str}}"
_MISSING: Final = NotFound("there is no such quota")

Handle = Annotated[str, Meta(min_length=1, max_length=63)]


class QuotaAnswer(ResponseBody):
    """An account's use and limit of a quota."""

    name: str
    """As in `params.quota` of an error."""
    crn: str
    description: str
    """What is limited."""
    unit: Literal["count", "bytes"]
    per: str
    """What the limit applies to: `account`; a resource such as `queue`; `organization` or `person`,
    whose limit is the same in every account."""
    limit: int
    default: int
    """The limit of an account for which the operator has not set one."""
    used: int | None
    """The current use, counted only up to the limit where counting further would be slow; null
    where the use is not one number for the account."""


class OneQuota(ResponseBody):
    """The body of an answer: a quota."""

    quota: QuotaAnswer


class ManyQuotas(ResponseBody):
    """A page of quotas."""

    quotas: Sequence[QuotaAnswer]
    meta: PageMeta


class AccountQuery(Struct, kw_only=True):
    """The account that an operator selects."""

    account: Handle | None = None
    """Handle or id of another account; for operators only."""


class QuotaPage(PageQuery, kw_only=True):
    """Query of the list."""

    account: Handle | None = None
    """Handle or id of another account; for operators only."""


class SetQuota(RequestBody):
    """A limit that applies from the next request on; existing resources stay."""

    limit: Annotated[int, Meta(ge=0, le=MAX_QUOTA)]
    """A number, or bytes; 0 allows nothing more."""
    account: Handle | None = None
    """Handle or id of the account; without it, the limit applies to all accounts that have no limit
    of their own."""


class LimitAnswer(ResponseBody):
    """A limit that was set."""

    name: str
    account: str | None
    """As in the request; null for all accounts."""
    limit: int


class OneLimit(ResponseBody):
    """The body of an answer: a limit that was set."""

    quota: LimitAnswer


def _crn(region: str, account_id: str, name: str) -> str:
    return str(Crn("quotas", region, account_id, "quota", name))


def _authorize(ctx: RequestContext, name: str) -> str:
    """Authorize the action on the caller's quotas with this name; return the caller's account."""
    account_id = account_of(ctx)
    ctx.authorize(_crn(ctx.settings.region, account_id, name))
    return account_id


def _account_asked(
    ctx: RequestContext, needs: QuotaNeeds, account: str | None, tx: Connection
) -> str:
    """Return the id of the account whose quotas are requested; by default the caller's own.

    Raise `AccessDenied` or `NotFound` as `_other` does.
    """
    own = account_of(ctx)
    if account is None or account == own:
        return own
    return _other(needs, own, account, tx)


def _other(needs: QuotaNeeds, operator: str, account: str, tx: Connection) -> str:
    """Return the id of the account with the handle or id `account`.

    Raise `AccessDenied` if the account `operator` is not an operator's, `NotFound` if there is no
    such account.
    """
    _check_operator(needs, operator, tx)
    found = find_account(tx, account)
    if found is None:
        raise NotFound("there is no such account")
    return found


def _check_operator(needs: QuotaNeeds, account_id: str, tx: Connection) -> None:
    if handle_of(tx, account_id) not in needs.operators:
        raise AccessDenied(
            "this is for operators: the setting operators of the install names their accounts"
        )


def _read(
    tx: Connection,
    needs: QuotaNeeds,
    names: Sequence[str],
    account_id: str,
    region: str,
    now: int,
) -> list[QuotaAnswer]:
    """Return quotas of an account for the response; each is counted by one query."""
    set_limits = operator_limits(tx, account_id)

    def answer(name: str) -> QuotaAnswer:
        (quota, counted), limits = needs.known[name], set_limits.get(name, OperatorLimits())
        default = needs.defaults.get(name, quota.default)
        use = None if counted is None else counted.read(tx, account_id, region=region, now=now)
        return QuotaAnswer(
            name=name,
            crn=_crn(region, account_id, name),
            description=quota.words,
            unit=quota.unit,
            per=quota.per,
            limit=limits.limit(default),
            default=limits._replace(own=None).limit(default),
            used=None if use is None else use.used,
        )

    return [answer(name) for name in names]


@get(PATH, opt={"action": "quotas:ListQuotas", "query": QuotaPage, "statuses": (404,)})
async def list_quotas(ctx: Context, needs: Needs[QuotaNeeds]) -> ManyQuotas:
    """List the account's quotas by name, with the use of each."""
    region, now, query = ctx.settings.region, ctx.clock(), ctx.query(QuotaPage)
    _authorize(ctx, "*")

    def rows(tx: Connection, after: str, limit: int) -> Sequence[QuotaAnswer]:
        account_id = _account_asked(ctx, needs, query.account, tx)
        names = sorted(each for each in needs.known if each > after)[:limit]
        return _read(tx, needs, names, account_id, region, now)

    def count(_tx: Connection) -> int:
        return len(needs.known)

    found, meta = await read_page(ctx, query, rows, count, key=lambda each: each.name)
    return ManyQuotas(quotas=found, meta=meta)


@get(_ONE, opt={"action": "quotas:GetQuota", "query": AccountQuery, "statuses": (404,)})
async def get_quota(ctx: Context, needs: Needs[QuotaNeeds], name: FromPath[str]) -> OneQuota:
    """Return one of the account's quotas, with its use."""
    region, account = ctx.settings.region, ctx.query(AccountQuery).account
    if name not in needs.known:
        account_of(ctx)
        raise _MISSING
    _authorize(ctx, name)

    def read(tx: Connection) -> QuotaAnswer:
        account_id = _account_asked(ctx, needs, account, tx)
        (found,) = _read(tx, needs, [name], account_id, region, ctx.clock())
        return found

    return OneQuota(quota=await ctx.database.read(read))


@put(_ONE, opt={"action": "quotas:SetQuota", "statuses": (404,)})
async def set_quota(
    name: FromPath[str], data: JSONBody[SetQuota], ctx: Context, needs: Needs[QuotaNeeds]
) -> OneLimit:
    """Set a limit for an account, or for all accounts; only operators may do this."""
    await _change(ctx, needs, name, data.account, data.limit)
    return OneLimit(quota=LimitAnswer(name=name, account=data.account, limit=data.limit))


@delete(_ONE, opt={"action": "quotas:ResetQuota", "query": AccountQuery, "statuses": (404,)})
async def reset_quota(name: FromPath[str], ctx: Context, needs: Needs[QuotaNeeds]) -> None:
    """Delete a limit that was set; the limit for all accounts, or the default, applies again."""
    await _change(ctx, needs, name, ctx.query(AccountQuery).account, None)


async def _change(
    ctx: RequestContext, needs: QuotaNeeds, name: str, account: str | None, limit: int | None
) -> None:
    operator, region = _authorize(ctx, name), ctx.settings.region

    def change(tx: Connection) -> None:
        _check_operator(needs, operator, tx)
        known = needs.known.get(name)
        if known is None:
            raise _MISSING
        account_id = EVERY_ACCOUNT
        if account is not None:
            if not known.quota.has_limits_of_accounts:
                raise InvalidInput(
                    f"{name} are of each {known.quota.per}, not of an account",
                    field="account",
                    reason="not_of_account",
                )
            account_id = _other(needs, operator, account, tx)
        ctx.event_owner = account_id or operator
        ctx.details |= {"account": account_id or "every", "limit": limit}
        if not needs.change(tx, account_id, name, limit, region, ctx.clock()):
            raise NotFound("no limit of this quota was set", reason="not_set")

    await ctx.database.write(change)
