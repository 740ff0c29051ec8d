"""Organizations and their members: changes with their rules."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, QuotaExceeded
from cloudcore.identity.rows import organizations as rows
from cloudcore.identity.rows.accounts import is_any_account_of
from cloudcore.identity.rows.identity_providers import unlink_person
from cloudcore.identity.rows.organizations import JOINED, MEMBERS, Joined, Membership, Organization
from cloudcore.identity.rows.sessions import switch_organization
from cloudcore.identity.rows.users import lock_user
from cloudcore.identity.services.members import check_owner_remains, lock_organization
from cloudcore.identity.services.roles import unassign_all

MAX_OWNED: Final = 10
"""Maximum number of organizations a person may own, without the personal one."""


def create_organization(tx: Connection, organization: Organization, owner: str) -> Joined:
    """Create an organization with `owner` as its first owner.

    Raises:
        QuotaExceeded: the person owns `MAX_OWNED` already.

    """
    lock_user(tx, owner)
    used = rows.count_owned(tx, owner)
    if used >= MAX_OWNED:
        raise QuotaExceeded(
            f"a person owns at most {MAX_OWNED} organizations; leave or delete one",
            quota="organizations",
            limit=MAX_OWNED,
            used=used,
        )
    rows.add_organization(tx, organization)
    membership = Membership(organization.id, owner, "owner", organization.created_at)
    MEMBERS.add(tx, membership)
    return Joined(*organization, user_id=owner, role="owner")


def rename_organization(
    tx: Connection, organization_id: str, user_id: str, name: str | None, now: int
) -> Joined:
    """Rename an organization; None leaves the name unchanged."""
    if name is not None:
        rows.save_organization_name(tx, organization_id, name, now)
    return JOINED.get(tx, user_id, organization_id)


def delete_organization(tx: Connection, organization_id: str, user_id: str) -> None:
    """Delete an organization that owns no account."""
    lock_organization(tx, organization_id)
    found = JOINED.get(tx, user_id, organization_id)
    if found.is_personal:
        raise Conflict("a personal organization goes with its person")
    if is_any_account_of(tx, organization_id):
        raise Conflict("the organization owns accounts")
    rows.remove_organization(tx, organization_id)


def switch_to(tx: Connection, organization_id: str, user_id: str, sid: str) -> Joined:
    """Set the current organization of a person's session."""
    lock_organization(tx, organization_id)
    found = JOINED.get(tx, user_id, organization_id)
    switch_organization(tx, sid, organization_id)
    return found


def set_member_role(
    tx: Connection, organization_id: str, user_id: str, role: str | None
) -> Membership:
    """Change a member's role; None leaves it unchanged."""
    lock_organization(tx, organization_id)
    member = MEMBERS.get(tx, organization_id, user_id)
    if role is not None and role != member.role:
        check_owner_remains(tx, member)
        member = member._replace(role=role)
        MEMBERS.save(tx, member)
    return member


def remove_member(tx: Connection, organization_id: str, user_id: str, now: int) -> None:
    """Delete a membership, the person's roles in the organization's accounts, and the links to it.

    Who is invited again is linked anew, by the e-mail address.
    """
    lock_organization(tx, organization_id)
    member = MEMBERS.get(tx, organization_id, user_id)
    if member.personal_organization_id == organization_id:
        raise Conflict("nobody leaves the personal organization")
    check_owner_remains(tx, member)
    unassign_all(tx, organization_id, user_id, now)
    unlink_person(tx, organization_id, user_id)
    MEMBERS.remove(tx, organization_id, user_id)
