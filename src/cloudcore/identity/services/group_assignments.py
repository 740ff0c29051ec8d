"""Roles assigned to groups of an identity provider: changes with their rules."""

from __future__ import annotations

from typing import Final

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.identity.rows.group_assignments import (
    GROUP_ASSIGNMENTS,
    GroupAssignment,
    persons_given,
)
from cloudcore.identity.rows.identity_providers import IDENTITY_PROVIDERS
from cloudcore.identity.rows.roles import ROLES
from cloudcore.identity.services.members import lock_organization, organization_of
from cloudcore.identity.services.roles import unassign_role

MAX_GROUPS: Final = 100
"""The most groups that a role is assigned to."""


def assign_to_group(tx: Connection, account_id: str, made: GroupAssignment) -> GroupAssignment:
    """Assign a role to a group of a provider of the account's organization.

    Its persons have the role from their next sign-in on.

    Raises:
        NotFound: there is no such role or provider.
        Conflict: the group has the role, or `MAX_GROUPS` groups have.

    """
    organization_id = organization_of(tx, account_id)
    lock_organization(tx, organization_id)
    role = ROLES.get(tx, account_id, made.role_id)
    IDENTITY_PROVIDERS.get(tx, organization_id, made.provider_id)
    if GROUP_ASSIGNMENTS.count(tx, role.id, "") >= MAX_GROUPS:
        raise Conflict(f"a role is assigned to at most {MAX_GROUPS} groups")
    if not GROUP_ASSIGNMENTS.add(tx, made):
        raise Conflict("the role is assigned to this group")
    return made


def unassign_from_group(
    tx: Connection, account_id: str, role_id: str, assignment_id: str, now: int
) -> None:
    """Unassign a role from a group, and from all persons if no other group of the provider has it.

    Which group gave a person the role is not recorded: the next sign-in tells.
    """
    lock_organization(tx, organization_of(tx, account_id))
    role = ROLES.get(tx, account_id, role_id)
    found = GROUP_ASSIGNMENTS.get(tx, role.id, assignment_id)
    GROUP_ASSIGNMENTS.remove(tx, role.id, assignment_id)
    others = GROUP_ASSIGNMENTS.list(tx, role.id, "", "", MAX_GROUPS)
    if all(other.provider_id != found.provider_id for other in others):
        for _, user_id in persons_given(tx, found.provider_id, role.id):
            unassign_role(tx, account_id, role.id, user_id, now)
