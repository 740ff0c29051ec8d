"""``/v1/policies``: create, list, show, change, delete, attach and detach policies."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput
from cloudcore.iam.policy import PolicyKind, check_size, policy_of
from cloudcore.iam.vocabulary import Vocabulary
from cloudcore.identity.names import iam_crn
from cloudcore.identity.rights.lock_out import CHECKED, ForceQuery
from cloudcore.identity.routes.actions import FilledTemplate, document_of
from cloudcore.identity.routes.common import (
    Answers,
    Description,
    Document,
    Name,
    Reference,
    authorized,
)
from cloudcore.identity.rows.policies import ATTACHED, ATTACHMENTS, POLICIES, Attachment, PolicyRow
from cloudcore.identity.rows.roles import ROLES
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS
from cloudcore.identity.services import policies
from cloudcore.identity.services.roles import service_of
from cloudcore.resource_names import Uuid, UuidParameter, check_name
from cloudcore.resource_references import Authorize
from cloudcore.threads import DOCUMENTS
from cloudcore.web.answers import answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import NamedPageQuery
from cloudcore.web.revisions import Revision
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, changes_of


class CreatePolicy(RequestBody):
    """A new policy, from either a document or a template."""

    name: Name
    document: Document | None = None
    template: FilledTemplate | None = None
    """A ready-made policy (`GET /v1/policy-templates`), filled with names of resources."""
    description: Description = ""


class UpdatePolicy(RequestBody):
    """Changes of a policy; its name stays."""

    document: Document | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET


class PoliciesQuery(NamedPageQuery):
    """Parameters of the list of policies."""

    attached_to: UuidParameter | None = None
    """Id of a service account or role, to list only the policies that are attached to it."""


class PolicyChangeQuery(ForceQuery):
    """The options of a change of a policy."""

    revision: Revision | None = None


class CreateAttachment(RequestBody):
    """A new attachment, to either a service account or a role."""

    service_account: Reference | None = None
    role: Reference | None = None


class PolicyRecord(ResponseBody):
    """A policy."""

    id: Uuid
    crn: str
    name: str
    description: str
    document: dict[str, Any]
    revision: int
    service: str | None
    """The service of the platform that made the policy; only this service changes or deletes it.
    Null for other policies."""
    created_at: RFC3339
    updated_at: RFC3339


class AttachmentRecord(ResponseBody):
    """A policy attached to a service account or to a role; the other of the two is null."""

    id: Uuid
    policy: ResourceRef
    service_account: ResourceRef | None
    role: ResourceRef | None
    created_at: RFC3339


def policy_record(policy: PolicyRow) -> PolicyRecord:
    """Return a policy as a response body."""
    document = msgspec.json.decode(policy.document)
    crn, service = POLICIES.crn_of(policy), service_of(policy.name)
    return answer_of(PolicyRecord, policy, crn=crn, document=document, service=service)


_POLICY: Final = Answers(PolicyRecord, "policy", policy_record)
_ONE: Final = "/v1/policies/{policy_id:str}"


def _target(of: Attachment, kind: str, target: str | None) -> ResourceRef | None:
    crn = iam_crn(of.account_id, kind, of.name)
    return None if target is None else ResourceRef(id=target, crn=crn, name=of.name)


def _attachment(policy: PolicyRow, found: Attachment) -> AttachmentRecord:
    return answer_of(
        AttachmentRecord,
        found,
        policy=POLICIES.reference(policy),
        service_account=_target(found, "service-account", found.service_account_id),
        role=_target(found, "role", found.role_id),
    )


_ATTACHMENT: Final = Answers(AttachmentRecord, "attachment", _attachment)
_ATTACHMENTS: Final = f"{_ONE}/attachments"


async def _check(ctx: RequestContext, document: dict[str, Any]) -> None:
    """Raise `InvalidInput` if a document is not an identity policy, or names something unknown."""
    # In a thread: the largest document takes tens of milliseconds.
    await DOCUMENTS.run(account_of(ctx), _check_document, ctx.vocabulary, document)


def _check_document(vocabulary: Vocabulary, document: dict[str, Any]) -> None:
    policy = policy_of(document, PolicyKind.IDENTITY)
    check_size(msgspec.json.encode(document))
    vocabulary.check(policy)


async def _document(ctx: RequestContext, data: CreatePolicy) -> dict[str, Any]:
    """Return the document of a new policy, from the request or from its template."""
    if data.document is not None and data.template is None:
        await _check(ctx, data.document)
        return data.document
    if data.template is not None and data.document is None:
        return document_of(ctx, data.template.name, data.template.names)
    raise InvalidInput("give a document or a template", field="body", reason="one_of")


@_POLICY.creates("/v1/policies", "iam:CreatePolicy")
async def create_policy(data: JSONBody[CreatePolicy], ctx: Context) -> Reply[ResponseBody]:
    """Create a policy from a document or a template; it is not attached to anything yet.

    A policy that names actions or resources that do not exist is refused.
    """
    check_name(data.name)
    now = ctx.clock()
    policy = PolicyRow(ctx.new_id(), account_of(ctx), data.name, data.description, "", 1, now, now)
    ctx.authorize(POLICIES.crn_of(policy))
    return await ctx.commit(
        policies.create_policy,
        policy,
        await _document(ctx, data),
        wrap=_POLICY.one,
        location=lambda made: f"/v1/policies/{made.id}",
    )


@_POLICY.lists("/v1/policies", "iam:ListPolicies", PoliciesQuery)
async def list_account_policies(ctx: Context) -> ResponseBody:
    """List policies by name."""
    attached_to, account_id = ctx.query(PoliciesQuery).attached_to, account_of(ctx)
    ctx.authorize(POLICIES.crn(account_id, "*"))
    if attached_to is None:
        return await _POLICY.page(ctx, POLICIES, account_id, query=PoliciesQuery)
    owner = account_id, attached_to.lower()
    return await _POLICY.page(ctx, ATTACHED, owner, query=PoliciesQuery)


@_POLICY.gets(_ONE, "iam:GetPolicy")
async def get_policy(policy_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return a policy."""
    return _POLICY.one(await authorized(ctx, POLICIES, policy_id))


