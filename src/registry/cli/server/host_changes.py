"""Commands that change the database of an install on its own machine, with an audit record.

They set and forget limits of quotas, decide on invoices, and replace lost credentials.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from cloudcore.audit.rows import add_event
from cloudcore.billing.charging import ACTIONS, Decision, decide
from cloudcore.billing.invoice_rows import Invoice
from cloudcore.clock import uuid7
from cloudcore.command_failures import CommandFailure, Missing, Misuse
from cloudcore.commands.records import write_now
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.iam.audit import AuditEvent
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
from cloudcore.identity.rows.accounts import Account, find_account_ids
from cloudcore.identity.services.service_accounts import new_access_key
from cloudcore.identity.services.users import new_password
from cloudcore.keyring import Keyring
from cloudcore.quotas.limits import EVERY_ACCOUNT, MAX_QUOTA
from cloudcore.quotas.needs import QuotaNeeds
from cloudcore.quotas.quota import Quota
from cloudcore.resource_names import Crn, lower_ids, parse_uuid
from cloudcore.serving.logs import configure_logging
from registry.cli.server.existing_data import on_data
from registry.cli.server.options import settings_of
from registry.cli.server.run_server import find_console, read_url
from registry.cli.server.serve import check_install
from registry.composition.families import FAMILIES
from registry.composition.main import quotas_of
from registry.composition.stores import RegistryStores
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

T = TypeVar("T")


def write_on_host(settings: Settings, change: Callable[[Connection, Keyring, int], T]) -> T:
    """Call `change` in a transaction, with the keyring and the time; return what it returns.

    Raise `Missing` if `change` raised NotFound, `SettingsError` if the data are not those of an
    install, or the root key cannot be used.
    """

    async def write(stores: RegistryStores) -> T:
        ctx = stores.ctx
        keyring = await check_install(settings, ctx)
        return await ctx.database.write(change, keyring, ctx.clock())

    try:
        return on_data(settings, write)
    except NotFound as error:
        raise Missing(str(error)) from None


def record_on_host(
    tx: Connection, action: str, owners: Sequence[str], resource: str, command: str, now: int
) -> None:
    """Record the change of a command, in its transaction, for each owner."""
    for owner_id in owners:
        event = AuditEvent(
            id=uuid7(now),
            owner_id=owner_id,
            occurred_at=now,
            action=action,
            resources=(resource,),
            principal="",
            source=None,
            client=None,
            details={"command": command},
        )
        add_event(tx, event)


_QUOTAS: Final = {each.name: each for family in FAMILIES for each in family.quotas}
_log = logging.getLogger(__name__)


def run_quota_set(options: argparse.Namespace) -> None:
    """Set a limit."""
    text = options.limit
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_QUOTA:
        raise Misuse(f"{text!r} is not a whole number up to {MAX_QUOTA}")
    _set_quota(options, int(text))


def run_quota_reset(options: argparse.Namespace) -> None:
    """Forget a limit."""
    _set_quota(options, None)


def _set_quota(options: argparse.Namespace, limit: int | None) -> None:
    settings, handle = settings_of(options), options.account
    quota = _QUOTAS.get(options.quota)
    if quota is None:
        raise Misuse(f"there is no quota {options.quota}; there are {', '.join(sorted(_QUOTAS))}")
    if handle and not quota.has_limits_of_accounts:
        raise Misuse(
            f"{quota.name} are of each {quota.per}, not of an account: leave --account out"
        )
    configure_logging()
    was_there = _change_quota(settings, handle, quota, limit)
    whose = handle or "every account without a limit of its own"
    if limit is not None:
        _log.warning("the quota %s of %s is %d, set on this machine", quota.name, whose, limit)
        write_now(f"{whose} may have {limit} {quota.words}.\n")
    elif was_there:
        _log.warning("the quota %s of %s was reset on this machine", quota.name, whose)
        write_now(f"The limit of {quota.words} that was set for {whose} is forgotten.\n")
    else:
        write_now(f"No limit of {quota.words} was set for {whose}; nothing was changed.\n")


def _change_quota(settings: Settings, handle: str | None, quota: Quota, limit: int | None) -> bool:
    """Set or forget the limit; return True if one was set, or forgotten."""
    needs = QuotaNeeds({each.quota.name: each for each in quotas_of(FAMILIES)})

    def change(tx: Connection, _keyring: Keyring, now: int) -> bool:
        account_id = EVERY_ACCOUNT
        if handle:
            account_id = find_account_ids(tx, [handle]).get(handle, "")
            if not account_id:
                raise NotFound(f"there is no account {handle}")
        if limit is None:
            action, command = "quotas:ResetQuota", f"reset {quota.name}"
            if not needs.change(tx, account_id, quota.name, None, settings.region, now):
                return False
        else:
            action, command = "quotas:SetQuota", f"set {quota.name} {limit}"
        crn = str(Crn("quotas", settings.region, account_id, "quota", quota.name))
        owners = [account_id] if account_id else []
        record_on_host(tx, action, owners, crn, f"entrepot quotas {command}", now)
        if limit is not None:
            needs.change(tx, account_id, quota.name, limit, settings.region, now)
        return True

    return write_on_host(settings, change)


def run_invoice_decision(options: argparse.Namespace) -> None:
    """Void an invoice, note that it was paid otherwise, or retry it."""
    settings, invoice_id = settings_of(options), parse_uuid(options.invoice)
    if invoice_id is None:
        raise Misuse(f"{options.invoice!r} is no id of an invoice; 'invoices list' shows them")
    decision: Decision = options.decision

    def change(tx: Connection, _keyring: Keyring, now: int) -> Invoice:
        changed = decide(tx, invoice_id, decision, now)
        owner = changed.organization_id
        crn = str(Crn("billing", settings.region, owner, "invoice", invoice_id))
        command = f"entrepot invoices {decision}"
        record_on_host(tx, ACTIONS[decision], [owner], crn, command, now)
        return changed

    try:
        changed = write_on_host(settings, change)
    except Conflict as error:
        raise CommandFailure(str(error)) from None
    write_now(f"The invoice of {changed.total} {changed.currency} is {changed.status}.\n")


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
