"""The identity family in a server."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.identity.needs import OFFERS, IdentityNeeds, open_needs
from cloudcore.identity.oauth import authorize_routes, routes, sessions
from cloudcore.identity.routes.handlers import HANDLERS
from cloudcore.identity.rows.container_passwords import forget_container_passwords
from cloudcore.identity.rows.identity_providers import forget_states
from cloudcore.identity.rows.organizations import forget_invitations
from cloudcore.identity.rows.sessions import OPEN
from cloudcore.resources.routes import handlers_of

RUNTIME: Final[Runtime[IdentityNeeds]] = Runtime(
    open=open_needs,
    offers=OFFERS,
    routes=(*HANDLERS, *handlers_of(routes, authorize_routes)),
    error_shapes=routes.ERROR_SHAPES,
    expiry=(
        sessions.forget_ended,
        forget_container_passwords,
        forget_invitations,
        forget_states,
    ),
    uses=(OPEN,),
)
