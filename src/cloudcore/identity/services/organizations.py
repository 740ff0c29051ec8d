"""Organizations, their members and invitations: changes and their rules.

An invited person joins with an e-mail address and a code. E-mail addresses are not verified:
whoever adds a person chooses the address. So an address alone is not enough, and the inviter gives
the code to the person in another way than through this service.

`ENTREPOT_FOUNDERS` is the operator's rule for who may create organizations and accounts.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, Conflict
from cloudcore.identity.credentials import hash_of
from cloudcore.identity.names import OWNED, missing
from cloudcore.identity.rows import organizations as rows
from cloudcore.identity.rows.accounts import ACCOUNTS
from cloudcore.identity.rows.identity_providers import unlink_person
from cloudcore.identity.rows.organizations import (
    INVITATIONS,
    JOINED,
    MEMBERS,
    ORGANIZATIONS,
    Joined,
)
from cloudcore.identity.rows.sessions import switch_organization
from cloudcore.identity.rows.users import PEOPLE, find_user, lock_user
from cloudcore.identity.services.members import check_owner_remains, lock_organization
from cloudcore.identity.services.roles import unassign_all
from cloudcore.quotas.limits import EVERY_ACCOUNT, check_limit
from cloudcore.web.context import RequestContext


def check_may_create_organizations(ctx: RequestContext, tx: Connection, user_id: str) -> None:
    """Raise `AccessDenied` if a person may not create an organization on this install."""
    founders = ctx.settings.founders
    if founders == "anyone" or (founders == "owners" and rows.count_owned(tx, user_id)):
        return
    raise _refusal(ctx)


def check_may_create_accounts(ctx: RequestContext, joined: Joined | None) -> None:
    """Check that the caller may create an account in the `joined` organization.

    `joined` includes the caller's role; None if the caller acts in an account, not as a person.
    Raise `AccessDenied` if the install lets nobody create accounts; or if it lets only owners
    create accounts, and the caller does not own `joined`, or `joined` is personal.
    """
    founders = ctx.settings.founders
    is_owner = joined is not None and joined.role == "owner"
    if founders == "anyone" or (
        founders == "owners" and is_owner and joined is not None and not joined.is_personal
    ):
        return
    raise _refusal(ctx)


def _refusal(ctx: RequestContext) -> AccessDenied:
    who = "nobody" if ctx.settings.founders == "nobody" else "only owners of an organization"
    return AccessDenied(f"{who} may found organizations and accounts here; ask the operator")


def create_organization(tx: Connection, organization: rows.Organization, owner: str) -> Joined:
    """Create an organization with `owner` as its first owner.

    Raise `QuotaExceeded` if the person already owns the maximum number.
    """
    lock_user(tx, owner)
    used = rows.count_owned(tx, owner)
    words = "a person owns at most {limit} organizations; leave or delete one"
    check_limit(tx, EVERY_ACCOUNT, OWNED, used, words)
    ORGANIZATIONS.add(tx, organization)
    membership = rows.Membership(organization.id, owner, "owner", organization.created_at)
    MEMBERS.add(tx, membership)
    return Joined(*organization, user_id=owner, role="owner")


def rename_organization(
    tx: Connection, organization_id: str, user_id: str, name: str | None, now: int
) -> Joined:
    """Rename an organization; None leaves the name unchanged.

    Return the organization with the role of the person `user_id`.
    """
    if name is not None:
        found = ORGANIZATIONS.get(tx, organization_id, organization_id)
        ORGANIZATIONS.save(tx, found._replace(name=name, updated_at=now))
    return JOINED.get(tx, user_id, organization_id)


def delete_organization(tx: Connection, organization_id: str, user_id: str) -> None:
    """Delete an organization; raise `Conflict` if it is personal, or owns accounts."""
    lock_organization(tx, organization_id)
    found = JOINED.get(tx, user_id, organization_id)
    if found.is_personal:
        raise Conflict("a personal organization goes with its person")
    if ACCOUNTS.count(tx, organization_id):
        raise Conflict("the organization owns accounts")
    ORGANIZATIONS.remove(tx, organization_id, organization_id)


def switch_to(tx: Connection, organization_id: str, user_id: str, sid: str) -> Joined:
    """Set the current organization of a person's session; return the organization.

    Raise `NotFound` if the person is not a member.
    """
    lock_organization(tx, organization_id)
    found = JOINED.get(tx, user_id, organization_id)
    switch_organization(tx, sid, organization_id)
    return found


def set_member_role(
    tx: Connection, organization_id: str, user_id: str, role: str | None
) -> rows.Membership:
    """Change a member's role; None leaves it unchanged. Return the membership.

    Raise `Conflict` if the member is the last active owner and would get another role.
    """
    lock_organization(tx, organization_id)
    member = MEMBERS.get(tx, organization_id, user_id)
    if role is not None and role != member.role:
        check_owner_remains(tx, member)
        member = member._replace(role=role)
        MEMBERS.save(tx, member)
    return member


def remove_member(tx: Connection, organization_id: str, user_id: str, now: int) -> None:
    """Remove a member, the member's roles in the organization's accounts, and the provider links.

    If the person is invited again, a provider's sign-in links the person again by the e-mail
    address. Raise `Conflict` if the organization is the person's personal one, or the member is the
    last active owner.
    """
    lock_organization(tx, organization_id)
    member = MEMBERS.get(tx, organization_id, user_id)
    if member.personal_organization_id == organization_id:
        raise Conflict("nobody leaves the personal organization")
    check_owner_remains(tx, member)
    unassign_all(tx, organization_id, user_id, now)
    unlink_person(tx, organization_id, user_id)
    MEMBERS.remove(tx, organization_id, user_id)


INVITATION_SECONDS: Final = 7 * 24 * 3600
_PREFIX: Final = "ein_"
_NO_CODE: Final = "0" * 64
"""The hash to compare a code with if there is no invitation, so that both cases take equal time."""


def new_invitation(
    invitation_id: str, organization_id: str, email: str, role: str, now: int
) -> tuple[rows.Invitation, str]:
    """Return (invitation, code), with a random code of 256 bits; the invitation begins at `now`."""
    code = _PREFIX + secrets.token_urlsafe(32)
    expires_at = now + INVITATION_SECONDS * MICROSECONDS
    kept = rows.Invitation(
        invitation_id, organization_id, email, role, hash_of(code), now, expires_at
    )
    return kept, code


def invite(tx: Connection, invitation: rows.Invitation) -> rows.Invitation:
    """Insert an invitation, replacing an earlier one for the same e-mail address.

    Raise `NotFound` if the organization does not exist, `Conflict` if it has a member with this
    e-mail address.
    """
    lock_organization(tx, invitation.organization_id)
    _check_no_member(tx, invitation.organization_id, invitation.email)
    rows.put_invitation(tx, invitation)
    return invitation


def revoke_invitation(tx: Connection, organization_id: str, invitation_id: str) -> None:
    """Delete an invitation, or raise `NotFound`."""
    lock_organization(tx, organization_id)
    INVITATIONS.remove(tx, organization_id, invitation_id)


def accept_invitation(
    tx: Connection, organization_id: str, user_id: str, code_sha256: str, now: int
) -> Joined:
    """Join an organization with the code of the invitation for this person's e-mail address.

    A wrong code and a missing invitation run the same statements and raise the same error.

    Raise `NotFound` if the code is wrong, or the invitation has expired, was used or revoked, or is
    for another person; `Conflict` if the organization now has another member with this address.
    """
    rows.lock_if_exists(tx, organization_id)
    status = lock_user(tx, user_id)
    user = find_user(tx, user_id)
    email = "" if user is None else user.email
    found = INVITATIONS.find_named(tx, organization_id, email)
    is_right = hmac.compare_digest(_NO_CODE if found is None else found.code_sha256, code_sha256)
    if found is None or not is_right or now >= found.expires_at or status != "active":
        raise missing("invitation")
    _check_no_member(tx, organization_id, email)
    INVITATIONS.remove(tx, organization_id, found.id)
    MEMBERS.add(tx, rows.Membership(organization_id, user_id, found.role, now))
    return JOINED.get(tx, user_id, organization_id)


def _check_no_member(tx: Connection, organization_id: str, email: str) -> None:
    if PEOPLE.find_named(tx, organization_id, email) is not None:
        raise Conflict("the organization has a member with this address")
