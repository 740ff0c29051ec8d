"""Roles and their assignments, and the roles that services of the platform make in accounts.

The role of a service, and the role's only policy, are ordinary rows, so that lists show everything
that may act in the account. Their names begin with ``service/``. Names in requests contain no
slash, so no request can create or name such a role or policy. The account cannot change or delete
them: they are deleted with the resource that they were made for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.iam.policy import PolicyKind
from cloudcore.iam.service_roles import service_crn
from cloudcore.identity.rights.documents import StoredDocument, ids_of, read_ids, stored_document
from cloudcore.identity.rows import roles as rows
from cloudcore.identity.rows.accounts import increment_revision
from cloudcore.identity.rows.identity_providers import IDENTITY_PROVIDERS
from cloudcore.identity.rows.owned import OwnedRows
from cloudcore.identity.rows.policies import ATTACHMENTS, POLICIES, Attachment, PolicyRow
from cloudcore.identity.rows.roles import ROLES, Role
from cloudcore.identity.rows.sessions import revoke_sessions_of_assigned, revoke_sessions_of_role
from cloudcore.identity.services.members import find_person, lock_organization, organization_of

T = TypeVar("T", Role, PolicyRow)

PREFIX: Final = "service/"
_SECONDS: Final = 12 * 3600
"""Maximum duration of a session of a platform role; the service may request shorter sessions."""


def service_of(name: str) -> str | None:
    """Return the service in the name of a platform role or policy; None for other names."""
    return name.split("/")[1] if name.startswith(PREFIX) else None


def refuse_platforms(found: Role | PolicyRow) -> None:
    """Raise `Conflict` if a role or policy was made by the platform."""
    service = service_of(found.name)
    if service is not None:
        words = (
            f"{found.name} is the platform's; it goes with what the {service} service made it for"
        )
        raise Conflict(words, reason="platform_owned", service=service)


def lock_own(tx: Connection, rows: OwnedRows[T], account_id: str, row_id: str) -> T:
    """Lock an account's rights, and return a role or policy that the account may change.

    Raise `NotFound` if the account has no such role or policy, `Conflict` if the platform made it.
    """
    increment_revision(tx, account_id)
    found = rows.get(tx, account_id, row_id)
    refuse_platforms(found)
    return found


def put_platform_role(
    tx: Connection,
    service: str,
    account_id: str,
    name: str,
    policy: Mapping[str, Any],
    new_id: Callable[[], str],
    now: int,
) -> str:
    """Create a service's role and its policy, if they are missing; return the role's id.

    If the policy exists, its document is replaced by `policy`. An existing role keeps its trust
    policy.
    """
    full = f"{PREFIX}{service}/{name}"
    increment_revision(tx, account_id)
    rights = stored_document(tx, dict(policy), PolicyKind.IDENTITY, account_id)
    new = new_id(), account_id, full, f"What {full} may do.", rights.text, 1, now, now
    held, _ = put_policy(tx, PolicyRow(*new, rights.encoded_ids))
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


def put_policy(tx: Connection, policy: PolicyRow) -> tuple[PolicyRow, str | None]:
    """Create a policy, or replace the document of the policy with the same name.

    Return (the stored policy, the action for the audit log); the action is None if nothing changed.
    """
    found = POLICIES.find_named(tx, policy.account_id, policy.name)
    if found is None:
        POLICIES.add(tx, policy)
        return policy, "iam:CreatePolicy"
    changed = found._replace(document=policy.document, account_ids=policy.account_ids)
    documents = [msgspec.json.decode(each.document) for each in (found, changed)]
    if documents[0] == documents[1] and found.account_ids == changed.account_ids:
        return found, None
    changed = changed._replace(revision=found.revision + 1, updated_at=policy.updated_at)
    POLICIES.save(tx, changed)
    return changed, "iam:UpdatePolicy"


def remove_platform_role(tx: Connection, service: str, account_id: str, role_id: str) -> None:
    """Delete a service's role with its sessions and policy; do nothing if there is none."""
    increment_revision(tx, account_id)
    role = ROLES.find(tx, account_id, role_id)
    if role is None or service_of(role.name) != service:
        return
    ROLES.remove(tx, account_id, role.id)
    policy = POLICIES.find_named(tx, account_id, role.name)
    if policy is not None:
        POLICIES.remove(tx, account_id, policy.id)


def create_role(tx: Connection, role: Role, trust_policy: dict[str, Any]) -> Role:
    """Create a role; `trust_policy` determines who may assume it.

    Raise `Conflict` if the name is taken, `InvalidInput` if the trust policy is not valid.
    """
    increment_revision(tx, role.account_id)
    stored = stored_document(tx, trust_policy, PolicyKind.TRUST, role.account_id)
    made = role._replace(trust_policy=stored.text, trust_ids=stored.encoded_ids)
    if not ROLES.add(tx, made):
        raise Conflict("there is a role of this name", name=role.name)
    return made


