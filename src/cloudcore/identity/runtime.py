"""The identity family in a server."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.identity.needs import OFFERS, IdentityNeeds, open_needs
from cloudcore.identity.oauth import authorize_routes, routes, sessions
from cloudcore.identity.routes import handlers
from cloudcore.identity.rows.container_passwords import forget_container_passwords
from cloudcore.identity.rows.identity_providers import forget_states
from cloudcore.identity.rows.organizations import forget_invitations
from cloudcore.identity.rows.sessions import OPEN

RUNTIME: Final[Runtime[IdentityNeeds]] = Runtime(
    open=open_needs,
    offers=OFFERS,
    routes=(*handlers.HANDLERS, *routes.HANDLERS, *authorize_routes.HANDLERS),
    error_shapes=routes.ERROR_SHAPES,
    expiry=(
        sessions.forget_ended,
        forget_container_passwords,
        forget_invitations,
        forget_states,
    ),
    uses=(OPEN,),
)
