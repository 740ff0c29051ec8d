"""``entrepot dev``: one account without sign-in, on this machine only.

Its own root key lets it seal blobs as ``entrepot serve`` does.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final, cast

from cloudcore.clock import uuid7
from cloudcore.db.base import CommitMark
from cloudcore.family import Family
from cloudcore.kernel_families import KERNEL
from cloudcore.keyring import create_root_key, load_keyring
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.services import KeyMaker
from cloudcore.kms.vault import Vault
from cloudcore.ports import Opening
from cloudcore.serving.dispatch import Application, Dispatcher
from cloudcore.web import envelope
from cloudcore.web.app import ControlPlane, Routes
from cloudcore.web.health import HEALTH, Readiness, health_routes
from registry.composition.background import BACKGROUND
from registry.composition.cross_origin import LoopbackGuard
from registry.composition.family import REGISTRY
from registry.composition.main import Edition, PlaneApplications, Registry, application
from registry.composition.stores import STORES, RegistryStores
from registry.distribution import errors
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.distribution.routing import Mirrors
from registry.metadata.repositories.repository import add_account, find_account
from registry.services.data_keys import DataKeys
from registry.settings.settings import Settings

DEV_ACCOUNT = "dev"
_ABSENT = (
    "there is nothing at this path: `entrepot dev` serves /v2 alone. The control plane and the "
    "console come with `entrepot init` and `entrepot serve`"
)
FILE_NAME: Final = "dev.key"
"""The root key's file. Not ``root.key``, which marks the folder of an install with accounts."""


async def open_data_keys(stores: RegistryStores) -> RegistryStores:
    """Return the stores with data keys under the root key `FILE_NAME`; create that key if needed.

    If sealing is off, no root key is created: without one, return the stores unchanged; with one,
    blobs that were sealed before can be read. Raise `KeyringError` if the root key's file cannot
    be used.
    """
    settings, ctx = stores.settings, stores.ctx
    path = settings.data / FILE_NAME
    if settings.seals:
        with suppress(FileExistsError):  # another worker process may create it first
            create_root_key(path)
    elif not path.exists():
        return stores
    providers = Providers(EmbeddedProvider(load_keyring(path)))
    maker = KeyMaker(providers, settings.region, ctx.new_id)
    await maker.add_missing_platform_keys(ctx.database, ctx.clock())
    keys = DataKeys(Vault(ctx.database, providers, ctx.clock))
    return replace(stores, ctx=replace(ctx, data_keys=keys, seals=settings.seals))


async def _open_dev(opening: Opening) -> RegistryStores:
    """Open the stores; create the account of ``entrepot dev`` and its keys if they do not exist."""
    stores = await opening.get(STORES)
    ctx = stores.ctx
    if await ctx.database.read(find_account, DEV_ACCOUNT) is None:
        await ctx.database.write(add_account, uuid7(), DEV_ACCOUNT, ctx.clock())
    return await open_data_keys(stores)


@cache
def _dev_routes() -> Routes:
    return Routes([health_routes()])


async def _make_dev_planes(
    opening: Opening, _families: tuple[Family[Any], ...], readiness: Readiness
) -> PlaneApplications:
    """Make a data plane without sign-in, and a control plane with only health checks."""
    stores = await opening.needs_of(DEV_REGISTRY)
    settings = stores.settings
    control = ControlPlane(_dev_routes(), needs={HEALTH: readiness}, absent=_ABSENT)
    hosts = (*settings.hosts, settings.pull_host)
    mirrors = Mirrors(settings.mirrored)
    data = DataPlane(stores.ctx, OpenAccess(DEV_ACCOUNT), mirrors=mirrors)
    return PlaneApplications(
        LoopbackGuard(data, errors.refuse, hosts),
        LoopbackGuard(cast("Application", control), envelope.refuse, hosts),
    )


DEV_REGISTRY: Final = replace(REGISTRY, runs=replace(BACKGROUND, open=_open_dev, offers=()))
"""The registry's family without sign-in; it offers no ports."""


DEV: Final = Edition((KERNEL, DEV_REGISTRY), (), _make_dev_planes)
"""``entrepot dev``: one account, no sign-in, the data plane and health checks."""


def create_dev_app(settings: Settings, mark: CommitMark | None = None) -> Dispatcher:
    """Return the ASGI application of ``entrepot dev``; any ASGI server can run it."""
    return application(Registry(settings, DEV, mark=mark))
