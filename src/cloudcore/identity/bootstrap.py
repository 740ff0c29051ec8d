"""Create the first account of an install, with its credentials (``entrepot init``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict
from cloudcore.iam import passwords
from cloudcore.identity.names import check_handle, email_address
from cloudcore.identity.rows.accounts import Account, has_accounts, lock_creation
from cloudcore.identity.rows.organizations import MEMBERS, ORGANIZATIONS, Membership, Organization
from cloudcore.identity.rows.policies import ATTACHMENTS, POLICIES, Attachment
from cloudcore.identity.rows.service_accounts import ACCESS_KEYS, SERVICE_ACCOUNTS, ServiceAccount
from cloudcore.identity.rows.users import User
from cloudcore.identity.services.accounts import (
    ADMIN,
    Founder,
    PrepareAddition,
    no_addition,
    open_account,
)
from cloudcore.identity.services.service_accounts import NewAccessKey, new_access_key
from cloudcore.identity.services.users import add_person, first_salt, new_password
from cloudcore.keyring import Keyring


class FirstCredentials(NamedTuple):
    """The credentials of the install's owner, shown once."""

    account_id: str
    handle: str
    email: str
    one_time_password: str
    access_key_id: str
    secret_access_key: str


async def create_first_account(
    database: Database,
    keyring: Keyring,
    new_id: Callable[[], str],
    now: int,
    prepare_account: PrepareAddition = no_addition,
    /,
    *,
    handle: str,
    email: str,
) -> FirstCredentials:
    """Create an organization with an account, its role `admin`, a person and a service account.

    The role is assigned to the person; the service account has all rights and an access key.

    `prepare_account` prepares what other families add to a new account.

    Raise `InvalidInput` if the handle or the e-mail address is malformed, `Conflict` if an account
    exists already; then nothing is changed.
    """
    check_handle(handle)
    email = email_address(email)
    # Random and slow work is done before the transaction, which may run more than once.
    password, key = new_password(), new_access_key()
    hashed = passwords.hash_password(password, salt=first_salt(keyring, email))
    organization_id = new_id()
    user = User(new_id(), email, hashed, new_id(), now, now, home_organization_id=organization_id)
    account = Account(new_id(), organization_id, handle, now)
    add = await prepare_account(account.id, now)

    def create(tx: Connection) -> None:
        lock_creation(tx)
        if has_accounts(tx):
            raise Conflict("this install has an account already")
        ORGANIZATIONS.add(tx, Organization(organization_id, "main", now, now))
        add_person(tx, user)
        MEMBERS.add(tx, Membership(organization_id, user.id, "owner", now))
        founder = Founder(user.crn, user.id)
        open_account(tx, account, founder, new_id, add)
        _add_program(tx, account, key, keyring, new_id)

    await database.write(create)
    secrets = key.access_key_id, key.secret
    return FirstCredentials(account.id, handle, user.email, password, *secrets)


def _add_program(
    tx: Connection, account: Account, key: NewAccessKey, keyring: Keyring, new_id: Callable[[], str]
) -> None:
    """Insert a service account with all rights and an access key, for use without a browser."""
    owner, now = new_id(), account.created_at
    of = account.id, ADMIN, "Created with the account."
    SERVICE_ACCOUNTS.add(tx, ServiceAccount(owner, *of, now, now))
    policy = POLICIES.find_named(tx, account.id, ADMIN)
    assert policy is not None
    ATTACHMENTS.add(tx, Attachment(new_id(), account.id, policy.id, owner, None, now))
    ACCESS_KEYS.add(tx, key.row(keyring, new_id(), account.id, owner, now))
