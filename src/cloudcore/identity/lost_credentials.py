"""Issue new credentials to an operator who lost those of the install."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from cloudcore.identity.names import missing
from cloudcore.identity.rows import users
from cloudcore.identity.rows.accounts import Account, find_account, find_account_ids, list_accounts
from cloudcore.identity.rows.organizations import JOINED, Joined
from cloudcore.identity.rows.service_accounts import ACCESS_KEYS, SERVICE_ACCOUNTS, ServiceAccount
from cloudcore.identity.rows.sessions import revoke_other_sessions
from cloudcore.identity.rows.users import USERS, User
from cloudcore.identity.services.service_accounts import (
    MAX_ACTIVE,
    MAX_KEPT,
    NewAccessKey,
    create_access_key,
)
from cloudcore.keyring import Keyring

MAX_JOINED: Final = 1000
"""Maximum number of a person's organizations that are read."""


def find_person_by_email(tx: Connection, email: str, organization_id: str | None) -> User:
    """Return the person with an e-mail address (in lower case), of this organization if given.

    Raises:
        NotFound: no person, or none in this organization, has the address.
        Conflict: several persons have the address and no organization is given.

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
    """Return the organizations a person has joined, or only the personal one if none.

    Two persons with the same e-mail address never share an organization.
    """
    found = JOINED.list(tx, user.id, "", "", MAX_JOINED)
    return [each for each in found if not each.is_personal] or found


def reset_password(tx: Connection, user_id: str, kept: str, now: int, *, resumes: bool) -> User:
    """Set a person's one-time password (`kept`: its hash) and end all of the person's sessions.

    `resumes` reactivates a suspended person.

    Raises:
        NotFound: the person does not exist.
        Conflict: the person is suspended, and `resumes` is False.

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
    """Return a service account and its account; without a handle, of the only account.

    Raises:
        NotFound: the account or the service account does not exist.
        Conflict: there are several accounts and no handle is given, or one of the two is suspended.

    """
    if handle is None:
        accounts = list_accounts(tx, 2)
        if len(accounts) > 1:
            raise Conflict("there are several accounts; name one with --account HANDLE")
        account = accounts[0] if accounts else None
    else:
        account = find_account(tx, find_account_ids(tx, [handle]).get(handle, ""))
    if account is None:
        raise NotFound(f"there is no account {handle or ''}".rstrip())
    program = SERVICE_ACCOUNTS.find_named(tx, account.id, name)
    if program is None:
        raise NotFound(f"the account {account.handle} has no service account {name}")
    for what, status in (("account", account.status), ("service account", program.status)):
        if status != "active":
            raise Conflict(f"the {what} is suspended; a person who owns it resumes it")
    return account, program


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

    Raises:
        Conflict: the service account has the maximum number of keys and `replaces` is False.

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
