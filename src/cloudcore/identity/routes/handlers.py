"""All handlers of identity's resources under ``/v1``."""

from __future__ import annotations

from typing import Final

from litestar.handlers import HTTPRouteHandler

from cloudcore.identity.routes import (
    access_keys,
    accounts,
    actions,
    container_passwords,
    identity_providers,
    me,
    members,
    organizations,
    policies,
    policy_simulations,
    roles,
    service_accounts,
    users,
)

HANDLERS: Final[tuple[HTTPRouteHandler, ...]] = (
    *accounts.HANDLERS,
    *organizations.HANDLERS,
    *members.HANDLERS,
    *identity_providers.HANDLERS,
    *me.HANDLERS,
    *container_passwords.HANDLERS,
    *users.HANDLERS,
    *service_accounts.HANDLERS,
    *access_keys.HANDLERS,
    *roles.HANDLERS,
    *policies.HANDLERS,
    *policy_simulations.HANDLERS,
    *actions.HANDLERS,
)
"""Handlers of identity's resources; sign-in and AssumeRole have their own modules."""
