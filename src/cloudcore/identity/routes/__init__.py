"""The routes of identity under ``/v1``."""

from __future__ import annotations

from typing import Final

from litestar.handlers import HTTPRouteHandler

from cloudcore.identity.routes import (
    access_keys,
    accounts,
    actions,
    allowed_actions,
    container_passwords,
    group_assignments,
    identity_providers,
    invitations,
    me,
    members,
    my_roles,
    organizations,
    policies,
    policy_simulations,
    policy_templates,
    roles,
    service_accounts,
    users,
)

HANDLERS: Final[tuple[HTTPRouteHandler, ...]] = (
    *accounts.HANDLERS,
    *organizations.HANDLERS,
    *members.HANDLERS,
    *invitations.HANDLERS,
    *identity_providers.HANDLERS,
    *me.HANDLERS,
    *my_roles.HANDLERS,
    *container_passwords.HANDLERS,
    *users.HANDLERS,
    *service_accounts.HANDLERS,
    *access_keys.HANDLERS,
    *roles.HANDLERS,
    *group_assignments.HANDLERS,
    *policies.HANDLERS,
    *policy_templates.HANDLERS,
    *policy_simulations.HANDLERS,
    *actions.HANDLERS,
    *allowed_actions.HANDLERS,
)
"""Handlers of identity's resources; sign-in and AssumeRole have their own modules."""
