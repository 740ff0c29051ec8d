"""Service accounts, the identities of programs: changes with their rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.policies import Attachment, PolicyRow
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS, AccessKey, ServiceAccount
from cloudcore.identity.services.access_keys import create_access_key
from cloudcore.identity.services.policies import attach_policy, create_or_find_policy


class NewGrant(NamedTuple):
    """A policy to create and to attach."""

    policy: PolicyRow
    document: dict[str, Any]
    attachment_id: str


class SetUp(NamedTuple):
    """A service account with its policies and its access key."""

    service_account: ServiceAccount
    policies: tuple[PolicyRow, ...]
    access_key: AccessKey | None


def create_service_account(tx: Connection, service_account: ServiceAccount) -> ServiceAccount:
    """Create a service account without rights."""
    increment_revision(tx, service_account.account_id)
    if not SERVICE_ACCOUNTS.add(tx, service_account):
        raise Conflict("there is a service account of this name", name=service_account.name)
    return service_account


def update_service_account(
    tx: Connection, account_id: str, service_account_id: str, changes: dict[str, Any], now: int
) -> ServiceAccount:
    """Change the given fields of a service account."""
    increment_revision(tx, account_id)
    found = SERVICE_ACCOUNTS.get(tx, account_id, service_account_id)
    if changes:
        found = found._replace(**changes, updated_at=now)
        SERVICE_ACCOUNTS.save(tx, found)
    return found


def delete_service_account(tx: Connection, account_id: str, service_account_id: str) -> None:
    """Delete a service account with its keys and the sessions and credentials made with them."""
    increment_revision(tx, account_id)
    SERVICE_ACCOUNTS.remove(tx, account_id, service_account_id)


def set_up_service_account(
    tx: Connection,
    service_account: ServiceAccount,
    grants: Sequence[NewGrant],
    access_key: AccessKey | None,
) -> SetUp:
    """Create a service account, a policy for each grant, and its access key if there is one.

    A policy that is there already with this name and document is attached as it is: it may be left
    of a service account of the same name that was deleted.

    Raises:
        Conflict: the name of the service account is taken, or that of a policy with another
            document, or the policies are too large together.

    """
    made = create_service_account(tx, service_account)
    policies = tuple(_grant(tx, made, each) for each in grants)
    key = None if access_key is None else create_access_key(tx, access_key)
    return SetUp(made, policies, key)


def _grant(tx: Connection, service_account: ServiceAccount, grant: NewGrant) -> PolicyRow:
    policy = create_or_find_policy(tx, grant.policy, grant.document)
    attachment = Attachment(
        grant.attachment_id,
        policy.account_id,
        policy.id,
        service_account.id,
        None,
        grant.policy.created_at,
    )
    attach_policy(tx, attachment)
    return policy
