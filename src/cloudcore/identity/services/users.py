"""Persons: changes and their rules, and password salts."""

from __future__ import annotations

import secrets

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.iam.passwords import SALT_BYTES, salt_of
from cloudcore.identity.rows import organizations, users
from cloudcore.identity.rows.accounts import ACCOUNTS
from cloudcore.identity.rows.container_passwords import remove_container_passwords
from cloudcore.identity.rows.organizations import MEMBERS, ORGANIZATIONS, Membership, Organization
from cloudcore.identity.rows.sessions import revoke_other_sessions
from cloudcore.identity.rows.users import PEOPLE, USERS, User
from cloudcore.identity.services.members import check_owner_remains, lock_organization
from cloudcore.identity.services.roles import unassign_all
from cloudcore.keyring import Keyring


def new_password() -> str:
    """Generate a password for the first sign-in: 128 random bits in 22 characters."""
    return secrets.token_urlsafe(16)


def add_person(tx: Connection, user: User) -> User:
    """Insert a person with a personal organization; return the person.

    Raise `Conflict` if the home organization has already added a person with this e-mail address.
    """
    now = user.created_at
    personal = user.organization_id
    ORGANIZATIONS.add(tx, Organization(personal, user.email, now, now, is_personal=True))
    if not USERS.add(tx, user):
        raise _taken()
    MEMBERS.add(tx, Membership(personal, user.id, "owner", now))
    return user


def create_user(tx: Connection, organization_id: str, user: User) -> User:
    """Create a person as a member of an organization.

    Persons of other organizations may have the same e-mail address.

    Raise `NotFound` if the organization does not exist, `Conflict` if it has a member with this
    address, or has added a person with this address who has left.
    """
    lock_organization(tx, organization_id)
    is_member = PEOPLE.find_named(tx, organization_id, user.email) is not None
    if is_member or users.has_added(tx, organization_id, user.email):
        raise _taken()
    made = add_person(tx, user._replace(home_organization_id=organization_id))
    MEMBERS.add(tx, Membership(organization_id, made.id, "member", made.created_at))
    return made


def find_salt(tx: Connection, keyring: Keyring, email: str) -> bytes:
    """Return the password salt of an e-mail address, whether or not a person has the address."""
    stored = users.find_password_by_email(tx, email)
    first = first_salt(keyring, email)  # always computed, so that the time reveals nothing
    return first if stored is None else salt_of(stored)


def first_salt(keyring: Keyring, email: str) -> bytes:
    """Return the password salt for the first person with an e-mail address.

    It is derived, not random, so that two organizations that add the address at the same time get
    the same salt.
    """
    return keyring.derive(f"password salt of {email}")[:SALT_BYTES]


def set_user_status(
    tx: Connection, organization_id: str, user_id: str, status: str | None, now: int
) -> User:
    """Suspend or reactivate a person; return the person. None as `status` changes nothing.

    Suspending a person deletes the person's container passwords. Raise `Conflict` if the person is
    the organization's last active owner, or is a member of another organization too.
    """
    user = _lock_governed(tx, organization_id, user_id)
    if status is None or status == user.status:
        return user
    if status != "active":
        _check_not_last_owner(tx, organization_id, user_id)
        remove_container_passwords(tx, user_id)
    user = user._replace(status=status, updated_at=now)
    USERS.save(tx, user)
    return user


def delete_user(tx: Connection, organization_id: str, user_id: str, now: int) -> None:
    """Delete a person with the personal organization and all sessions.

    Raise `Conflict` if the person owns accounts, is a member of another organization too, or is the
    organization's last active owner.
    """
    user = _lock_governed(tx, organization_id, user_id)
    organizations.lock_if_exists(tx, user.organization_id)
    if ACCOUNTS.count(tx, user.organization_id):
        raise Conflict("the person owns accounts")
    _check_not_last_owner(tx, organization_id, user_id)
    unassign_all(tx, organization_id, user.id, now)
    USERS.remove(tx, user.id, user.id)
    ORGANIZATIONS.remove(tx, user.organization_id, user.organization_id)


def change_password(
    tx: Connection, user_id: str, checked: str, password: str, sid: str, now: int
) -> None:
    """Store a new password hash, and end the person's sessions except `sid`.

    `checked` is the stored hash that the old password matched before the transaction. Raise
    `Conflict` if the stored hash has changed since.
    """
    users.lock_user(tx, user_id)
    user = users.find_user(tx, user_id)
    if user is None or user.password != checked:
        raise Conflict("the password was changed meanwhile")
    USERS.save(tx, user._replace(password=password, must_change_password=False, updated_at=now))
    revoke_other_sessions(tx, user_id, sid, now)


def reset_password(
    tx: Connection, organization_id: str, user_id: str, password: str, now: int
) -> User:
    """Store the hash of a one-time password, and end all sessions of the person; return the person.

    Raise `NotFound` if the organization has no such member, `Conflict` if the person is a member of
    another organization too, or owns accounts.
    """
    user = lock_own_person(tx, organization_id, user_id)
    user = user._replace(password=password, must_change_password=True, updated_at=now)
    USERS.save(tx, user)
    revoke_other_sessions(tx, user_id, "", now)
    return user


def lock_own_person(tx: Connection, organization_id: str, user_id: str) -> User:
    """Lock and return a member of an organization who has joined no other organization.

    Whoever replaces a person's password, or signs the person in, gets access to everything that the
    person has. So resets of passwords and sign-ins at a provider of the organization check this.

    Raise `NotFound` if the organization has no such member, `Conflict` if the person is a member of
    another organization too, or owns accounts.
    """
    user = _lock_governed(tx, organization_id, user_id)
    organizations.lock_if_exists(tx, user.organization_id)
    if ACCOUNTS.count(tx, user.organization_id):
        raise Conflict("the person owns accounts, which the organization may not take over")
    return user


def _taken() -> Conflict:
    return Conflict(
        "the organization has a person with this address; invite the address if the person has left"
    )


def _lock_governed(tx: Connection, organization_id: str, user_id: str) -> User:
    """Lock an organization and a member; return the member.

    Raise `Conflict` if the member has joined another organization too: one organization may not
    lock out a person who has joined several.
    """
    lock_organization(tx, organization_id)
    users.lock_user(tx, user_id)
    user = PEOPLE.get(tx, organization_id, user_id)
    if users.is_member_elsewhere(tx, user_id, organization_id):
        raise Conflict("the person is a member of another organization too; end this membership")
    return user


def _check_not_last_owner(tx: Connection, organization_id: str, user_id: str) -> None:
    member = MEMBERS.find(tx, organization_id, user_id)
    if member is not None:
        check_owner_remains(tx, member)
