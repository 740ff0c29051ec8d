"""The identity family in a server."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.identity.needs import OFFERS, IdentityNeeds, open_needs
from cloudcore.identity.oauth import authorize_routes, routes
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
from cloudcore.identity.rows import issued_tokens
from cloudcore.identity.rows.container_passwords import forget_container_passwords
from cloudcore.identity.rows.identity_providers import forget_states
from cloudcore.identity.rows.organizations import forget_invitations
from cloudcore.identity.rows.sessions import OPEN, forget_sessions
from cloudcore.resources.routes import handlers_of

HANDLERS: Final = handlers_of(
    *(accounts, organizations, members, identity_providers, me, container_passwords, users),
    *(service_accounts, access_keys, roles, policies, policy_simulations, actions),
)
"""Handlers of identity's resources; sign-in and AssumeRole have their own modules."""

RUNTIME: Final[Runtime[IdentityNeeds]] = Runtime(
    open=open_needs,
    offers=OFFERS,
    routes=(*HANDLERS, *handlers_of(routes, authorize_routes)),
    error_shapes=routes.ERROR_SHAPES,
    expiry=(
        issued_tokens.forget_codes,
        issued_tokens.forget_refresh_tokens,
        issued_tokens.forget_revoked_tokens,
        forget_sessions,
        forget_container_passwords,
        forget_invitations,
        forget_states,
    ),
    uses=(OPEN,),
)
