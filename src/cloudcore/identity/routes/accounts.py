"""``/v1/accounts``: the caller's own account, or the accounts of a person's organizations."""

from __future__ import annotations

from typing import Annotated, Final

from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied
from cloudcore.iam.principal import Principal
from cloudcore.identity.names import check_handle, iam_crn, missing
from cloudcore.identity.needs import IdentityNeeds
from cloudcore.identity.rights.permissions import membership
from cloudcore.identity.routes.common import Answers, Handle, Status
from cloudcore.identity.routes.organizations import (
    home_of,
    membership_policy,
)
from cloudcore.identity.rows.accounts import ACCOUNTS_OF_MEMBERS, OWN_ACCOUNT, Account
from cloudcore.identity.rows.organizations import JOINED, Joined
from cloudcore.identity.services import accounts
from cloudcore.identity.services.members import organization_of
from cloudcore.identity.services.organizations import check_may_create_accounts
from cloudcore.resource_names import Uuid, lower_ids
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of


class CreateAccount(RequestBody):
    """A new account."""

    handle: Handle
    organization: (
        Annotated[Uuid, Meta(max_length=36, description="Id; for persons, who belong to several")]
        | None
    ) = None


class UpdateAccount(RequestBody):
    """Changes of an account; its handle stays."""

    auto_create_repositories: bool | UnsetType = UNSET
    status: Status | UnsetType = UNSET


class AccountRecord(ResponseBody):
    """An account."""

    id: Uuid
    crn: str
    handle: str
    organization: ResourceRef | None
    """The organization that owns the account."""
    status: Status
    auto_create_repositories: bool
    created_at: RFC3339


_ACCOUNT: Final = Answers(AccountRecord, "account")
_ONE: Final = "/v1/accounts/{account_id:str}"


def _caller(ctx: RequestContext) -> Principal:
    assert ctx.caller is not None
    return ctx.caller


def _find(tx: Connection, caller: Principal, account_id: str) -> tuple[Account, Joined | None]:
    """Return (an account, a person's membership in its organization or None for other callers).

    Raise `NotFound` if the account does not exist, or the caller may not know of it.
    """
    if caller.account_id not in (None, account_id):
        raise missing("account")
    account = OWN_ACCOUNT.get(tx, account_id, account_id)
    if caller.account_id is not None:
        return account, None
    joined = JOINED.find(tx, caller.id, account.organization_id or "")
    if joined is None:
        raise missing("account")
    return account, joined


async def _authorized(ctx: RequestContext, account_id: str) -> Account:
    caller = _caller(ctx)
    account, joined = await ctx.database.read(_find, caller, account_id)
    policy = joined and membership(joined.role, caller.crn)
    ctx.authorize(account.crn, resource_policy=policy)
    return account


def _home(tx: Connection, caller: Principal, named: str | None) -> tuple[str, Joined | None]:
    """Return (organization id, the caller's membership or None) for a new account.

    `named` is the id of the organization in the request, if any.
    """
    if caller.account_id is not None:
        organization_id = organization_of(tx, caller.account_id)
        if named not in (None, organization_id):
            raise missing("organization")
        return organization_id, None
    joined = home_of(tx, caller, named)
    return joined.id, joined


@_ACCOUNT.creates(
    "/v1/accounts", "iam:CreateAccount", resource_policy=membership_policy, statuses=(404,)
)
async def create_account(
    data: JSONBody[CreateAccount], ctx: Context, needs: Needs[IdentityNeeds]
) -> Reply[ResponseBody]:
    """Create an account, if the operator allows it, with a role `admin` that the caller may assume.

    An organization has at most 100 accounts.
    """
    check_handle(data.handle)
    caller = _caller(ctx)
    named = data.organization and lower_ids(data.organization)
    organization_id, joined = await ctx.database.read(_home, caller, named)
    policy = joined and membership(joined.role, caller.crn)
    scope = caller.account_id or organization_id
    ctx.authorize(iam_crn(scope, "account", data.handle), resource_policy=policy)
    check_may_create_accounts(ctx, joined)
    account_id, now = ctx.new_id(), ctx.clock()
    add = await needs.prepare_account(account_id, now)
    return await ctx.commit(
        accounts.open_account,
        Account(account_id, organization_id, data.handle, now),
        accounts.Founder(caller.crn, None if joined is None else caller.id),
        ctx.new_id,
        add,
        wrap=_ACCOUNT.one,
        location=lambda made: f"/v1/accounts/{made.id}",
    )


class AccountQuery(PageQuery):
    """Parameters of the list of accounts."""

    handle: str | None = None
    """Only the account with this handle."""


@_ACCOUNT.lists("/v1/accounts", "iam:ListAccounts", AccountQuery)
async def list_accounts(ctx: Context) -> ResponseBody:
    """List accounts by handle: the caller's own, or those of a person's organizations."""
    caller = _caller(ctx)
    ctx.authorize(iam_crn(caller.account_id or caller.organization_id or "", "account", "*"))
    if caller.account_id is None:
        return await _ACCOUNT.page(ctx, ACCOUNTS_OF_MEMBERS, caller.id, query=AccountQuery)
    return await _ACCOUNT.page(ctx, OWN_ACCOUNT, caller.account_id, query=AccountQuery)


@_ACCOUNT.gets(_ONE, "iam:GetAccount")
async def get_account(account_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return an account."""
    return _ACCOUNT.one(await _authorized(ctx, account_id))


@_ACCOUNT.updates(_ONE, "iam:UpdateAccount")
async def update_account(
    account_id: FromPath[str], data: JSONBody[UpdateAccount], ctx: Context
) -> Reply[ResponseBody]:
    """Change an account; only an owner of its organization may suspend or resume it."""
    account = await _authorized(ctx, account_id)
    if data.status is not UNSET and _caller(ctx).account_id is not None:
        raise AccessDenied("only a person, an owner of the organization, sets the status")
    return await ctx.commit(
        accounts.update_account, account.id, changes_of(data), wrap=_ACCOUNT.one
    )