@_POLICY.updates(_ONE, "iam:UpdatePolicy", **CHECKED | {"query": PolicyChangeQuery})
async def update_policy(
    policy_id: FromPath[str], data: JSONBody[UpdatePolicy], ctx: Context
) -> Reply[ResponseBody]:
    """Change a policy; this takes effect at once wherever it is attached."""
    policy = await authorized(ctx, POLICIES, policy_id)
    if data.document is not UNSET:
        await _check(ctx, data.document)
    return await ctx.commit(
        policies.update_policy,
        policy.account_id,
        policy.id,
        changes_of(data, CreatePolicy),
        ctx.clock(),
        ctx.query(PolicyChangeQuery).revision,
        wrap=_POLICY.one,
    )


@deletes(_ONE, "iam:DeletePolicy", statuses=(409,))
async def delete_policy(policy_id: FromPath[str], ctx: Context) -> None:
    """Delete a policy, which must not be attached."""
    policy = await authorized(ctx, POLICIES, policy_id)
    await ctx.database.write(policies.delete_policy, policy.account_id, policy.id)


def _resolve(
    tx: Connection, account_id: str, data: CreateAttachment, authorize: Authorize
) -> tuple[str | None, str | None]:
    """Return (service account id, role id) to attach the policy to; one of them is None."""
    if data.role is not None and data.service_account is None:
        return None, ROLES.resolve(tx, account_id, "role", data.role, authorize).id
    if data.service_account is not None and data.role is None:
        field, text = "service_account", data.service_account
        return SERVICE_ACCOUNTS.resolve(tx, account_id, field, text, authorize).id, None
    raise InvalidInput("give a service_account or a role", field="body", reason="one_of")


@_ATTACHMENT.creates(_ATTACHMENTS, "iam:AttachPolicy", **CHECKED)
async def create_attachment(
    policy_id: FromPath[str], data: JSONBody[CreateAttachment], ctx: Context
) -> Reply[ResponseBody]:
    """Attach a policy; the caller needs permission on the policy and on the principal."""
    policy = await authorized(ctx, POLICIES, policy_id)
    authorize = ctx.right_to("iam:AttachPolicy")
    target = await ctx.database.read(_resolve, policy.account_id, data, authorize)
    attachment = Attachment(ctx.new_id(), policy.account_id, policy.id, *target, ctx.clock())
    return await ctx.commit(
        policies.attach_policy,
        attachment,
        wrap=partial(_ATTACHMENT.one, policy),
        location=lambda made: f"/v1/policies/{policy.id}/attachments/{made.id}",
    )


@_ATTACHMENT.lists(_ATTACHMENTS, "iam:ListPolicyAttachments")
async def list_policy_attachments(policy_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List what a policy is attached to."""
    policy = await authorized(ctx, POLICIES, policy_id)
    owner = policy.account_id, policy.id
    return await _ATTACHMENT.page(ctx, ATTACHMENTS, owner, policy)


@deletes(_ATTACHMENTS + "/{attachment_id:str}", "iam:DetachPolicy", **CHECKED)
async def delete_attachment(
    policy_id: FromPath[str], attachment_id: FromPath[str], ctx: Context
) -> None:
    """Detach a policy; the caller needs permission on the policy and on the principal."""
    policy = await authorized(ctx, POLICIES, policy_id)
    found = await ctx.database.read(ATTACHMENTS.get, (policy.account_id, policy.id), attachment_id)
    kind = "role" if found.role_id is not None else "service-account"
    ctx.authorize(iam_crn(policy.account_id, kind, found.name))
    await ctx.database.write(policies.detach_policy, policy.account_id, policy.id, attachment_id)
