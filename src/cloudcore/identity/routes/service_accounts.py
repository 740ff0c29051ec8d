"""``/v1/service-accounts``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from litestar import delete, get
from litestar.di import NamedDependency
from litestar.params import FromPath

from cloudcore.identity.lock_out import CHECKED
from cloudcore.identity.routes.fields import Status
from cloudcore.identity.routes.owned import authorized, list_of_account, shown
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS, ServiceAccount
from cloudcore.identity.services import service_accounts
from cloudcore.uuids import Uuid
from cloudcore.web.context import RequestContext
from cloudcore.web.pagination import NamedPageQuery, PageMeta
from cloudcore.wire import RFC3339, ResponseBody


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


def service_account_record(found: ServiceAccount) -> ServiceAccountRecord:
    """Return a service account as a response body."""
    return shown(ServiceAccountRecord, found, crn=SERVICE_ACCOUNTS.crn_of(found))


def one(found: ServiceAccount) -> OneServiceAccount:
    """Return a service account as an answer."""
    return OneServiceAccount(service_account=service_account_record(found))


@get("/v1/service-accounts", opt={"action": "iam:ListServiceAccounts", "query": NamedPageQuery})
async def list_account_service_accounts(
    ctx: NamedDependency[RequestContext],
) -> ManyServiceAccounts:
    """List service accounts by name."""
    found, meta = await list_of_account(ctx, SERVICE_ACCOUNTS)
    return ManyServiceAccounts(
        service_accounts=[service_account_record(each) for each in found], meta=meta
    )


@get("/v1/service-accounts/{service_account_id:str}", opt={"action": "iam:GetServiceAccount"})
async def get_service_account(
    service_account_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> OneServiceAccount:
    """Return a service account."""
    return one(await authorized(ctx, SERVICE_ACCOUNTS, service_account_id))


@delete(
    "/v1/service-accounts/{service_account_id:str}",
    opt={"action": "iam:DeleteServiceAccount", **CHECKED},
)
async def delete_service_account(
    service_account_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> None:
    """Delete a service account with its access keys; its tokens end at once."""
    found = await authorized(ctx, SERVICE_ACCOUNTS, service_account_id)
    await ctx.database.write(service_accounts.delete_service_account, found.account_id, found.id)


HANDLERS: Final = (
    list_account_service_accounts,
    get_service_account,
    delete_service_account,
)
