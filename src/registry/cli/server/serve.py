"""``entrepot init`` and ``entrepot serve``: an install with accounts and sign-in."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from functools import partial
from shlex import quote
from urllib.parse import urlsplit

from cloudcore.catalog.documents import load_catalog
from cloudcore.clock import uuid7
from cloudcore.commands.records import write_now
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput
from cloudcore.family import skus_of
from cloudcore.identity.bootstrap import FirstCredentials, create_first_account
from cloudcore.identity.names import check_handle, email_address
from cloudcore.identity.rows.accounts import has_accounts
from cloudcore.identity.tokens.signing_keys import SigningKeys, list_signing_keys
from cloudcore.keyring import Keyring, KeyringError, create_root_key, load_keyring
from cloudcore.kms.services import KeyMaker
from cloudcore.serving.processes.supervisor import limit_arenas
from registry.cli.server.existing_data import no_account, prepare_existing
from registry.cli.server.options import DEFAULT_DATA, settings_of
from registry.cli.server.run_server import (
    check_disk,
    find_console,
    has_client_url,
    listening_problem,
    load_before_fork,
    serve_application,
    write_url,
)
from registry.composition.dev import DEV_ACCOUNT
from registry.composition.drivers import check_drivers
from registry.composition.families import FAMILIES
from registry.composition.fleet import join_fleet
from registry.composition.main import Registry, prepare
from registry.composition.planes import planes_of
from registry.composition.ports import key_providers
from registry.composition.serve import SERVE, create_app
from registry.metadata.repositories.repository import find_account
from registry.services.access.bearers import KEY_KINDS
from registry.services.context import ServiceContext
from registry.settings.settings import Settings
from registry.settings.texts import CONSOLE, SettingsError


def notify_ready(environment: Mapping[str, str] = os.environ) -> None:
    """Send ``READY=1`` to the socket in ``NOTIFY_SOCKET``, if a service manager has set it.

    If the manager cannot be reached, serving goes on; the manager has its own timeout.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # the abstract namespace of Linux
        address = f"\0{address[1:]}"
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.settimeout(0)
        sender.sendto(b"READY=1", address)


def check_listeners(settings: Settings) -> None:
    """Check that this process can listen at `dns_listen` (UDP and TCP) and `bounce_listen`.

    Raise `SettingsError` if another process listens there, or this process lacks the right.
    """
    listeners = (
        ("dns_listen", settings.certificates.dns_address, "name", socket.SOCK_DGRAM),
        ("dns_listen", settings.certificates.dns_address, "name", socket.SOCK_STREAM),
        ("bounce_listen", settings.email.bounce_address, "mail", socket.SOCK_STREAM),
    )
    for name, address, what, kind in listeners:
        if address is not None and (problem := listening_problem(*address, kind)):
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            raise SettingsError(
                f"{name}: nothing can listen on {host}:{address[1]}:"
                f" {problem}; name an address of this machine that no other {what} server has,"
                " and for a port below 1024 see docs/how-to/tls.md"
            )


def run_serve(settings: Settings) -> int:
    """Serve until a signal arrives; return the exit status.

    Raises:
        SettingsError: one of these:

            - There is no account yet.
            - The root key cannot be used.
            - No URL of the registry is set.
            - `family_hosts` names an unknown part.
            - The certificate zone cannot be served.
            - This machine lacks what a driver needs.
            - Other nodes run with other settings.

        Unavailable: the data folder is on a read-only disk.

    """
    limit_arenas()
    settings.check_has_url()
    planes_of(settings)
    check_listeners(settings)
    check_drivers(settings)
    prepare_existing(settings)
    check_disk(settings)
    asyncio.run(_check(settings))
    load_before_fork(settings, SERVE)
    keeper, note = None, ""
    if settings.acme_folder is not None or settings.own_folder is not None:
        from registry.cli.server.own_certificate import prepare_own_certificate  # noqa: PLC0415 - few have one

        keeper, note = prepare_own_certificate(settings)
    return serve_application(settings, create_app, partial(_greet, settings, note), keeper)


def _greet(settings: Settings, note: str, url: str) -> None:
    """Print the URLs of the registry and its console, and the note; notify systemd."""
    shown = settings.url if has_client_url(settings) else url
    write_url(settings, shown)
    write_now(f"Entrepot is ready on {url} (console: {find_console(settings)}, stop with Ctrl+C)\n")
    if note:
        write_now(f"{note}\n")
    if settings.s3_port:
        write_now(f"S3 endpoint: {_s3_url(settings, url)}\n")
    notify_ready()


def _s3_url(settings: Settings, url: str) -> str:
    """Return the URL of the S3 endpoint; with TLS, by a host name in the certificate."""
    scheme = url.partition(":")[0]
    known = urlsplit(settings.url if scheme == "https" and has_client_url(settings) else url)
    host = settings.s3_host or known.netloc.removesuffix(f":{known.port}")
    return f"{scheme}://{host}:{settings.s3_port}"


