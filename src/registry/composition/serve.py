"""``entrepot serve``: all families, both planes with sign-in, the console and the S3 endpoint."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, cast

from cloudcore.db.base import CommitMark
from cloudcore.family import Family, vocabulary
from cloudcore.ports import Opening
from cloudcore.serving.dispatch import Application, Dispatcher
from cloudcore.storage.family import STORAGE
from cloudcore.web.app import ControlPlane, Routes, family_routes
from cloudcore.web.context import PLATFORM
from cloudcore.web.health import HEALTH, Readiness, health_routes
from cloudcore.web.idempotency import RunOnce
from registry.composition.cross_origin import CrossOriginReads
from registry.composition.families import FAMILIES
from registry.composition.family import REGISTRY
from registry.composition.main import Edition, PlaneApplications, Registry, application
from registry.composition.needs import BEARERS
from registry.composition.ports import CROSS_FAMILY_OFFERS
from registry.console.app import Console
from registry.console.page_request import ConsoleSettings
from registry.distribution.app import DataPlane
from registry.distribution.auth import Challenges
from registry.distribution.routing import Mirrors
from registry.distribution.token import TokenEndpoint
from registry.distribution.token_access import TokenAccess
from registry.settings.settings import Settings
from registry.settings.texts import AUTH, CONSOLE, PULL


@cache
def _routes(families: tuple[Family[Any], ...]) -> Routes:
    runtimes = {family.name: family.runtime for family in families}
    return Routes(
        [health_routes(), *(family_routes(name, each.routes) for name, each in runtimes.items())],
        ChainMap(*(dict(each.error_shapes) for each in runtimes.values())),
    )


_vocabulary: Final = cache(vocabulary)
"""Returns the actions and resource types that policies can name, built once per process."""


async def _make_planes(
    opening: Opening, families: tuple[Family[Any], ...], readiness: Readiness
) -> PlaneApplications:
    stores, platform = await opening.needs_of(REGISTRY), await opening.get(PLATFORM)
    settings, ctx = stores.settings, stores.ctx
    needs: dict[str, object] = {
        family.name: family.runtime.provided(await opening.needs_of(family)) for family in families
    }
    control = ControlPlane(
        _routes(families),
        platform,
        needs={HEALTH: readiness} | needs,
        vocabulary=_vocabulary(families),
    )
    public_url = settings.public_url and settings.url_of(PULL)
    challenges = Challenges(public_url, settings.hosts)
    bearers = await opening.get(BEARERS)
    access = TokenAccess(bearers, challenges, ctx.clock, settings.proxies, platform.auditor)
    mirrors = Mirrors(settings.mirrored)
    data = DataPlane(ctx, access, TokenEndpoint(access, mirrors), mirrors)
    plane = cast("Application", control)
    console = Console(
        plane,
        ConsoleSettings(
            settings.url_of(AUTH),
            settings.pull_host,
            settings.region,
            families,
            settings.founders,
            settings.url_of(CONSOLE) if settings.hosts_by_part else "",
            settings.url,
        ),
        keyring=platform.keyring,
        clock=ctx.clock,
        once=RunOnce(ctx.database, platform.keyring, ctx.clock, ctx.new_id),
    )
    objects = await _s3_endpoint(opening, settings)
    return _readable(PlaneApplications(data, plane, console, objects), settings.origins)


async def _s3_endpoint(opening: Opening, settings: Settings) -> Application | None:
    """Make the S3 endpoint, or return None if the settings name neither a port nor a host."""
    if not settings.s3_port and not settings.s3_host:
        return None
    # Most installs have none, and load nothing of it.
    from cloudcore.identity.tokens.authentication import StoredSignatureKeys  # noqa: PLC0415
    from cloudcore.storage.s3.app import S3Endpoint, S3Needs  # noqa: PLC0415

    platform = await opening.get(PLATFORM)
    keys = StoredSignatureKeys(platform.database, platform.keyring, platform.clock)
    return S3Endpoint(
        S3Needs(
            platform=platform,
            storage=await opening.needs_of(STORAGE),
            keys=keys,
            host=settings.s3_host,
            any_region=settings.s3_any_region == "on",
        )
    )


SERVE: Final = Edition(FAMILIES, CROSS_FAMILY_OFFERS, _make_planes, audits=True)
"""``entrepot serve``: accounts, sign-in and all families."""


def _readable(planes: PlaneApplications, origins: Sequence[str]) -> PlaneApplications:
    """Return the planes, with data and control plane readable by web pages of these origins."""
    if not origins:
        return planes
    return planes._replace(
        data=CrossOriginReads(planes.data, origins),
        control=CrossOriginReads(planes.control, origins),
    )


def create_app(settings: Settings, mark: CommitMark | None = None) -> Dispatcher:
    """Return the ASGI application of ``entrepot serve``; any ASGI server can run it."""
    return application(Registry(settings, SERVE, mark=mark))
