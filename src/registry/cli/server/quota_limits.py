"""``entrepot quotas set`` and ``reset``, recorded in the account's audit log."""

from __future__ import annotations

import argparse
import logging
from typing import Final

from cloudcore.command_failures import Misuse
from cloudcore.commands.records import write_now
from cloudcore.db.base import Connection
from cloudcore.errors import NotFound
from cloudcore.identity.rows.accounts import find_account_ids
from cloudcore.keyring import Keyring
from cloudcore.quotas.limits import EVERY_ACCOUNT, MAX_QUOTA
from cloudcore.quotas.needs import QuotaNeeds
from cloudcore.quotas.quota import Quota
from cloudcore.resource_names import Crn
from cloudcore.serving.logs import configure_logging
from registry.cli.server.host_changes import record_on_host, write_on_host
from registry.cli.server.options import settings_of
from registry.composition.families import FAMILIES
from registry.composition.main import quotas_of
from registry.settings.settings import Settings

_KNOWN: Final = {each.name: each for family in FAMILIES for each in family.quotas}
_log = logging.getLogger(__name__)


def run_set(options: argparse.Namespace) -> None:
    """Set a quota's limit for one account, or the default for all accounts."""
    text = options.limit
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_QUOTA:
        raise Misuse(f"{text!r} is not a whole number up to {MAX_QUOTA}")
    _run(options, int(text))


def run_reset(options: argparse.Namespace) -> None:
    """Remove the limit that was set for one account, or the default that was set for all."""
    _run(options, None)


def _run(options: argparse.Namespace, limit: int | None) -> None:
    settings, handle = settings_of(options), options.account
    quota = _KNOWN.get(options.quota)
    if quota is None:
        raise Misuse(f"there is no quota {options.quota}; there are {', '.join(sorted(_KNOWN))}")
    if handle and not quota.has_limits_of_accounts:
        raise Misuse(
            f"{quota.name} are of each {quota.per}, not of an account: leave --account out"
        )
    configure_logging()
    was_there = _change(settings, handle, quota, limit)
    whose = handle or "every account without a limit of its own"
    if limit is not None:
        _log.warning("the quota %s of %s is %d, set on this machine", quota.name, whose, limit)
        write_now(f"{whose} may have {limit} {quota.words}.\n")
    elif was_there:
        _log.warning("the quota %s of %s was reset on this machine", quota.name, whose)
        write_now(f"The limit of {quota.words} that was set for {whose} is forgotten.\n")
    else:
        write_now(f"No limit of {quota.words} was set for {whose}; nothing was changed.\n")


def _change(settings: Settings, handle: str | None, quota: Quota, limit: int | None) -> bool:
    """Set the limit, or remove it if `limit` is None; return False if there was none to remove."""
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
