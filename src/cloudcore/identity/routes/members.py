"""``/v1/organizations/{id}``: ``members``, ``invitations``, and ``accept`` with a code."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.errors import AccessDenied, Conflict, TooManyAttempts
from cloudcore.identity.credentials import hash_of
from cloudcore.identity.names import email_address
from cloudcore.identity.routes.common import Answers, Email, PeopleQuery
from cloudcore.identity.routes.organizations import (
    ORGANIZATION,
    ORGANIZATION_PATH,
    MemberRole,
    authorized,
    membership_policy,
)
from cloudcore.identity.rows.organizations import INVITATIONS, MEMBERS
from cloudcore.identity.services import organizations
from cloudcore.identity.services.organizations import new_invitation
from cloudcore.resource_names import Uuid
from cloudcore.web.answers import answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.caller_kinds import person_of
from cloudcore.web.context import Reply
from cloudcore.web.rate_limits import Budget, count_request, give_back
from cloudcore.wire import RFC3339, RequestBody, ResponseBody

_PATH: Final = f"{ORGANIZATION_PATH}/members"


class UpdateMember(RequestBody):
    """Changes of a member's role."""

    role: MemberRole | UnsetType = UNSET


class MemberRecord(ResponseBody):
    """A person's role in an organization."""

    user: ResourceRef
    role: MemberRole
    status: Literal["active"]
    created_at: RFC3339


_MEMBER: Final = Answers(MemberRecord, "member", partial(answer_of, MemberRecord, status="active"))


@_MEMBER.lists(_PATH, "iam:ListMembers", PeopleQuery)
async def list_organization_members(organization_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the members."""
    await authorized(ctx, organization_id)
    return await _MEMBER.page(ctx, MEMBERS, organization_id, query=PeopleQuery)


@_MEMBER.updates(_PATH + "/{user_id:str}", "iam:UpdateMember", statuses=(409,))
async def update_member(
    organization_id: FromPath[str],
    user_id: FromPath[str],
    data: JSONBody[UpdateMember],
    ctx: Context,
) -> Reply[ResponseBody]:
    """Change a member's role; the last owner must remain an owner."""
    await authorized(ctx, organization_id)
    role = None if data.role is UNSET else data.role
    return await ctx.commit(
        organizations.set_member_role, organization_id, user_id, role, wrap=_MEMBER.one
    )


@deletes(_PATH + "/{user_id:str}", "iam:RemoveMember", statuses=(409,))
async def remove_member(
    organization_id: FromPath[str], user_id: FromPath[str], ctx: Context
) -> None:
    """Remove a member, or leave the organization; the roles in its accounts are lost too."""
    person = person_of(ctx)
    if user_id == person.id:
        ctx.authorize(person.crn, action="iam:LeaveOrganization")
    else:
        await authorized(ctx, organization_id)
    await ctx.database.write(organizations.remove_member, organization_id, user_id, ctx.clock())


WRONG_CODES: Final = Budget(limit=10, window_seconds=300, is_extended=False)
"""Wrong codes that a person may send, for all organizations together."""
_ENDPOINT: Final = "invitation codes"
_INVITATIONS: Final = f"{ORGANIZATION_PATH}/invitations"


class CreateInvitation(RequestBody):
    """An offer to join."""

    email: Email
    role: MemberRole = "member"


class AcceptInvitation(RequestBody):
    """The code of an invitation."""

    code: Annotated[str, Meta(min_length=1, max_length=100)]


class InvitationRecord(ResponseBody):
    """An invitation for the person who has the e-mail address and the code."""

    id: Uuid
    email: str
    role: MemberRole
    created_at: RFC3339
    expires_at: RFC3339


class NewInvitationRecord(InvitationRecord):
    """An invitation with its code, which is shown only once."""

    code: str


_INVITATION: Final = Answers(InvitationRecord, "invitation")
_NEW: Final = Answers(NewInvitationRecord, "invitation", noun="new invitation")


@_NEW.creates(_INVITATIONS, "iam:InviteMember", resource_policy=membership_policy, statuses=(404,))
async def invite_member(
    organization_id: FromPath[str], data: JSONBody[CreateInvitation], ctx: Context
) -> Reply[ResponseBody]:
    """Invite an e-mail address; return the code for the invited person, valid for 7 days.

    The answer is the same whether or not anyone has the address. Inviting an address again
    replaces the earlier code.
    """
    joined = await authorized(ctx, organization_id)
    if joined.is_personal:
        raise AccessDenied("a personal organization has one member, and cannot invite others")
    email = email_address(data.email)
    new, code = new_invitation(ctx.new_id(), organization_id, email, data.role, ctx.clock())
    return await ctx.commit(organizations.invite, new, wrap=partial(_NEW.one, code=code))


@_INVITATION.lists(_INVITATIONS, "iam:ListInvitations", PeopleQuery)
async def list_organization_invitations(
    organization_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """List the pending invitations, by address; for owners."""
    await authorized(ctx, organization_id)
    return await _INVITATION.page(ctx, INVITATIONS, organization_id, query=PeopleQuery)


@deletes(_INVITATIONS + "/{invitation_id:str}", "iam:RevokeInvitation")
async def revoke_invitation(
    organization_id: FromPath[str], invitation_id: FromPath[str], ctx: Context
) -> None:
    """Revoke an invitation and its code."""
    await authorized(ctx, organization_id)
    await ctx.database.write(organizations.revoke_invitation, organization_id, invitation_id)


@ORGANIZATION.changes(f"{ORGANIZATION_PATH}/accept", "iam:AcceptInvitation", statuses=(429,))
async def accept_invitation(
    organization_id: FromPath[str], data: JSONBody[AcceptInvitation], ctx: Context
) -> Reply[ResponseBody]:
    """Join an organization with the code of an invitation for the caller's e-mail address.

    A code that is wrong for any reason gets 404. After ten wrong codes within five minutes, the
    next gets 429.
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
            organizations.accept_invitation,
            organization_id,
            person.id,
            hash_of(data.code),
            ctx.clock(),
            wrap=ORGANIZATION.one,
        )
    except Conflict:  # the code was right
        await ctx.database.write_relaxed(give_back, _ENDPOINT, person.id, ctx.clock())
        raise
    await ctx.database.write_relaxed(give_back, _ENDPOINT, person.id, ctx.clock())
    return reply
