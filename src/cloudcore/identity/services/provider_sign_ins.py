"""Sign a person in with a provider's profile: find or create the person, set roles, issue a code.

A subject (the id of a person at a provider) is linked to a person here. At the first sign-in, the
person is found by the e-mail address, but only if

- the provider is the authority for the domain of the address;
- the provider's organization added the person;
- the person does not own the organization: ownership, and the last way to sign in, must not depend
  on an address.

At each sign-in, the person must be a member of the provider's organization, must have joined no
other organization, and must own no account: an organization may sign in only its own people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import AccessDenied, Conflict, NotFound
from cloudcore.iam.passwords import unusable_password
from cloudcore.identity.oidc.id_tokens import Profile
from cloudcore.identity.rows import identity_providers as rows
from cloudcore.identity.rows import issued_tokens, roles, users
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.identity_providers import IdentityProvider
from cloudcore.identity.rows.issued_tokens import Code
from cloudcore.identity.rows.organizations import MEMBERS
from cloudcore.identity.rows.roles import ASSIGNMENTS, ROLES, Assignment
from cloudcore.identity.rows.users import PEOPLE, User
from cloudcore.identity.services.roles import unassign_role
from cloudcore.identity.services.users import create_user, find_salt, lock_own_person
from cloudcore.keyring import Keyring

STATE_SECONDS: Final = 3600
"""How many seconds a used state is stored, longer than it is valid."""


class RoleChange(NamedTuple):
    """A role that a sign-in assigned to a person, or took away (`is_taken`)."""

    account_id: str
    name: str
    is_taken: bool


class SignedInPerson(NamedTuple):
    """The person who signed in, and the changes for the audit log."""

    user: User
    provider: IdentityProvider
    is_created: bool
    is_linked: bool
    """True if this sign-in linked the subject to the person."""
    roles: Sequence[RoleChange]


def use_state(tx: Connection, state_sha256: str, now: int) -> None:
    """Mark the `state` of an answer as used; raise `AccessDenied` if it was used before."""
    if not rows.spend_state(tx, state_sha256, now + STATE_SECONDS * MICROSECONDS):
        raise AccessDenied("this answer of the provider was used already; start again")


def sign_in(
    tx: Connection,
    keyring: Keyring,
    provider_id: str,
    profile: Profile,
    new_id: Callable[[], str],
    code: Code,
    now: int,
) -> SignedInPerson:
    """Sign in the person of a profile: store the `code`, and set the roles by the person's groups.

    The person is created if necessary and allowed. Raise `AccessDenied` if the provider is no
    longer active, or nobody may sign in with this profile.
    """
    provider = rows.lock_provider(tx, provider_id)
    if provider is None:
        raise AccessDenied("there is no such identity provider any more")
    if provider.status != "active":
        raise AccessDenied("this identity provider has been turned off")
    subject = provider.id, profile.subject
    linked_id = rows.find_person_of_subject(tx, *subject)
    if linked_id is not None:
        known: User | None = _linked(tx, provider, linked_id)
    else:
        known = _known_by_email(tx, provider, profile)
    user = known or _create(tx, keyring, provider, profile, new_id, now)
    if linked_id is None and not rows.link_subject(tx, *subject, user.id, now):
        raise AccessDenied(
            "the person of this e-mail address signs in as another user of the provider; an owner "
            "of the organization can delete the person"
        )
    if user.status != "active":
        raise AccessDenied("this person is suspended; ask an owner of the organization")
    given = _give_roles(tx, provider, user.id, profile, now)
    issued_tokens.add_code(tx, code._replace(user_id=user.id, identity_provider_id=provider.id))
    return SignedInPerson(user, provider, known is None, linked_id is None, given)


def _linked(tx: Connection, provider: IdentityProvider, user_id: str) -> User:
    """Lock and return the person linked to a subject.

    Raise `AccessDenied` if the organization may not sign in the person.
    """
    try:
        return lock_own_person(tx, provider.organization_id, user_id)
    except NotFound:
        raise AccessDenied(
            "this person has left the organization; an owner can invite again"
        ) from None
    except Conflict:
        raise AccessDenied(
            "this person has joined another organization or owns accounts, so this organization's "
            "provider may no longer sign the person in; sign in with the password, or ask the "
            "operator for one (entrepot reset-password)"
        ) from None


def _known_by_email(tx: Connection, provider: IdentityProvider, profile: Profile) -> User | None:
    """Lock and return the member with a profile's e-mail address, or None if there is none.

    Raise `AccessDenied` if the member may not be found by the address; see the module.
    """
    if profile.email is None:
        return None
    found = PEOPLE.find_named(tx, provider.organization_id, profile.email)
    if found is None:
        return None
    try:
        user = lock_own_person(tx, provider.organization_id, found.id)
    except Conflict:
        raise _not_alone() from None
    if user.home_organization_id != provider.organization_id:
        raise _not_alone()
    member = MEMBERS.find(tx, provider.organization_id, user.id)  # under the organization's lock
    if member is None or member.role == "owner":
        raise AccessDenied(
            "the person of this e-mail address owns the organization, and no owner is found by "
            "e-mail address; sign in with the password"
        )
    return user


def _not_alone() -> AccessDenied:
    return AccessDenied(
        "the person of this e-mail address is not this organization's alone; sign in with the "
        "password"
    )


def _create(
    tx: Connection,
    keyring: Keyring,
    provider: IdentityProvider,
    profile: Profile,
    new_id: Callable[[], str],
    now: int,
) -> User:
    if profile.email is None:
        raise AccessDenied(
            "the provider names no verified e-mail address of a domain that it is the authority of"
        )
    if not provider.creates_people:
        raise AccessDenied("nobody here has this e-mail address; ask an owner to add the person")
    if users.has_added(tx, provider.organization_id, profile.email):
        raise AccessDenied("this person has left the organization; an owner can invite again")
    password = unusable_password(find_salt(tx, keyring, profile.email))
    who = new_id(), profile.email, password, new_id()
    made = User(*who, now, now, must_change_password=False)
    return create_user(tx, provider.organization_id, made)


def _give_roles(
    tx: Connection, provider: IdentityProvider, user_id: str, profile: Profile, now: int
) -> list[RoleChange]:
    """Assign the roles of the profile's groups; unassign those of the provider's other groups.

    Manual assignments stay. Return the changes.
    """
    wanted = {*roles.roles_of_groups(tx, provider.id, profile.groups)}
    given = {each[:2] for each in roles.assignments_of_groups(tx, provider.id, user_id=user_id)}
    changed: list[RoleChange] = []
    # Sorted by account, since accounts are always locked in this order.
    for account_id, role_id in sorted(wanted ^ given):
        increment_revision(tx, account_id)
        role = ROLES.find(tx, account_id, role_id)
        if role is None:
            continue  # deleted meanwhile, with its assignments
        is_taken = (account_id, role_id) in given
        if is_taken:
            unassign_role(tx, account_id, role_id, user_id, now)
        # A manual assignment stays manual.
        elif not ASSIGNMENTS.add(tx, Assignment(role_id, user_id, now, provider.id)):
            continue
        changed.append(RoleChange(account_id, role.name, is_taken))
    return changed
