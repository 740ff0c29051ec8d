"""``/v1/organizations``: organizations, their ``members`` and ``invitations``, for persons."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, Conflict, TooManyAttempts
from cloudcore.iam.policy import Policy
from cloudcore.iam.principal import Principal
from cloudcore.identity.credentials import hash_of
from cloudcore.identity.names import email_address
from cloudcore.identity.rights.permissions import membership
from cloudcore.identity.routes.common import Answers, Email, PeopleQuery, Title
from cloudcore.identity.rows.organizations import INVITATIONS, JOINED, MEMBERS, Joined, Organization
from cloudcore.identity.rows.sessions import find_current_organization
from cloudcore.identity.services import organizations
from cloudcore.identity.services.organizations import check_founds_organizations, new_invitation
from cloudcore.resource_names import Crn, Uuid
from cloudcore.web.answers import answer_of, deletes
from cloudcore.web.app import Context
from cloudcore.web.bodies import ResourceRef
from cloudcore.web.caller_kinds import person_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import NamedPageQuery
from cloudcore.web.rate_limits import Budget, count_request, give_back
from cloudcore.wire import RFC3339, RequestBody, ResponseBody

MemberRole = Literal["owner", "member", "billing"]


class CreateOrganization(RequestBody):
    """A new organization."""

    name: Title


class UpdateOrganization(RequestBody):
    """Changes of an organization."""

    name: Title | UnsetType = UNSET


class OrganizationRecord(ResponseBody):
    """An organization, and the caller's role in it."""

    id: Uuid
    crn: str
    name: str
    is_personal: bool
    role: MemberRole
    status: Literal["active"]
    created_at: RFC3339
    updated_at: RFC3339


ORGANIZATION: Final = Answers(
    OrganizationRecord, "organization", partial(answer_of, OrganizationRecord, status="active")
)
ORGANIZATION_PATH: Final = "/v1/organizations/{organization_id:str}"


async def authorized(ctx: RequestContext, organization_id: str) -> Joined:
    """Authorize the route's action in an organization, and return it with the membership."""
    person = person_of(ctx)
    joined = await ctx.database.read(JOINED.get, person.id, organization_id)
    ctx.authorize(joined.crn, resource_policy=membership(joined.role, person.crn))
    return joined


def home_of(tx: Connection, person: Principal, named: str | None) -> Joined:
    """Return the organization that a person names, or else the one that its session works in."""
    current = named or find_current_organization(tx, person.sid or "") or person.organization_id
    return JOINED.get(tx, person.id, current or "")


async def membership_policy(ctx: RequestContext, resource: str) -> Policy | None:
    """Return the caller's membership policy in the organization of a CRN; None for a program.

    Raise `NotFound` if the caller is not a member of it.
    """
    caller = ctx.caller
    if caller is None or caller.account_id is not None:
        return None
    organization_id = Crn.parse(resource).account
    joined = await ctx.database.read(JOINED.get, caller.id, organization_id)
    return membership(joined.role, caller.crn)


@ORGANIZATION.creates("/v1/organizations", "iam:CreateOrganization")
async def create_organization(
    data: JSONBody[CreateOrganization], ctx: Context
) -> Reply[ResponseBody]:
    """Create an organization owned by the caller, if the operator allows it."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    await ctx.database.read(partial(check_founds_organizations, ctx), person.id)
    now = ctx.clock()
    return await ctx.commit(
        organizations.create_organization,
        Organization(ctx.new_id(), data.name, now, now),
        person.id,
        wrap=ORGANIZATION.one,
        location=lambda joined: f"/v1/organizations/{joined.id}",
    )


@ORGANIZATION.lists("/v1/organizations", "iam:ListOrganizations", NamedPageQuery)
async def list_organizations(ctx: Context) -> ResponseBody:
    """List the organizations the caller belongs to, oldest first."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    return await ORGANIZATION.page(ctx, JOINED, person.id, query=NamedPageQuery)


@ORGANIZATION.gets(ORGANIZATION_PATH, "iam:GetOrganization")
async def get_organization(organization_id: FromPath[str], ctx: Context) -> ResponseBody:
    """Return an organization the caller belongs to."""
    return ORGANIZATION.one(await authorized(ctx, organization_id))


@ORGANIZATION.updates(ORGANIZATION_PATH, "iam:UpdateOrganization")
async def update_organization(
    organization_id: FromPath[str], data: JSONBody[UpdateOrganization], ctx: Context
) -> Reply[ResponseBody]:
    """Change an organization."""
    joined = await authorized(ctx, organization_id)
    return await ctx.commit(
        organizations.rename_organization,
        organization_id,
        joined.user_id,
        None if data.name is UNSET else data.name,
        ctx.clock(),
        wrap=ORGANIZATION.one,
    )


@deletes(ORGANIZATION_PATH, "iam:DeleteOrganization", statuses=(409,))
async def delete_organization(organization_id: FromPath[str], ctx: Context) -> None:
    """Delete an organization that owns no account."""
    joined = await authorized(ctx, organization_id)
    await ctx.database.write(organizations.delete_organization, organization_id, joined.user_id)


@ORGANIZATION.changes(f"{ORGANIZATION_PATH}/switch", "iam:SwitchOrganization")
async def switch_organization(organization_id: FromPath[str], ctx: Context) -> Reply[ResponseBody]:
    """Set the organization that this session works in when a request names none."""
    person = person_of(ctx)
    ctx.authorize(person.crn)
    return await ctx.commit(
        organizations.switch_to, organization_id, person.id, person.sid or "", wrap=ORGANIZATION.one
    )


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
    """Change a member's role; the last owner remains owner."""
    await authorized(ctx, organization_id)
    role = None if data.role is UNSET else data.role
    return await ctx.commit(
        organizations.set_member_role, organization_id, user_id, role, wrap=_MEMBER.one
    )


@deletes(_PATH + "/{user_id:str}", "iam:RemoveMember", statuses=(409,))
async def remove_member(
    organization_id: FromPath[str], user_id: FromPath[str], ctx: Context
) -> None:
    """Remove a member, or leave; the roles in the organization's accounts go too."""
    person = person_of(ctx)
    if user_id == person.id:
        ctx.authorize(person.crn, action="iam:LeaveOrganization")
    else:
        await authorized(ctx, organization_id)
    await ctx.database.write(organizations.remove_member, organization_id, user_id, ctx.clock())


WRONG_CODES: Final = Budget(limit=10, window_seconds=300, is_extended=False)
"""Wrong codes of one person, over all organizations."""
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
    """An invitation of the person who has the e-mail address and the code."""

    id: Uuid
    email: str
    role: MemberRole
    created_at: RFC3339
    expires_at: RFC3339


class NewInvitationRecord(InvitationRecord):
    """An invitation with its code, which is shown this once."""

    code: str


_INVITATION: Final = Answers(InvitationRecord, "invitation")
_NEW: Final = Answers(NewInvitationRecord, "invitation", noun="new invitation")


@_NEW.creates(_INVITATIONS, "iam:InviteMember", resource_policy=membership_policy, statuses=(404,))
async def invite_member(
    organization_id: FromPath[str], data: JSONBody[CreateInvitation], ctx: Context
) -> Reply[ResponseBody]:
    """Invite an e-mail address, and show the code to hand over, valid for 7 days.

    The answer is the same whether or not anyone has the address. Inviting an address again
    replaces its code.
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
