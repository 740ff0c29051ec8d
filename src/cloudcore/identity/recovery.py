"""Recovery by the operator: reset passwords, add access keys, restore the role `admin`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from cloudcore.db.base import Connection
from cloudcore.db.rows import json_text
from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.iam.policy import PolicyKind, check_size, policy_of
from cloudcore.identity.names import missing
from cloudcore.identity.rows import accounts, policies, roles, users
from cloudcore.identity.rows.accounts import Account, increment_revision
from cloudcore.identity.rows.organizations import JOINED, Joined
from cloudcore.identity.rows.policies import ATTACHMENTS, POLICIES, Attachment
from cloudcore.identity.rows.roles import ASSIGNMENTS, ROLES, Assignment, Role
from cloudcore.identity.rows.service_accounts import ACCESS_KEYS, SERVICE_ACCOUNTS, ServiceAccount
from cloudcore.identity.rows.sessions import revoke_other_sessions, revoke_sessions_of_role
from cloudcore.identity.rows.users import PEOPLE, USERS, User
from cloudcore.identity.services.accounts import ADMIN, new_admin_policy, new_admin_role
from cloudcore.identity.services.members import lock_organization, organization_of
from cloudcore.identity.services.roles import put_policy
from cloudcore.identity.services.service_accounts import (
    MAX_ACTIVE,
    MAX_KEPT,
    NewAccessKey,
    create_access_key,
)
from cloudcore.keyring import Keyring

MAX_JOINED: Final = 1000
"""Maximum number of organizations that are read for a person."""


def find_person_by_email(tx: Connection, email: str, organization_id: str | None) -> User:
    """Return the person with an e-mail address (in lower case).

    With `organization_id`, search only the members of this organization.

    Raise `NotFound` if no person, or none in this organization, has the address; `Conflict` if
    several persons have the address and no organization is passed.
    """
    found = users.list_users_by_email(tx, email)
    if not found:
        raise NotFound(f"no person has the address {email}")
    joined = [(user, each) for user in found for each in _organizations_of(tx, user)]
    if organization_id is not None:
        chosen = [user for user, each in joined if each.id == organization_id]
        if not chosen:
            raise NotFound(f"no person of the organization {organization_id} has {email}")
        return chosen[0]
    if len(found) > 1:
        listed = "".join(
            f"\n  {each.id}  {'none but its own' if each.is_personal else each.name}"
            for _, each in joined
        )
        raise Conflict(
            f"{len(found)} persons have the address {email}; name an organization of the one you"
            f" mean with --organization ID:{listed}"
        )
    return found[0]


def _organizations_of(tx: Connection, user: User) -> Sequence[Joined]:
    """Return the organizations that a person has joined, or else only the personal one.

    Two persons with the same e-mail address never share an organization.
    """
    found = JOINED.list(tx, user.id, "", "", MAX_JOINED)
    return [each for each in found if not each.is_personal] or found


def reset_password(tx: Connection, user_id: str, kept: str, now: int, *, resumes: bool) -> User:
    """Set a person's one-time password and end all sessions of the person; return the person.

    `kept` is the hash of the password. If `resumes` is True, a suspended person is reactivated.

    Raise `NotFound` if the person does not exist, `Conflict` if the person is suspended, and
    `resumes` is False.
    """
    users.lock_user(tx, user_id)
    found = users.find_user(tx, user_id)
    if found is None:
        raise missing("person")
    if found.status != "active" and not resumes:
        raise Conflict(f"{found.email} is suspended; add --resume to let the person in again")
    changed = found._replace(
        password=kept, must_change_password=True, status="active", updated_at=now
    )
    USERS.save(tx, changed)
    revoke_other_sessions(tx, found.id, "", now)
    return changed


def find_program(tx: Connection, handle: str | None, name: str) -> tuple[Account, ServiceAccount]:
    """Return (account, service account); without a handle, search the install's only account.

    Raise `NotFound` if the account or the service account does not exist, `Conflict` if there are
    several accounts and no handle is passed, or one of the two is suspended.
    """
    if handle is None:
        found = accounts.list_accounts(tx, 2)
        if len(found) > 1:
            raise Conflict("there are several accounts; name one with --account HANDLE")
        account = found[0] if found else None
    else:
        account = _account_of(tx, handle)
    if account is None:
        raise NotFound(f"there is no account {handle or ''}".rstrip())
    program = SERVICE_ACCOUNTS.find_named(tx, account.id, name)
    if program is None:
        raise NotFound(f"the account {account.handle} has no service account {name}")
    for what, status in (("account", account.status), ("service account", program.status)):
        if status != "active":
            raise Conflict(f"the {what} is suspended; a person who owns it resumes it")
    return account, program


def _account_of(tx: Connection, handle: str) -> Account | None:
    found_id = accounts.find_account_ids(tx, [handle]).get(handle, "")
    return accounts.find_account(tx, found_id)


def add_key(
    tx: Connection,
    keyring: Keyring,
    key: NewAccessKey,
    key_id: str,
    program: ServiceAccount,
    now: int,
    *,
    replaces: bool,
) -> None:
    """Add an access key to a service account; if `replaces`, delete its other keys first.

    Raise `Conflict` if the service account has the maximum number of keys and `replaces` is False.
    """
    if replaces:
        of = program.account_id, program.id
        for old in ACCESS_KEYS.list(tx, of, "", "", MAX_KEPT):
            ACCESS_KEYS.remove(tx, of, old.id)
    try:
        create_access_key(tx, key.row(keyring, key_id, program.account_id, program.id, now))
    except Conflict:
        raise Conflict(
            f"{program.name} has {MAX_ACTIVE} active access keys, or {MAX_KEPT} of any kind; "
            "add --replace to delete them and end the sessions they signed in"
        ) from None


_MAX_ATTACHMENTS: Final = 1_000_000
"""Maximum number of attachments of a policy that are searched; in effect, all."""


class HostChange(NamedTuple):
    """A change by the operator on the host, as the audit log records it."""

    action: str
    resource: str
    """A CRN."""


def restore_admin(
    tx: Connection, handle: str, email: str, new_id: Callable[[], str], now: int
) -> tuple[Account, list[HostChange]]:
    """Give a member of an account's organization the role `admin` with all rights.

    Create or repair role, trust policy, policy and assignment; return (account, changes made).
    Afterwards the policy `admin` allows everything, for all principals that it is attached to. The
    role's other policies are detached, because they could only deny. A trust policy that denies is
    replaced.

    Raise `NotFound` if there is no such account, or no such member of its organization; `Conflict`
    if the account or the person is suspended.
    """
    account = _account_of(tx, handle)
    if account is None:
        raise NotFound(f"there is no account {handle}")
    organization_id = organization_of(tx, account.id)
    lock_organization(tx, organization_id)
    increment_revision(tx, account.id)
    person = PEOPLE.find_named(tx, organization_id, email)
    if person is None:
        raise NotFound(f"the organization of {handle} has no member with the address {email}")
    if account.status != "active":
        raise Conflict("the account is suspended; a person who owns it resumes it")
    if person.status != "active":
        raise Conflict(
            f"{email} is suspended; 'entrepot reset-password {email} --resume' lets the person in"
        )
    role, changes = _restore_role(tx, account.id, person, new_id, now)
    changes += _restore_policies(tx, role, new_id, now)
    if ASSIGNMENTS.add(tx, Assignment(role.id, person.id, now)) or roles.make_assignment_manual(
        tx, role.id, person.id
    ):
        changes.append(HostChange("iam:AssignRole", ROLES.crn_of(role)))
    return account, changes


def _restore_role(
    tx: Connection, account_id: str, person: User, new_id: Callable[[], str], now: int
) -> tuple[Role, list[HostChange]]:
    crn = person.crn
    role = ROLES.find_named(tx, account_id, ADMIN)
    fresh = new_admin_role(new_id(), account_id, crn, now)
    if role is None:
        ROLES.add(tx, fresh)
        return fresh, [HostChange("iam:CreateRole", ROLES.crn_of(fresh))]
    trust: dict[str, Any] = msgspec.json.decode(role.trust_policy)
    own = {"effect": "allow", "principals": [crn]}
    denies = any(each["effect"] == "deny" for each in trust["statements"])
    is_trusted = any(
        each["effect"] == "allow" and crn in each["principals"] and "conditions" not in each
        for each in trust["statements"]
    )
    if is_trusted and not denies:
        return role, []
    # `trust_ids` is kept: names in the old statements still mean the same principals.
    added = json_text({**trust, "statements": [*trust["statements"], own]})
    if denies or not _is_trust_policy(added):
        changed = role._replace(trust_policy=fresh.trust_policy, trust_ids="{}", updated_at=now)
        revoke_sessions_of_role(tx, role.id, now)
    else:
        changed = role._replace(trust_policy=added, updated_at=now)
    ROLES.save(tx, changed)
    return changed, [HostChange("iam:UpdateRole", ROLES.crn_of(role))]


def _is_trust_policy(text: str) -> bool:
    """Return True if a trust policy is valid; it may have become too large."""
    try:
        check_size(text.encode())
        policy_of(msgspec.json.decode(text), PolicyKind.TRUST)
    except InvalidInput:
        return False
    return True


def _restore_policies(
    tx: Connection, role: Role, new_id: Callable[[], str], now: int
) -> list[HostChange]:
    changes: list[HostChange] = []
    account_id = role.account_id
    policy, action = put_policy(tx, new_admin_policy(new_id(), account_id, now))
    if action is not None:
        changes.append(HostChange(action, POLICIES.crn_of(policy)))
    for each in policies.list_policies_of(tx, account_id, role.id):
        if each.id != policy.id:
            of = account_id, each.id
            for attachment in ATTACHMENTS.list(tx, of, "", "", _MAX_ATTACHMENTS):
                if attachment.role_id == role.id:
                    ATTACHMENTS.remove(tx, of, attachment.id)
            changes.append(HostChange("iam:DetachPolicy", POLICIES.crn_of(each)))
    if ATTACHMENTS.add(tx, Attachment(new_id(), account_id, policy.id, None, role.id, now)):
        changes.append(HostChange("iam:AttachPolicy", POLICIES.crn_of(policy)))
    return changes
