"""The composition root of ``entrepot serve``: identity below both planes, and the console."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, cast

from cloudcore.clock import uuid7
from cloudcore.identity import routes as identity
from cloudcore.identity.authentication import BearerAuthenticator
from cloudcore.identity.authorize_routes import authorize_handlers
from cloudcore.identity.oauth_routes import ERROR_SHAPES, discovery_handlers, token_handlers
from cloudcore.identity.permissions import Permissions
from cloudcore.identity.signing_keys import SigningKeys
from cloudcore.identity.tokens import AccessTokens
from cloudcore.keyring import load_keyring
from cloudcore.serving.dispatch import Application, Dispatcher
from cloudcore.web.app import create_app as create_control_plane
from cloudcore.web.context import ControlSettings, Platform
from registry.browsers.cors import CrossOriginReads
from registry.console.app import Console
from registry.control import routes
from registry.control.garbage_collection import garbage_collection_handlers
from registry.control.health import readiness_handler, report_alive
from registry.distribution.app import DataPlane
from registry.distribution.challenge import Challenges
from registry.distribution.token import TokenEndpoint
from registry.distribution.token_access import TokenAccess
from registry.main import Planes, Registry, application, repeated
from registry.services.bearers import KEY_KINDS, BearerSigner
from registry.services.context import ServiceContext
from registry.services.tokens import BearerTokens
from registry.settings import Settings

_KEY_REFRESH_SECONDS: Final = 60


class ServedRegistry(Registry):
    """``entrepot serve``: every caller signs in, and policies decide."""

    async def make_planes(self, ctx: ServiceContext, resources: AsyncExitStack) -> Planes:
        """Load the keys, and build identity below both planes."""
        settings, database, clock = self._settings, ctx.database, ctx.clock
        keyring = load_keyring(settings.root_key)
        keys = SigningKeys(database, keyring, clock, KEY_KINDS)
        await keys.refresh()
        tokens = AccessTokens(keys, settings.url, clock)
        authenticator = BearerAuthenticator(database, tokens, Permissions(database), clock)
        platform = Platform(
            database=database,
            clock=clock,
            new_id=ctx.new_id,
            keyring=keyring,
            authenticator=authenticator,
            settings=ControlSettings(
                region=settings.region,
                auth_url=settings.url,
                trusted_proxies=settings.proxies,
                founders=settings.founders,
            ),
        )
        control = create_control_plane(
            [
                report_alive,
                readiness_handler(self.readiness(ctx)),
                *identity.HANDLERS,
                *token_handlers(tokens),
                *discovery_handlers(keys, settings.url),
                *authorize_handlers(),
                *routes.HANDLERS,
                *garbage_collection_handlers(settings.delays),
            ],
            platform,
            error_shapes=ERROR_SHAPES,
        )
        signer = BearerSigner(keys, settings.url, settings.pull_host, clock, uuid7)
        bearers = BearerTokens(database, clock, signer, authenticator, settings.region)
        challenges = Challenges(settings.public_url, settings.hosts)
        access = TokenAccess(bearers, challenges, clock, settings.proxies)
        # This process's own: the keys that it holds in memory.
        await resources.enter_async_context(repeated(_KEY_REFRESH_SECONDS, keys.refresh))
        data = DataPlane(ctx, access, TokenEndpoint(access))
        plane = cast("Application", control)
        return _readable(Planes(data, plane, Console(plane, platform, ctx)), settings.origins)


def _readable(planes: Planes, origins: Sequence[str]) -> Planes:
    """Let pages of listed origins read from both planes, if there are any."""
    if not origins:
        return planes
    return planes._replace(
        data=CrossOriginReads(planes.data, origins),
        control=CrossOriginReads(planes.control, origins),
    )


def create_app(settings: Settings) -> Dispatcher:
    """Return the ASGI application of ``entrepot serve``; any ASGI server can run it."""
    return application(ServedRegistry(settings))
