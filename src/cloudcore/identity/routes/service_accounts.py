"""``/v1/service-accounts``: create (also with policies and an access key), list, change, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from litestar import post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.errors import invalid_field
from cloudcore.identity.rights.lock_out import CHECKED
from cloudcore.identity.routes.access_keys import (
    NEW_KEY,
    CreateAccessKey,
    NewAccessKeyRecord,
    new_key,
)
from cloudcore.identity.routes.actions import ResourceNames, TemplateName, document_of
from cloudcore.identity.routes.common import Answers, Description, Name, Status, authorized
from cloudcore.identity.routes.policies import PolicyRecord, policy_record
from cloudcore.identity.rows.policies import POLICIES, PolicyRow
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS, ServiceAccount
from cloudcore.identity.services import service_accounts
from cloudcore.identity.services.policies import MAX_ATTACHMENTS
from cloudcore.identity.services.service_accounts import NewGrant
from cloudcore.resource_names import Uuid, check_name
from cloudcore.web.answers import deletes
from cloudcore.web.app import Context
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import NamedPageQuery
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of

_ALL: Final = "/v1/service-accounts"
_ONE: Final = _ALL + "/{service_account_id:str}"
_MAX_NAME: Final = 63


class CreateGrant(RequestBody):
    """A ready-made policy to create and attach."""

    template: TemplateName
    """The name of a template in `GET /v1/policy-templates`."""
    names: ResourceNames
    policy_name: Name | None = None
    """By default, `<service account>-<template>`."""


class CreateServiceAccount(RequestBody):
    """A new service account, optionally with rights and an access key."""

    name: Name
    description: Description = ""
    grants: Annotated[tuple[CreateGrant, ...], Meta(max_length=MAX_ATTACHMENTS)] = ()
    """Ready-made policies to create and attach."""
    access_key: CreateAccessKey | None = None
    """An access key to create; its secret is in the answer."""


class UpdateServiceAccount(RequestBody):
    """Changes of a service account; its name stays."""

    description: Description | UnsetType | None = UNSET
    status: Status | UnsetType = UNSET


class ServiceAccountRecord(ResponseBody):
    """A service account."""

    id: Uuid
    crn: str
    name: str
    description: str
    status: Status
    last_used_at: RFC3339 | None
    """The last use of one of its keys, rounded down to the hour, but not before that key was
    created; recorded with a delay of minutes."""
    created_at: RFC3339
    updated_at: RFC3339


class NewServiceAccount(ResponseBody):
    """A new service account, and what was created with it."""

    service_account: ServiceAccountRecord
    policies: Sequence[PolicyRecord] | UnsetType = UNSET
    """The policies of the grants, if there are any."""
    access_key: NewAccessKeyRecord | UnsetType = UNSET
    """The key with its secret, which is shown only once; absent if no key was requested."""


_SERVICE_ACCOUNT: Final = Answers(ServiceAccountRecord, "service_account")


@post(
    _ALL,
    status_code=201,
    opt={"action": "iam:CreateServiceAccount", "idempotent": True},
)
async def create_service_account(
    data: JSONBody[CreateServiceAccount], ctx: Context
) -> Reply[NewServiceAccount]:
    """Create a service account, which may do nothing until a policy is attached to it.

    With `grants` and `access_key`, it is ready for use: either everything is created, or nothing.
    If a policy with the name and the document of a grant exists, it is attached. For grants, the
    caller also needs `iam:CreatePolicy` on each policy, and `iam:AttachPolicy` on each policy and
    on the service account; for a key, `iam:CreateAccessKey` on the service account.
    """
    check_name(data.name)
    now = ctx.clock()
    made = ServiceAccount(ctx.new_id(), account_of(ctx), data.name, data.description, now, now)
    ctx.authorize(made.crn)
    grants = [_new_grant(ctx, made, each) for each in data.grants]
    if grants:
        ctx.authorize(made.crn, action="iam:AttachPolicy")
    key, row = None, None
    if data.access_key is not None:
        ctx.authorize(made.crn, action="iam:CreateAccessKey")
        key, row = new_key(ctx, made, data.access_key, now)

    def wrap(policies: Sequence[PolicyRow]) -> NewServiceAccount:
        answer = NewServiceAccount(service_account=_SERVICE_ACCOUNT.show(made))
        if grants:
            answer.policies = [*map(policy_record, policies)]
        if key is not None:
            of = {"service_account": made.reference, "secret_access_key": key.secret}
            answer.access_key = NEW_KEY.show(row, **of)
        return answer

    return await ctx.commit(
        service_accounts.create_service_account,
        made,
        grants,
        row,
        wrap=wrap,
        location=lambda _: f"{_ALL}/{made.id}",
    )


def _new_grant(ctx: RequestContext, owner: ServiceAccount, wanted: CreateGrant) -> NewGrant:
    """Check that the caller may create and attach the policy of a grant; return the grant.

    Raise `AccessDenied` if the caller may not create such a policy, or not attach it;
    `InvalidInput` if the template is unknown, or a name is malformed.
    """
    name = wanted.policy_name or f"{owner.name}-{wanted.template}"
    if len(name) > _MAX_NAME:
        raise invalid_field(
            "grants",
            f"the policy would be called {name}, which is too long; give a policy_name",
            "policy_name_needed",
        )
    document = document_of(ctx, wanted.template, wanted.names)
    check_name(name)
    description = f"For the service account {owner.name}."
    policy = PolicyRow(
        ctx.new_id(), owner.account_id, name, description, "", 1, owner.created_at, owner.created_at
    )
    for action in ("iam:CreatePolicy", "iam:AttachPolicy"):
        ctx.authorize(POLICIES.crn_of(policy), action=action)
    return NewGrant(policy, document, ctx.new_id())


@_SERVICE_ACCOUNT.updates(_ONE, "iam:UpdateServiceAccount", **CHECKED)
async def update_service_account(
    service_account_id: FromPath[str], data: JSONBody[UpdateServiceAccount], ctx: Context
) -> Reply[ResponseBody]:
    """Change a service account; while it is suspended, its keys and tokens do not work."""
    found = await authorized(ctx, SERVICE_ACCOUNTS, service_account_id)
    return await ctx.commit(
        service_accounts.update_service_account,
        found.account_id,
        found.id,
        changes_of(data, CreateServiceAccount),
        ctx.clock(),
        wrap=_SERVICE_ACCOUNT.one,
    )


@_SERVICE_ACCOUNT.lists(_ALL, "iam:ListServiceAccounts", NamedPageQuery)
async def list_account_service_accounts(ctx: Context) -> ResponseBody:
    """List service accounts by name."""
    return await _SERVICE_ACCOUNT.page_of_account(ctx, SERVICE_ACCOUNTS)


@_SERVICE_ACCOUNT.gets(_ONE, "iam:GetServiceAccount")
async def get_service_account(service_account_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a service account."""
    return _SERVICE_ACCOUNT.one(await authorized(ctx, SERVICE_ACCOUNTS, service_account_id))


@deletes(_ONE, "iam:DeleteServiceAccount", **CHECKED)
async def delete_service_account(service_account_id: FromPath[str], ctx: Context) -> None:
    """Delete a service account with its access keys; its tokens end at once."""
    found = await authorized(ctx, SERVICE_ACCOUNTS, service_account_id)
    await ctx.database.write(service_accounts.delete_service_account, found.account_id, found.id)
