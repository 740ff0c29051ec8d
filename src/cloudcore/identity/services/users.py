"""Persons: added by their organization, signing in by themselves."""

from __future__ import annotations

import secrets

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.iam.passwords import SALT_BYTES, salt_of
from cloudcore.identity.names import missing
from cloudcore.identity.rows import organizations, users
from cloudcore.identity.rows.accounts import is_any_account_of
from cloudcore.identity.rows.organizations import Membership, Organization
from cloudcore.identity.rows.users import User
from cloudcore.identity.services.members import check_owner_remains, lock_organization
from cloudcore.identity.services.roles import unassign_all
from cloudcore.keyring import Keyring


def new_password() -> str:
    """Return a password for a first sign-in: 128 random bits in 22 characters."""
    return secrets.token_urlsafe(16)


def add_person(tx: Connection, user: User) -> User:
    """Add a person with a personal organization of its own.

    Raises:
        Conflict: the person's home organization has added one of this address.

    """
    now = user.created_at
    personal = Organization(
        id=user.organization_id,
        name=user.email,
        is_personal=True,
        created_at=now,
        updated_at=now,
    )
    organizations.add_organization(tx, personal)
    if not users.add_user(tx, user):
        raise _taken()
    organizations.add_membership(tx, Membership(personal.id, user.id, "owner", now))
    return user


def create_user(tx: Connection, organization_id: str, user: User) -> User:
    """Add a person as a member of an organization, whoever has the address elsewhere.

    Raises:
        NotFound: the organization is gone.
        Conflict: it has a member of this address, or added one who has left it.

    """
    lock_organization(tx, organization_id)
    is_member = users.find_member_by_email(tx, organization_id, user.email) is not None
    if is_member or users.has_added(tx, organization_id, user.email):
        raise _taken()
    made = add_person(tx, user._replace(home_organization_id=organization_id))
    organizations.add_membership(
        tx, Membership(organization_id, made.id, "member", made.created_at)
    )
    return made


def find_salt(tx: Connection, keyring: Keyring, email: str) -> bytes:
    """Return the salt that the passwords of an address share, whether or not anyone has it."""
    kept = users.find_password_by_email(tx, email)
    first = first_salt(keyring, email)
    return first if kept is None else salt_of(kept)


def first_salt(keyring: Keyring, email: str) -> bytes:
    """Return the salt for the first person of an address.

    It is derived, not random: two organizations that add the same address at once use the same.
    """
    return keyring.derive(f"password salt of {email}")[:SALT_BYTES]


def get_user(tx: Connection, organization_id: str, user_id: str) -> User:
    """Return a person who has joined an organization, or raise `NotFound`."""
    found = users.find_active_member(tx, organization_id, user_id)
    if found is None:
        raise missing("user")
    return found


def set_user_status(
    tx: Connection, organization_id: str, user_id: str, status: str | None, now: int
) -> User:
    """Suspend a person, or let it in again; the last owner stays."""
    user = _governed(tx, organization_id, user_id)
    if status is None or status == user.status:
        return user
    if status != "active":
        _check_not_last_owner(tx, organization_id, user_id)
    user = user._replace(status=status, updated_at=now)
    users.update_user(tx, user)
    return user


def delete_user(tx: Connection, organization_id: str, user_id: str, now: int) -> None:
    """Delete a person, with the personal organization and every session."""
    user = _governed(tx, organization_id, user_id)
    organizations.lock_organization(tx, user.organization_id)
    if is_any_account_of(tx, user.organization_id):
        raise Conflict("the person owns accounts")
    _check_not_last_owner(tx, organization_id, user_id)
    unassign_all(tx, organization_id, user.id, now)
    users.delete_user(tx, user.id)
    organizations.delete_organization(tx, user.organization_id)


def change_password(
    tx: Connection, user_id: str, checked: str, password: str, sid: str, now: int
) -> None:
    """Keep a new password, and end the person's other sessions.

    `checked` is the kept form that the old password was found to fit, outside of the transaction.
    """
    users.lock_user(tx, user_id)
    user = users.find_user(tx, user_id)
    if user is None or user.password != checked:
        raise Conflict("the password was changed meanwhile")
    users.update_user(
        tx, user._replace(password=password, must_change_password=False, updated_at=now)
    )
    users.revoke_other_sessions(tx, user_id, sid, now)


def _taken() -> Conflict:
    return Conflict(
        "the organization has a person of this address; invite the address if the person has left"
    )


def _governed(tx: Connection, organization_id: str, user_id: str) -> User:
    """Return a member over whom this organization alone decides, locked with the organization.

    A person who has joined several organizations is not for one of them to lock out.
    """
    lock_organization(tx, organization_id)
    users.lock_user(tx, user_id)
    user = get_user(tx, organization_id, user_id)
    if users.is_member_elsewhere(tx, user_id, organization_id):
        raise Conflict("the person is a member of another organization too; end this membership")
    return user


def _check_not_last_owner(tx: Connection, organization_id: str, user_id: str) -> None:
    member = organizations.find_member(tx, organization_id, user_id)
    if member is not None:
        check_owner_remains(tx, member.membership)
