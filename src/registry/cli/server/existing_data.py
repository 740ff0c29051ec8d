"""Open a registry's existing data, and its keys, for commands that work on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cloudcore.command_failures import CommandFailure
from cloudcore.keyring import KeyringError, load_keyring
from cloudcore.kms.vault import Vault
from registry.composition.main import Registry, prepare
from registry.composition.ports import key_providers
from registry.composition.stores import RegistryStores
from registry.composition.unfinished_restoration import check_is_whole
from registry.gc.database_rollback import DatabaseWentBack, check_generation
from registry.metadata.database import has_tables
from registry.services.context import ServiceContext
from registry.services.data_keys import DataKeys
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

T = TypeVar("T")


def prepare_existing(settings: Settings) -> None:
    """Migrate the existing database; create none, so that a mistyped folder is an error.

    Raise `SettingsError` if the folder has no registry, or a restoration into it was interrupted.
    """
    check_is_whole(settings)
    if not settings.data.exists() or not has_tables(settings.database):
        raise no_account(settings)
    prepare(settings)


def on_data(settings: Settings, work: Callable[[RegistryStores], Awaitable[T]]) -> T:
    """Open the stores of existing data; return the result of calling `work` with the stores.

    Raise what `prepare_existing` raises.
    """
    prepare_existing(settings)

    async def run() -> T:
        async with Registry(settings).open() as stores:
            return await work(stores)

    return asyncio.run(run())


async def rollback_warning(stores: RegistryStores) -> str:
    """Return a warning if the database is older than its blobs, or not theirs; else ""."""
    try:
        await check_generation(stores.ctx, stores.store)
    except DatabaseWentBack as error:
        return str(error)
    return ""


def no_account(settings: Settings) -> SettingsError:
    """Return the error for data without an account."""
    place = f"{settings.data.absolute()}; name its folder by --data or --config"
    if settings.database_url and settings.data.exists():  # it is not shown: it may hold a password
        place = "the database of ENTREPOT_DATABASE_URL; name the right one"
    return SettingsError(
        f"there is no account in {place}, or first run "
        "'entrepot init --account HANDLE --admin-email ADDRESS'"
    )


def find_data_keys(settings: Settings, ctx: ServiceContext) -> DataKeys | None:
    """Open the data keys; return None if there is no root key, as with `entrepot dev`.

    Raise `CommandFailure` if the root key cannot be read, or others can read it.
    """
    if not settings.root_key.exists():
        return None
    try:
        keyring = load_keyring(settings.root_key)
    except KeyringError as error:
        raise CommandFailure(str(error)) from None
    return DataKeys(Vault(ctx.database, key_providers(settings, keyring), ctx.clock))
