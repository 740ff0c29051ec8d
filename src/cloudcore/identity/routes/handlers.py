"""All handlers of identity's resources under ``/v1``."""

from __future__ import annotations

from typing import Final

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
from cloudcore.resources.routes import handlers_of

HANDLERS: Final = handlers_of(
    accounts,
    organizations,
    members,
    identity_providers,
    me,
    container_passwords,
    users,
    service_accounts,
    access_keys,
    roles,
    policies,
    policy_simulations,
    actions,
)
"""Handlers of identity's resources; sign-in and AssumeRole have their own modules."""
