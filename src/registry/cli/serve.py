"""``entrepot init`` and ``entrepot serve``: an install with accounts and sign-in."""

from __future__ import annotations

import asyncio

from cloudcore.clock import uuid7
from cloudcore.identity.bootstrap import FirstCredentials, create_first_account
from cloudcore.identity.rows.accounts import is_any_account
from cloudcore.keyring import KeyringError, create_root_key, load_keyring
from registry.cli.running import serve_application, tell
from registry.main import create_app, open_context, prepare
from registry.settings import Settings, SettingsError


def run_serve(settings: Settings) -> int:
    """Serve until told to stop; return the exit status.

    Raises:
        SettingsError: there is no account yet, or the root key cannot be used.

    """
    prepare(settings)
    if not asyncio.run(_has_account(settings)):
        raise SettingsError(
            f"there is no account in {settings.data}; first run "
            "'entrepot init --account HANDLE --admin-email ADDRESS'"
        )
    try:
        load_keyring(settings.root_key)
    except KeyringError as error:
        raise SettingsError(str(error)) from None
    return serve_application(
        settings, create_app, lambda url: tell(f"Entrepot is ready on {url}\n")
    )


def run_init(settings: Settings, handle: str, email: str) -> int:
    """Make the root key and the first account, and show its credentials, once.

    Raises:
        InvalidInput: the handle or the address cannot be one.
        Conflict: there is an account already.
        SettingsError: the root key cannot be used.

    """
    prepare(settings)
    first = asyncio.run(_create(settings, handle, email))
    tell(
        f"Account {first.handle} ({first.account_id}) is made. These are shown this once:\n\n"
        f"  person              {first.email}\n"
        f"  one-time password   {first.one_time_password}\n\n"
        f"  access key id       {first.access_key_id}\n"
        f"  secret access key   {first.secret_access_key}\n\n"
        f"Keep {settings.root_key} safe and backed up: it opens every secret at rest.\n"
        f"Next: entrepot serve, then: entrepot login {settings.url} --docker "
        f"--access-key-id {first.access_key_id}\n"
    )
    return 0


async def _has_account(settings: Settings) -> bool:
    async with open_context(settings) as ctx:
        return await ctx.database.read(is_any_account)


async def _create(settings: Settings, handle: str, email: str) -> FirstCredentials:
    try:
        if not settings.root_key.exists():
            create_root_key(settings.root_key)
        keyring = load_keyring(settings.root_key)
    except (KeyringError, OSError) as error:
        raise SettingsError(f"the root key: {error}") from None
    async with open_context(settings) as ctx:
        return await create_first_account(
            ctx.database, keyring, uuid7, ctx.clock(), handle=handle, email=email
        )
