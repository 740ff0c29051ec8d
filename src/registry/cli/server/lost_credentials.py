"""``entrepot reset-password``, ``new-access-key``, ``restore-admin``, with an audit record."""

from __future__ import annotations

import argparse
import logging
from functools import partial

from cloudcore.clock import uuid7
from cloudcore.command_failures import Missing
from cloudcore.commands.records import write_now
from cloudcore.db.base import Connection
from cloudcore.errors import InvalidInput, NotFound
from cloudcore.iam.passwords import hash_password, salt_of
from cloudcore.identity.audit import organizations_of
from cloudcore.identity.names import email_address, iam_crn, person_crn
from cloudcore.identity.recovery import (
    HostChange,
    add_key,
    find_person_by_email,
    find_program,
    reset_password,
    restore_admin,
)
from cloudcore.identity.rows.accounts import Account
from cloudcore.identity.services.service_accounts import new_access_key
from cloudcore.identity.services.users import new_password
from cloudcore.keyring import Keyring
from cloudcore.resource_names import lower_ids
from cloudcore.serving.logs import configure_logging
from registry.cli.server.existing_data import on_data
from registry.cli.server.host_changes import record_on_host, write_on_host
from registry.cli.server.options import settings_of
from registry.cli.server.run_server import find_console, read_url
from registry.composition.stores import RegistryStores
from registry.settings.texts import SettingsError

_log = logging.getLogger(__name__)


def run_reset_password(options: argparse.Namespace) -> None:
    """Give a person a new one-time password and print it."""
    settings = settings_of(options)
    try:
        email = email_address(options.address)
    except InvalidInput as error:
        raise SettingsError(f"{options.address!r}: {error}") from None
    configure_logging()
    password = new_password()

    async def reset(stores: RegistryStores) -> None:
        ctx = stores.ctx
        named = options.organization and lower_ids(options.organization)
        person = await ctx.database.read(find_person_by_email, email, named)
        kept = hash_password(password, salt=salt_of(person.password))
        now = ctx.clock()

        def change(tx: Connection) -> None:
            reset_password(tx, person.id, kept, now, resumes=options.resume)
            owners = organizations_of(person.id, tx)
            crn = person_crn(person.organization_id, person.id)
            record_on_host(tx, "iam:ChangePassword", owners, crn, "entrepot reset-password", now)

        await ctx.database.write(change)

    try:
        on_data(settings, reset)
    except NotFound as error:
        raise Missing(str(error)) from None
    _log.warning("the password of %s was reset on this machine; its sessions have ended", email)
    write_now(
        "All sessions of the person have ended. The password is shown only once:\n\n"
        f"  person              {email}\n"
        f"  one-time password   {password}\n\n"
        f"Next, as the person, in a browser: {find_console(settings)}\n"
    )


def run_new_access_key(options: argparse.Namespace) -> None:
    """Add an access key to a service account and print it."""
    settings, name, replaces = settings_of(options), options.service_account, options.replace
    configure_logging()
    key, key_id = new_access_key(), uuid7()

    def add(tx: Connection, keyring: Keyring, now: int) -> Account:
        account, program = find_program(tx, options.account, name)
        add_key(tx, keyring, key, key_id, program, now, replaces=replaces)
        crn = iam_crn(account.id, "service-account", program.name)
        action, command = "iam:CreateAccessKey", "entrepot new-access-key"
        record_on_host(tx, action, [account.id], crn, command, now)
        return account

    account = write_on_host(settings, add)
    what = "replaced the keys of" if replaces else "was added to"
    _log.warning(
        "the access key %s %s %s of %s on this machine",
        key.access_key_id,
        what,
        name,
        account.handle,
    )
    write_now(
        f"A key of the service account {name} of {account.handle}. It is shown only once:\n\n"
        f"  access key id       {key.access_key_id}\n"
        f"  secret access key   {key.secret}\n\n"
        "Next:\n"
        f"  entrepot login {read_url(settings)} --access-key-id {key.access_key_id}\n"
    )


def run_restore_admin(options: argparse.Namespace) -> None:
    """Give a person the role `admin` of an account, with all rights."""
    settings, handle, address = settings_of(options), options.account, options.email
    try:
        email = email_address(address)
    except InvalidInput as error:
        raise SettingsError(f"--email {address!r}: {error}") from None
    configure_logging()

    def restore(tx: Connection, _keyring: Keyring, now: int) -> list[HostChange]:
        account, changes = restore_admin(tx, handle, email, partial(uuid7, now), now)
        for each in changes:
            command = "entrepot restore-admin"
            record_on_host(tx, each.action, [account.id], each.resource, command, now)
        return changes

    changes = write_on_host(settings, restore)
    url = read_url(settings)
    next_step = (
        "Next, as the person:\n"
        f"  entrepot login {url} --role admin\n"
        f"or, in a browser: {find_console(settings)}\n"
    )
    if not changes:
        write_now(f"{email} has all rights in {handle} already; nothing was changed.\n{next_step}")
        return
    _log.warning("%s got the role admin of %s, with all rights, on this machine", email, handle)
    done = "".join(f"  {each.action:<20}{each.resource}\n" for each in changes)
    write_now(f"{email} has all rights in {handle}, by the role admin:\n\n{done}\n{next_step}")