def run_init(options: argparse.Namespace) -> None:
    """Create the root key and the first account, and print its credentials.

    Raise `Conflict` if there is an account already, `SettingsError` if the handle or address is
    invalid, or the root key cannot be used.
    """
    settings, handle, email = settings_of(options), options.account, options.admin_email
    _check_names(handle, email)
    prepare(settings)
    first = asyncio.run(_create(settings, handle, email))
    where = "" if settings.data == DEFAULT_DATA else f" --data {quote(str(settings.data))}"
    other = (
        "" if has_client_url(settings) else "With another --host or --port, at the URL it prints.\n"
    )
    write_now(
        f"Account {first.handle} ({first.account_id}) is made. These are shown this once:\n\n"
        f"  person              {first.email}\n"
        f"  one-time password   {first.one_time_password}\n\n"
        f"  access key id       {first.access_key_id}\n"
        f"  secret access key   {first.secret_access_key}\n\n"
        f"Keep {settings.root_key} safe and backed up: it opens every secret at rest.\n"
        "Next:\n"
        f"  entrepot serve{where}\n"
        f"  entrepot login {settings.url} --docker --access-key-id {first.access_key_id}\n"
        f"or, as the person, in a browser: {settings.url_of(CONSOLE)}/console\n{other}"
    )


def _check_names(handle: str, email: str) -> None:
    """Raise `SettingsError` for an invalid handle or address, before anything is created."""
    checks = (("--account", handle, check_handle), ("--admin-email", email, email_address))
    for option, value, check in checks:
        try:
            check(value)
        except InvalidInput as error:
            raise SettingsError(f"{option} {value!r}: {error}") from None


async def _check(settings: Settings) -> None:
    """Check what the workers need, and join the running nodes.

    Raise `CatalogInvalid` if the catalogue cannot be used; `SettingsError` if there is no account,
    if the root key cannot be used, or if other nodes have different settings.
    """
    load_catalog(
        settings.catalog,
        settings.region,
        settings.url,
        skus_of(FAMILIES),
        settings.own_urls.items(),
    )
    async with Registry(settings).open() as stores:
        keyring = await check_install(settings, stores.ctx)
        key_providers(settings, keyring)
        await join_fleet(settings, stores)


async def _create(settings: Settings, handle: str, email: str) -> FirstCredentials:
    async with Registry(settings).open() as stores:
        ctx = stores.ctx
        if await ctx.database.read(has_accounts):  # before a root key is made that does not fit
            if await ctx.database.read(_is_of_dev):
                raise _dev_data(settings)
            raise Conflict(
                f"there is an account in {settings.data} already; sign in with "
                f"'entrepot login URL', or begin another install with --data (who has lost its "
                f"credentials: 'entrepot reset-password', 'entrepot new-access-key')"
            )
        if not settings.root_key.exists():
            create_root_key(settings.root_key)
        keyring = open_keyring(settings)
        await check_signing_keys(settings, ctx, keyring)
        maker = KeyMaker(key_providers(settings, keyring), settings.region, uuid7)
        return await create_first_account(
            ctx.database,
            keyring,
            uuid7,
            ctx.clock(),
            maker.prepare_platform_key,
            handle=handle,
            email=email,
        )


async def check_install(settings: Settings, ctx: ServiceContext) -> Keyring:
    """Return the keyring of an install; create its first signing keys if it has none.

    Raise `SettingsError` if there is no account, a setting names an operator account that does not
    exist, ``entrepot dev`` made the data, or the root key cannot be used.
    """
    if not await ctx.database.read(has_accounts):
        raise no_account(settings)
    if await ctx.database.read(_is_of_dev):
        raise _dev_data(settings)
    # Else anybody who may create accounts could take an operator's handle.
    for handle in sorted(settings.operator_handles):
        if await ctx.database.read(find_account, handle) is None:
            raise SettingsError(f"operators: there is no account {handle}; create it first")
    keyring = open_keyring(settings)
    await check_signing_keys(settings, ctx, keyring)
    return keyring


async def check_signing_keys(settings: Settings, ctx: ServiceContext, keyring: Keyring) -> None:
    """Open the signing keys, or create the first ones.

    Raise `SettingsError` if another root key sealed them.
    """
    try:
        await SigningKeys(ctx.database, keyring, ctx.clock, KEY_KINDS).refresh()
    except KeyringError:
        raise SettingsError(
            f"{settings.root_key} is not the root key of this install; put that one back"
        ) from None


def open_keyring(settings: Settings) -> Keyring:
    """Return the keyring of the install's root key.

    Raise `SettingsError` if the root key cannot be used.
    """
    try:
        return load_keyring(settings.root_key)
    except KeyringError as error:
        raise SettingsError(f"{error} (root_key_file; see docs/how-to/backup.md)") from None


def _is_of_dev(tx: Connection) -> bool:
    """Return True if ``entrepot dev`` made the data, and ``init`` was never run."""
    return find_account(tx, DEV_ACCOUNT) is not None and not list_signing_keys(tx)


def _dev_data(settings: Settings) -> SettingsError:
    other = quote(f"{settings.data}-2" if settings.data == DEFAULT_DATA else str(DEFAULT_DATA))
    return SettingsError(
        f"{settings.data} holds the data of 'entrepot dev', which has no sign-in and no root key."
        " Begin an install beside it: 'entrepot init --account HANDLE --admin-email ADDRESS --data"
        f" {other}', then 'entrepot serve --data {other}'. The images stay with 'entrepot dev"
        f" --data {quote(str(settings.data))}'; copy those you need with skopeo"
    )
