"""New credentials for an operator who lost those of the install, or never saw them."""

from __future__ import annotations

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from cloudcore.identity.rows import service_accounts, users
from cloudcore.identity.rows.accounts import Account, find_account, find_account_ids, list_accounts
from cloudcore.identity.rows.service_accounts import ServiceAccount
from cloudcore.identity.rows.users import User
from cloudcore.identity.services.access_keys import (
    MAX_ACTIVE,
    MAX_KEPT,
    NewAccessKey,
    create_access_key,
)
from cloudcore.keyring import Keyring


def reset_password(tx: Connection, email: str, kept: str, now: int, *, resumes: bool) -> User:
    """Give a person a password for one sign-in (`kept`: its hash), and end all its sessions.

    A suspended person is let in again if `resumes`.

    Raises:
        NotFound: nobody has this address, in lower case.
        Conflict: the person is suspended, and `resumes` is False.

    """
    found = users.find_user_by_email(tx, email)
    if found is not None:
        users.lock_user(tx, found.id)
        found = users.find_user(tx, found.id)
    if found is None:
        raise NotFound(f"no person has the address {email}")
    if found.status != "active" and not resumes:
        raise Conflict(f"{email} is suspended; add --resume to let the person in again")
    changed = found._replace(
        password=kept, must_change_password=True, status="active", updated_at=now
    )
    users.update_user(tx, changed)
    users.revoke_other_sessions(tx, found.id, "", now)
    return changed


def find_program(tx: Connection, handle: str | None, name: str) -> tuple[Account, ServiceAccount]:
    """Return a service account of an account; without a handle, of the only account there is.

    Raises:
        NotFound: there is no such account, or service account.
        Conflict: there are several accounts, or it is suspended.

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
    program = service_accounts.find_service_account_named(tx, account.id, name)
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
    """Add an access key to a service account; if it `replaces`, delete its other keys.

    Raises:
        Conflict: there are already as many keys as there can be, and `replaces` is False.

    """
    if replaces:
        for old in service_accounts.list_access_keys(
            tx, program.account_id, program.id, "", MAX_KEPT
        ):
            service_accounts.delete_access_key(tx, old.id)
    try:
        create_access_key(tx, key.row(keyring, key_id, program.account_id, program.id, now))
    except Conflict:
        raise Conflict(
            f"{program.name} has {MAX_ACTIVE} active access keys, or {MAX_KEPT} of any kind; "
            "add --replace to delete them and end the sessions they signed in"
        ) from None
