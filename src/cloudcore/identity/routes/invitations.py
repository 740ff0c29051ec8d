"""``/v1/organizations/{id}/invitations``, and ``…/accept``, which takes their codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from litestar import delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from cloudcore.errors import AccessDenied, Conflict, TooManyAttempts
from cloudcore.identity.names import email_address
from cloudcore.identity.routes.fields import Email, PeopleQuery
from cloudcore.identity.routes.organizations import (
    MemberRole,
    OneOrganization,
    authorized,
    membership_policy,
    one_organization,
)
from cloudcore.identity.routes.owned import shown
from cloudcore.identity.rows.invitations import INVITATIONS, Invitation
from cloudcore.identity.services import invitations
from cloudcore.identity.services.invitations import NewInvitation, new_invitation
from cloudcore.identity.sessions import hash_of
from cloudcore.uuids import Uuid
from cloudcore.web.callers import person_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageMeta, read_page
from cloudcore.web.ratelimit import Budget, count_request, give_back
from cloudcore.wire import RFC3339, RequestBody, ResponseBody

WRONG_CODES: Final = Budget(limit=10, window_seconds=300, is_extended=False)
"""Wrong codes of one person, over all organizations."""
_ENDPOINT: Final = "invitation codes"
_PATH: Final = "/v1/organizations/{organization_id:str}/invitations"


class CreateInvitation(RequestBody):
    """An offer to join."""

    email: Email
    role: MemberRole = "member"


class AcceptInvitation(RequestBody):
    """The code of an invitation."""

    code: Annotated[str, Meta(min_length=1, max_length=100)]


class InvitationRecord(ResponseBody):
    """An invitation of the person who has the e-mail address and the code."""

    id: Uuid
    email: str
    role: MemberRole
    created_at: RFC3339
    expires_at: RFC3339


class NewInvitationRecord(InvitationRecord):
    """An invitation with its code, which is shown this once."""

    code: str


class OneNewInvitation(ResponseBody):
    """A new invitation, wrapped."""

    invitation: NewInvitationRecord


class ManyInvitations(ResponseBody):
    """A page of invitations."""

    invitations: Sequence[InvitationRecord]
    meta: PageMeta


def _record(invitation: Invitation) -> InvitationRecord:
    return shown(InvitationRecord, invitation)


def _new(made: NewInvitation) -> OneNewInvitation:
    record = shown(NewInvitationRecord, made.invitation, code=made.code)
    return OneNewInvitation(invitation=record)


@post(
    _PATH,
    status_code=201,
    opt={
        "action": "iam:InviteMember",
        "idempotent": True,
        "resource_policy": membership_policy,
        "statuses": (404,),
    },
)
async def invite_member(
    organization_id: FromPath[str],
    data: JSONBody[CreateInvitation],
    ctx: NamedDependency[RequestContext],
) -> Reply[OneNewInvitation]:
    """Invite an e-mail address, and show the code to hand over, valid for 7 days.

    The answer is the same whether or not anyone has the address. Inviting an address again
    replaces its code.
    """
    joined = await authorized(ctx, organization_id)
    if joined.organization.is_personal:
        raise AccessDenied("a personal organization has one member, and cannot invite others")
    email = email_address(data.email)
    new = new_invitation(ctx.new_id(), organization_id, email, data.role, ctx.clock())
    return await ctx.commit(invitations.invite, new, wrap=_new)


@get(_PATH, opt={"action": "iam:ListInvitations", "query": PeopleQuery})
async def list_organization_invitations(
    organization_id: FromPath[str], ctx: NamedDependency[RequestContext]
) -> ManyInvitations:
    """List the pending invitations, by address; for owners."""
    await authorized(ctx, organization_id)
    query = ctx.query(PeopleQuery)
    found, meta = await read_page(
        ctx,
        query,
        INVITATIONS.list,
        INVITATIONS.count,
        organization_id,
        query.address,
        key=INVITATIONS.label_of,
    )
    return ManyInvitations(invitations=[_record(each) for each in found], meta=meta)


@delete(_PATH + "/{invitation_id:str}", opt={"action": "iam:RevokeInvitation"})
async def revoke_invitation(
    organization_id: FromPath[str],
    invitation_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
) -> None:
    """Revoke an invitation and its code."""
    await authorized(ctx, organization_id)
    await ctx.database.write(invitations.revoke_invitation, organization_id, invitation_id)


@post(
    "/v1/organizations/{organization_id:str}/accept",
    status_code=200,
    opt={"action": "iam:AcceptInvitation", "idempotent": True, "statuses": (429,)},
)
async def accept_invitation(
    organization_id: FromPath[str],
    data: JSONBody[AcceptInvitation],
    ctx: NamedDependency[RequestContext],
) -> Reply[OneOrganization]:
    """Join an organization by the code of its invitation for the caller's address.

    A wrong code is 404, whatever is wrong with it. After ten within five minutes, the next is 429.
    """
    person = person_of(ctx)
    ctx.authorize(person.crn)
    status = await ctx.database.write_relaxed(
        count_request, _ENDPOINT, person.id, WRONG_CODES, ctx.clock()
    )
    if status.is_refused:
        raise TooManyAttempts("too many wrong codes", retry_after=status.reset)
    ctx.event_owner = organization_id
    try:
        reply = await ctx.commit(
            invitations.accept_invitation,
            organization_id,
            person.id,
            hash_of(data.code),
            ctx.clock(),
            wrap=one_organization,
        )
    except Conflict:  # the code was right
        await ctx.database.write_relaxed(give_back, _ENDPOINT, person.id, ctx.clock())
        raise
    await ctx.database.write_relaxed(give_back, _ENDPOINT, person.id, ctx.clock())
    return reply


HANDLERS: Final = (
    invite_member,
    list_organization_invitations,
    revoke_invitation,
    accept_invitation,
)
