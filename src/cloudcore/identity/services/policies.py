"""Policies and attachments: changes and their rules."""

from __future__ import annotations

from typing import Any, Final

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.iam.policy import MAX_PRINCIPAL_BYTES, PolicyKind
from cloudcore.identity.rights.documents import stored_document
from cloudcore.identity.rows import policies as rows
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.policies import ATTACHMENTS, POLICIES, Attachment, PolicyRow
from cloudcore.identity.rows.roles import ROLES
from cloudcore.identity.rows.service_accounts import SERVICE_ACCOUNTS
from cloudcore.identity.services.roles import lock_own, refuse_platforms
from cloudcore.web.revisions import require_revision

MAX_ATTACHMENTS: Final = 10
"""Maximum number of policies of a service account or role."""


def create_policy(tx: Connection, policy: PolicyRow, document: dict[str, Any]) -> PolicyRow:
    """Create a policy with this document; raise `Conflict` if its name is taken."""
    increment_revision(tx, policy.account_id)
    stored = stored_document(tx, document, PolicyKind.IDENTITY, policy.account_id)
    made = policy._replace(document=stored.text, account_ids=stored.encoded_ids)
    if not POLICIES.add(tx, made):
        raise Conflict(
            f"there is a policy {policy.name}; delete it, or choose another name",
            name=policy.name,
        )
    return made


def create_or_find_policy(tx: Connection, policy: PolicyRow, document: dict[str, Any]) -> PolicyRow:
    """Create a policy, or return the existing one with the same name and document.

    Raise `Conflict` if the policy with this name has another document.
    """
    found = POLICIES.find_named(tx, policy.account_id, policy.name)
    if found is not None:
        stored = stored_document(tx, document, PolicyKind.IDENTITY, policy.account_id)
        if (found.document, found.account_ids) == (stored.text, stored.encoded_ids):
            return found
    return create_policy(tx, policy, document)


def update_policy(
    tx: Connection,
    account_id: str,
    policy_id: str,
    changes: dict[str, Any],
    now: int,
    revision: int | None = None,
) -> PolicyRow:
    """Set the fields in `changes` on a policy; return the policy.

    A new document increments the policy's revision. Raise `Conflict` if a principal would have too
    many bytes of policies, or the policy does not have this `revision` (None accepts any). See
    `lock_own` for other errors.
    """
    policy = lock_own(tx, POLICIES, account_id, policy_id)
    require_revision(policy.revision, revision)
    if "document" in changes:
        stored = stored_document(tx, changes["document"], PolicyKind.IDENTITY, account_id)
        if len(stored.text) > len(policy.document):
            _check_size(len(stored.text) + rows.find_largest_size_of_others(tx, policy.id))
        new: dict[str, Any] = {"document": stored.text, "account_ids": stored.encoded_ids}
        is_other = policy._replace(**new) != policy
        changes = {**changes, **new, "revision": policy.revision + is_other}
    if changes:
        policy = policy._replace(**changes, updated_at=now)
        POLICIES.save(tx, policy)
    return policy


def delete_policy(tx: Connection, account_id: str, policy_id: str) -> None:
    """Delete a policy; raise `Conflict` if it is attached."""
    lock_own(tx, POLICIES, account_id, policy_id)
    if ATTACHMENTS.count(tx, (account_id, policy_id)):
        raise Conflict("the policy is attached; detach it first")
    POLICIES.remove(tx, account_id, policy_id)


def attach_policy(tx: Connection, attachment: Attachment) -> Attachment:
    """Attach a policy to a service account or role of the same account.

    Raise `Conflict` if the policy is already attached to the principal, or the principal's policies
    would be too many or too large.
    """
    policy = lock_own(tx, POLICIES, attachment.account_id, attachment.policy_id)
    count, size = rows.find_totals(tx, _principal_of(tx, attachment))
    if count >= MAX_ATTACHMENTS:
        raise Conflict(f"a principal has at most {MAX_ATTACHMENTS} policies")
    _check_size(size + len(policy.document))
    if not ATTACHMENTS.add(tx, attachment):
        raise Conflict("the policy is attached there")
    return ATTACHMENTS.get(tx, (policy.account_id, policy.id), attachment.id)


def _check_size(size: int) -> None:
    """Raise `Conflict` if a principal's policies have too many bytes; documents are ASCII."""
    if size > MAX_PRINCIPAL_BYTES:
        raise Conflict(
            f"the policies of a principal have at most {MAX_PRINCIPAL_BYTES} bytes together, "
            f"and would have {size}",
            limit=MAX_PRINCIPAL_BYTES,
            size=size,
        )


def _principal_of(tx: Connection, attachment: Attachment) -> str:
    """Return the id of the attachment's principal.

    Raise `NotFound` if it does not exist, `Conflict` if it is a role made by the platform.
    """
    if attachment.role_id is not None:
        role = ROLES.get(tx, attachment.account_id, attachment.role_id)
        refuse_platforms(role)
        return role.id
    assert attachment.service_account_id is not None
    return SERVICE_ACCOUNTS.get(tx, attachment.account_id, attachment.service_account_id).id


def detach_policy(tx: Connection, account_id: str, policy_id: str, attachment_id: str) -> None:
    """Detach a policy from a principal, or raise `NotFound`."""
    lock_own(tx, POLICIES, account_id, policy_id)
    ATTACHMENTS.remove(tx, (account_id, policy_id), attachment_id)
