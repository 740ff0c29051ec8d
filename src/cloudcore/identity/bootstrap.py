"""Create the first account of an install, with its credentials (``entrepot init``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from cloudcore.db.base import Connection, Database
from cloudcore.errors import Conflict
from cloudcore.iam import passwords
from cloudcore.identity.names import check_handle, email_address, person_crn
from cloudcore.identity.rows import organizations
from cloudcore.identity.rows.accounts import Account, has_accounts, hold_adding
from cloudcore.identity.rows.organizations import MEMBERS, Membership, Organization
from cloudcore.identity.rows.policies import ATTACHMENTS, Attachment
from cloudcore.identity.rows.service_accounts import ACCESS_KEYS, SERVICE_ACCOUNTS, ServiceAccount
from cloudcore.identity.rows.users import User, new_user
from cloudcore.identity.services.accounts import (
    ADMIN,
    AccountAddition,
    FirstIds,
    Founder,
    PrepareAddition,
    found_account,
    no_addition,
)
from cloudcore.identity.services.service_accounts import NewAccessKey, new_access_key
from cloudcore.identity.services.users import add_person, first_salt, new_password
from cloudcore.keyring import Keyring

_ORGANIZATION: Final = "main"


class FirstCredentials(NamedTuple):
    """The credentials of the install's owner, shown once."""

    account_id: str
    handle: str
    email: str
    one_time_password: str
    access_key_id: str
    secret_access_key: str


class _Plan(NamedTuple):
    """Random and slow values, computed before the transaction because it may run more than once."""

    ids: FirstIds
    organization_id: str
    service_account_id: str
    key_row_id: str
    attachment_id: str
    user: User
    key: NewAccessKey
    handle: str
    now: int
    add: AccountAddition


async def create_first_account(
    database: Database,
    keyring: Keyring,
    new_id: Callable[[], str],
    now: int,
    prepare_addition: PrepareAddition = no_addition,
    /,
    *,
    handle: str,
    email: str,
) -> FirstCredentials:
    """Create organization, account, role `admin`, its person and a service account with a key.

    `prepare_addition` prepares what another family adds to the account.

    Raises:
        InvalidInput: the handle or the e-mail address is malformed.
        Conflict: an account exists already; nothing is changed.

    """
    check_handle(handle)
    password = new_password()
    email = email_address(email)
    hashed = passwords.hash_password(password, salt=first_salt(keyring, email))
    user = new_user(new_id(), email, hashed, new_id(), now)
    ids = FirstIds(new_id(), new_id(), new_id(), new_id())
    plan = _Plan(
        ids=ids,
        organization_id=new_id(),
        service_account_id=new_id(),
        key_row_id=new_id(),
        attachment_id=new_id(),
        user=user,
        key=new_access_key(),
        handle=handle,
        now=now,
        add=await prepare_addition(ids.account, now),
    )
    await database.write(_create, keyring, plan)
    return FirstCredentials(
        plan.ids.account, handle, user.email, password, plan.key.access_key_id, plan.key.secret
    )


def _create(tx: Connection, keyring: Keyring, plan: _Plan) -> None:
    hold_adding(tx)
    if has_accounts(tx):
        raise Conflict("this install has an account already")
    now, user = plan.now, plan.user
    names = {"id": plan.organization_id, "name": _ORGANIZATION}
    organization = Organization(**names, is_personal=False, created_at=now, updated_at=now)
    organizations.add_organization(tx, organization)
    add_person(tx, user._replace(home_organization_id=plan.organization_id))
    MEMBERS.add(tx, Membership(plan.organization_id, user.id, "owner", now))
    account = Account(
        id=plan.ids.account,
        organization_id=plan.organization_id,
        handle=plan.handle,
        status="active",
        auto_create_repositories=True,
        created_at=now,
    )
    founder = Founder(person_crn(user.organization_id, user.id), user.id)
    found_account(tx, account, founder, plan.ids, plan.add)
    _add_program(tx, keyring, plan)


def _add_program(tx: Connection, keyring: Keyring, plan: _Plan) -> None:
    """Insert a service account with all rights, for use without a browser."""
    account_id, owner, now = plan.ids.account, plan.service_account_id, plan.now
    description = "Created with the account."
    SERVICE_ACCOUNTS.add(
        tx, ServiceAccount(owner, account_id, ADMIN, description, "active", now, now)
    )
    ATTACHMENTS.add(
        tx, Attachment(plan.attachment_id, account_id, plan.ids.policy, owner, None, now)
    )
    ACCESS_KEYS.add(tx, plan.key.row(keyring, plan.key_row_id, account_id, owner, now))
