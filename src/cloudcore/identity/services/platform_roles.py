"""Roles that services of the platform make in accounts, for what they run there.

Such a role, and its one policy, are rows as others, so that lists show what may act in the account.
Their names begin with ``service/``. No name in a request has a slash, so nobody else makes one, and
no request names one. Their owner cannot change or delete them: they go with what they are for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.iam.policy import PolicyKind
from cloudcore.iam.service_roles import service_crn
from cloudcore.identity.documents import stored_document
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.policies import ATTACHMENTS, POLICIES, Attachment, PolicyRow
from cloudcore.identity.rows.roles import ROLES, Role

PREFIX: Final = "service/"
_SECONDS: Final = 12 * 3600
"""The longest of its sessions; each service asks for those that it needs."""


def service_of(name: str) -> str | None:
    """Return the service that a role or policy of this name is of; None if it is of the owner."""
    return name.split("/")[1] if name.startswith(PREFIX) else None


def refuse_platforms(found: Role | PolicyRow) -> None:
    """Raise `Conflict` if a role or policy is the platform's."""
    service = service_of(found.name)
    if service is not None:
        words = (
            f"{found.name} is the platform's; it goes with what the {service} service made it for"
        )
        raise Conflict(words, reason="platform_owned", service=service)


def put_platform_role(
    tx: Connection,
    service: str,
    account_id: str,
    name: str,
    policy: Mapping[str, Any],
    new_id: Callable[[], str],
    now: int,
) -> str:
    """Return the id of a service's role with this policy; make or complete what is missing."""
    full = f"{PREFIX}{service}/{name}"
    increment_revision(tx, account_id)
    rights = stored_document(tx, dict(policy), PolicyKind.IDENTITY, account_id)
    held = POLICIES.find_named(tx, account_id, full)
    if held is None:
        words = f"What {full} may do."
        held = PolicyRow(
            new_id(), account_id, full, words, rights.text, 1, now, now, rights.encoded_ids
        )
        POLICIES.add(tx, held)
    elif (held.document, held.account_ids) != (rights.text, rights.encoded_ids):
        held = held._replace(
            document=rights.text,
            account_ids=rights.encoded_ids,
            revision=held.revision + 1,
            updated_at=now,
        )
        POLICIES.save(tx, held)
    role = ROLES.find_named(tx, account_id, full)
    if role is None:
        statement = {"effect": "allow", "principals": [service_crn(service)]}
        document = {"version": "1", "statements": [statement]}
        trust = stored_document(tx, document, PolicyKind.TRUST, account_id)
        words = f"Made by the platform for its {service} service."
        role = Role(new_id(), account_id, full, words, trust.text, _SECONDS, now, now)
        ROLES.add(tx, role)
    ATTACHMENTS.add(tx, Attachment(new_id(), account_id, held.id, None, role.id, now))
    return role.id


def remove_platform_role(tx: Connection, service: str, account_id: str, role_id: str) -> None:
    """Delete a service's role, with its sessions, and its policy; do nothing if it is gone."""
    increment_revision(tx, account_id)
    role = ROLES.find(tx, account_id, role_id)
    if role is None or service_of(role.name) != service:
        return
    ROLES.remove(tx, account_id, role.id)
    policy = POLICIES.find_named(tx, account_id, role.name)
    if policy is not None:
        POLICIES.remove(tx, account_id, policy.id)
