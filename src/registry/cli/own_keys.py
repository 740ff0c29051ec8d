"""The data keys of an install, for commands that work on its stores."""

from __future__ import annotations

from cloudcore.keyring import KeyringError, load_keyring
from cloudcore.kms.vault import Vault
from registry.cli.failure import CommandFailure
from registry.keys import DataKeys
from registry.ports import key_providers
from registry.services.context import ServiceContext
from registry.settings import Settings


def find_data_keys(settings: Settings, ctx: ServiceContext) -> DataKeys | None:
    """Return the data keys, or None if there is no root key, as with `entrepot dev`.

    Raises:
        CommandFailure: the root key cannot be read, or others can read it.

    """
    if not settings.root_key.exists():
        return None
    try:
        keyring = load_keyring(settings.root_key)
    except KeyringError as error:
        raise CommandFailure(str(error)) from None
    return DataKeys(Vault(ctx.database, key_providers(settings, keyring), ctx.clock))
