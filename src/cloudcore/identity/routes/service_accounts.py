"""``/v1/service-accounts``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import delete, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.identity.lock_out import CHECKED
from cloudcore.identity.names import iam_crn
from cloudcore.identity.routes.fields import Status
from cloudcore.identity.rows.service_accounts import (
    ServiceAccount,
    count_service_accounts,
    list_service_accounts,
)
from cloudcore.identity.services import service_accounts
from cloudcore.uuids import Uuid
from cloudcore.web.callers import account_of
from cloudcore.web.context import RequestContext
from cloudcore.web.listing import read_page
from cloudcore.web.pagination import NamedPageQuery, PageMeta
from cloudcore.wire import RFC3339, ResponseBody, rfc3339


class ServiceAccountRecord(ResponseBody):
    """A service account."""

    id: Uuid
    crn: str
    name: str
    description: str
    status: Status
    last_used_at: RFC3339 | None
    """The last use of one of its keys, rounded down to the hour, but not before that
    key was created; minutes late."""
    created_at: RFC3339
    updated_at: RFC3339


class OneServiceAccount(ResponseBody):
    """A service account, wrapped."""

    service_account: ServiceAccountRecord


class ManyServiceAccounts(ResponseBody):
    """A page of service accounts."""

    service_accounts: Sequence[ServiceAccountRecord]
    meta: PageMeta


def crn_of(service_account: ServiceAccount) -> str:
    """Return the CRN of a service account."""
    return iam_crn(service_account.account_id, "service-account", service_account.name)


def service_account_record(found: ServiceAccount) -> ServiceAccountRecord:
    """Return a service account as a response body."""
    return ServiceAccountRecord(
        id=found.id,
        crn=crn_of(found),
        name=found.name,
        description=found.description,
        status="active" if found.status == "active" else "suspended",
        last_used_at=None if found.last_used_at is None else rfc3339(found.last_used_at),
        created_at=rfc3339(found.created_at),
        updated_at=rfc3339(found.updated_at),
    )


def one(found: ServiceAccount) -> OneServiceAccount:
    """Return a service account as an answer."""
    return OneServiceAccount(service_account=service_account_record(found))


async def authorized(ctx: RequestContext, service_account_id: str) -> ServiceAccount:
    """Authorize the route's action on a service account, and return it."""
    found = await ctx.database.read(
        service_accounts.get_service_account, account_of(ctx), service_account_id
    )
    ctx.authorize(crn_of(found))
    return found


@get("/v1/service-accounts", opt={"action": "iam:ListServiceAccounts", "query": NamedPageQuery})
async def list_account_service_accounts(
    ctx: NamedDependency[RequestContext],
) -> ManyServiceAccounts:
    """List service accounts by name."""
    account_id = account_of(ctx)
    ctx.authorize(iam_crn(account_id, "service-account", "*"))
    query = ctx.query(NamedPageQuery)
    found, meta = await read_page(
        ctx,
        query,
        list_service_accounts,
        count_service_accounts,
        account_id,
        query.name or "",
        key=lambda each: each.name,
    )
    return ManyServiceAccounts(
        service_accounts=[service_account_record(each) for each in found], meta=meta
    )


@get("/v1/service-accounts/{service_account_id:str}", opt={"action": "iam:GetServiceAccount"})
async def get_service_account(
    service_account_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OneServiceAccount:
    """Return a service account."""
    return one(await authorized(ctx, service_account_id))


@delete(
    "/v1/service-accounts/{service_account_id:str}",
    opt={"action": "iam:DeleteServiceAccount", **CHECKED},
)
async def delete_service_account(
    service_account_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> None:
    """Delete a service account with its access keys; its tokens end at once."""
    found = await authorized(ctx, service_account_id)
    await ctx.database.write(service_accounts.delete_service_account, found.account_id, found.id)


HANDLERS: Final = (
    list_account_service_accounts,
    get_service_account,
    delete_service_account,
)