def update_role(
    tx: Connection, account_id: str, role_id: str, changes: dict[str, Any], now: int
) -> Role:
    """Set the fields in `changes` on a role; return the role.

    A new trust policy ends the role's sessions, unless it only adds allow statements to the old.
    """
    role = lock_own(tx, ROLES, account_id, role_id)
    ends_sessions = False
    if "trust_policy" in changes:
        stored = stored_document(tx, changes["trust_policy"], PolicyKind.TRUST, account_id)
        new: dict[str, Any] = {"trust_policy": stored.text, "trust_ids": stored.encoded_ids}
        changes = {**changes, **new}
        ends_sessions = not _only_adds(stored, role)
    if changes:
        role = role._replace(**changes, updated_at=now)
        ROLES.save(tx, role)
    if ends_sessions:
        # The row is locked now, so the role cannot be assumed by the old trust policy meanwhile.
        revoke_sessions_of_role(tx, role.id, now)
    return role


def _only_adds(stored: StoredDocument, role: Role) -> bool:
    """Return True if the new trust policy still admits every principal that the old one admits.

    It must keep all old statements, with the same ids for their names, and only add statements that
    allow. If the new policy has a deny, names in the old statements that had no id must still have
    none. Names in new statements are ignored, so that the effect does not reveal if an account has
    a handle.
    """
    before = msgspec.json.decode(role.trust_policy)["statements"]
    after = msgspec.json.decode(stored.text)["statements"]
    old_ids = read_ids(role.trust_ids)
    if any(each["effect"] == "deny" for each in after) and ids_of(before, stored.ids) != old_ids:
        return False
    return (
        old_ids.items() <= stored.ids.items()
        and all(each in after for each in before)
        and all(each["effect"] == "allow" for each in after if each not in before)
    )


def delete_role(tx: Connection, account_id: str, role_id: str) -> None:
    """Delete a role; its sessions end with it."""
    lock_own(tx, ROLES, account_id, role_id)
    ROLES.remove(tx, account_id, role_id)


def assign_role(
    tx: Connection, account_id: str, role_id: str, person: str, now: int
) -> rows.Assignment:
    """Assign a role to a member of the account's organization.

    The assignment has no effect until the role's trust policy admits the person. `person` is an id,
    CRN or e-mail address. If a group of an identity provider gave the person the role, the
    assignment becomes a manual one.

    Raise `Conflict` if the person already has a manual assignment of the role.
    """
    organization_id = organization_of(tx, account_id)
    lock_organization(tx, organization_id)
    role = lock_own(tx, ROLES, account_id, role_id)
    user = find_person(tx, organization_id, person)
    is_new = rows.ASSIGNMENTS.add(tx, rows.Assignment(role.id, user.id, now))
    if not is_new and not rows.make_assignment_manual(tx, role.id, user.id):
        raise Conflict("the role is assigned to this person")
    return rows.ASSIGNMENTS.get(tx, role.id, user.id)


def unassign_role(tx: Connection, account_id: str, role_id: str, user_id: str, now: int) -> None:
    """Delete a person's assignment of a role, and end the person's sessions of the role."""
    increment_revision(tx, account_id)
    ROLES.get(tx, account_id, role_id)
    rows.ASSIGNMENTS.remove(tx, role_id, user_id)
    revoke_sessions_of_assigned(tx, role_id, user_id, now)


def unassign_all(tx: Connection, organization_id: str, user_id: str, now: int) -> None:
    """Unassign a person's roles in all accounts of an organization."""
    for account_id, role_id in rows.list_roles_assigned(tx, user_id, organization_id):
        unassign_role(tx, account_id, role_id, user_id, now)


MAX_GROUPS: Final = 100
"""Maximum number of groups that a role is assigned to."""


def assign_to_group(
    tx: Connection, account_id: str, made: rows.GroupAssignment
) -> rows.GroupAssignment:
    """Assign a role to a group of a provider of the account's organization.

    Persons in the group have the role from their next sign-in on.

    Raise `NotFound` if there is no such role or provider, `Conflict` if the role is already
    assigned to this group, or to `MAX_GROUPS` groups.
    """
    organization_id = organization_of(tx, account_id)
    lock_organization(tx, organization_id)
    role = ROLES.get(tx, account_id, made.role_id)
    refuse_platforms(role)
    IDENTITY_PROVIDERS.get(tx, organization_id, made.provider_id)
    if rows.GROUP_ASSIGNMENTS.count(tx, role.id, "") >= MAX_GROUPS:
        raise Conflict(f"a role is assigned to at most {MAX_GROUPS} groups")
    if not rows.GROUP_ASSIGNMENTS.add(tx, made):
        raise Conflict("the role is assigned to this group")
    return made


def unassign_from_group(
    tx: Connection, account_id: str, role_id: str, assignment_id: str, now: int
) -> None:
    """Unassign a role from a group of a provider.

    If the role is assigned to no other group of the provider, also unassign it from all persons who
    have it through the provider. Otherwise they keep it until their next sign-in, since it is not
    stored which group gave it to them.
    """
    lock_organization(tx, organization_of(tx, account_id))
    role = ROLES.get(tx, account_id, role_id)
    found = rows.GROUP_ASSIGNMENTS.get(tx, role.id, assignment_id)
    rows.GROUP_ASSIGNMENTS.remove(tx, role.id, assignment_id)
    others = rows.GROUP_ASSIGNMENTS.list(tx, role.id, "", "", MAX_GROUPS)
    if all(other.provider_id != found.provider_id for other in others):
        for _, _, user_id in rows.assignments_of_groups(tx, found.provider_id, role_id=role.id):
            unassign_role(tx, account_id, role.id, user_id, now)
