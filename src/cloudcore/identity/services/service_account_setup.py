"""Create a service account with all that it needs to work, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.identity.rows.policies import Attachment, PolicyRow
from cloudcore.identity.rows.service_accounts import AccessKey, ServiceAccount
from cloudcore.identity.services.access_keys import create_access_key
from cloudcore.identity.services.policies import attach_policy, create_or_find_policy
from cloudcore.identity.services.service_accounts import create_service_account


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
            document, or the policies are too
            large together.

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
