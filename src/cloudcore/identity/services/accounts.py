"""Accounts: the unit of isolation, owned by an organization."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.db.rows import json_text
from cloudcore.errors import Conflict
from cloudcore.identity.names import ACCOUNTS as ACCOUNTS_OF_ONE
from cloudcore.identity.rows.accounts import (
    ACCOUNTS,
    OWN_ACCOUNT,
    Account,
    increment_revision,
)
from cloudcore.identity.rows.policies import ATTACHMENTS, POLICIES, Attachment, PolicyRow
from cloudcore.identity.rows.roles import ASSIGNMENTS, ROLES, Assignment, Role
from cloudcore.identity.services.members import lock_organization
from cloudcore.quotas.limits import EVERY_ACCOUNT, check_limit

ADMIN: Final = "admin"
"""Name of the first role, policy and service account of an account."""
ADMIN_SESSION_SECONDS: Final = 43_200
_ADMIN_DOCUMENT: Final = {
    "version": "1",
    "statements": [{"effect": "allow", "actions": ["*"], "resources": ["*"]}],
}


class Founder(NamedTuple):
    """The creator of an account, whom the account's first role trusts."""

    crn: str
    user_id: str | None
    """Id of a person, to whom the role is assigned; None for a program, which needs its own
    permission ``iam:AssumeRole``."""


AccountSetup = Callable[[Connection], None]
"""Inserts what other families add to a new account, in the transaction that creates the account."""
PrepareAddition = Callable[[str, int], Awaitable[AccountSetup]]
"""Given the id and creation time of a new account, returns its `AccountSetup`. Called before the
transaction, for slow work and calls to other servers."""


async def no_addition(_account_id: str, _now: int) -> AccountSetup:
    """Return a function that adds nothing to a new account."""
    return lambda _tx: None


def open_account(
    tx: Connection,
    account: Account,
    founder: Founder,
    new_id: Callable[[], str],
    add: AccountSetup = lambda _tx: None,
) -> Account:
    """Create an account with a role `admin` that has all rights and trusts the founder.

    `add` inserts what other families add to each account. The role is assigned to the founder if
    that is a person.

    Raise `QuotaExceeded` if the organization has the maximum number of accounts, `Conflict` if the
    handle is taken.
    """
    assert account.organization_id is not None
    lock_organization(tx, account.organization_id)
    used = ACCOUNTS.count(tx, account.organization_id)
    words = "an organization has at most {limit} accounts; use another organization"
    check_limit(tx, EVERY_ACCOUNT, ACCOUNTS_OF_ONE, used, words)
    if not ACCOUNTS.add(tx, account):
        raise Conflict("the handle is taken", handle=account.handle)
    now = account.created_at
    role = new_admin_role(new_id(), account.id, founder.crn, now)
    policy = new_admin_policy(new_id(), account.id, now)
    ROLES.add(tx, role)
    POLICIES.add(tx, policy)
    ATTACHMENTS.add(tx, Attachment(new_id(), account.id, policy.id, None, role.id, now))
    if founder.user_id is not None:
        ASSIGNMENTS.add(tx, Assignment(role.id, founder.user_id, now))
    add(tx)
    increment_revision(tx, account.id)
    return OWN_ACCOUNT.get(tx, account.id, account.id)


def new_admin_role(role_id: str, account_id: str, trusted: str, now: int) -> Role:
    """Return the first role of an account, which trusts the principal with the CRN `trusted`."""
    trust = {"version": "1", "statements": [{"effect": "allow", "principals": [trusted]}]}
    description = "May do everything in this account."
    return Role(
        role_id, account_id, ADMIN, description, json_text(trust), ADMIN_SESSION_SECONDS, now, now
    )


def new_admin_policy(policy_id: str, account_id: str, now: int) -> PolicyRow:
    """Return the first policy of an account, which allows everything."""
    description, document = "Allows everything.", json_text(_ADMIN_DOCUMENT)
    return PolicyRow(policy_id, account_id, ADMIN, description, document, 1, now, now)


def update_account(tx: Connection, account_id: str, changes: dict[str, Any]) -> Account:
    """Set the fields in `changes` on an account; return the account."""
    increment_revision(tx, account_id)
    account = OWN_ACCOUNT.get(tx, account_id, account_id)._replace(**changes)
    OWN_ACCOUNT.save(tx, account)
    return account
