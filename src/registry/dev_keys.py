"""The root key of ``entrepot dev``, so that it seals blobs as ``entrepot serve`` does."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from cloudcore.keyring import create_root_key, load_keyring
from cloudcore.kms.providers import EmbeddedProvider, Providers
from cloudcore.kms.services import KeyMaker
from cloudcore.kms.vault import Vault
from registry.keys import DataKeys
from registry.process import Process

FILE_NAME: Final = "dev.key"
"""Not ``root.key``: that file marks the folder of an install with accounts."""


async def with_keys(process: Process) -> Process:
    """Return the process with the keys of its data folder; make them if they are needed.

    Without sealing, they are only opened if they exist, to read what was sealed before.

    Raises:
        KeyringError: the file of the root key cannot be used.

    """
    settings, ctx = process.settings, process.ctx
    path = settings.data / FILE_NAME
    if settings.seals:
        with suppress(FileExistsError):  # another worker process may be faster
            create_root_key(path)
    elif not path.exists():
        return process
    providers = Providers(EmbeddedProvider(load_keyring(path)))
    maker = KeyMaker(providers, settings.region, ctx.new_id)
    await maker.add_missing_platform_keys(ctx.database, ctx.clock())
    keys = DataKeys(Vault(ctx.database, providers, ctx.clock))
    return replace(process, ctx=replace(ctx, data_keys=keys, seals=settings.seals))
