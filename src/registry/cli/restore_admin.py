"""``entrepot restore-admin``: all rights in an account for a person, given on the host itself."""

from __future__ import annotations

import argparse
import asyncio
import logging
from functools import partial

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.identity.admin_restoration import HostChange, restore_admin
from cloudcore.identity.names import email_address
from cloudcore.serving.logs import configure_logging
from registry.cli.existing_data import prepare_existing
from registry.cli.failure import Missing, Misuse
from registry.cli.host_events import record_on_host
from registry.cli.output import write_now
from registry.cli.serve import check_install
from registry.cli.served_url import find_url
from registry.cli.server_options import settings_of
from registry.main import Registry
from registry.setting_texts import SettingsError
from registry.settings import Settings

_log = logging.getLogger(__name__)


def run_restore_admin(options: argparse.Namespace) -> int:
    """Give a person the role `admin` of an account, with all rights; return the exit status."""
    settings, handle, address = settings_of(options), options.account, options.email
    try:
        email = email_address(address)
    except InvalidInput as error:
        raise SettingsError(f"--email {address!r}: {error}") from None
    configure_logging()
    prepare_existing(settings)
    try:
        changes = asyncio.run(_restore(settings, handle, email))
    except NotFound as error:
        raise Missing(str(error)) from None
    except Conflict as error:
        raise Misuse(str(error)) from None
    url = find_url(settings)
    next_step = (
        "Next, as the person:\n"
        f"  entrepot login {url} --role admin\n"
        f"or, in a browser: {url}/console\n"
    )
    if not changes:
        write_now(f"{email} has all rights in {handle} already; nothing was changed.\n{next_step}")
        return 0
    _log.warning("%s got the role admin of %s, with all rights, on this machine", email, handle)
    done = "".join(f"  {each.action:<20}{each.resource}\n" for each in changes)
    write_now(f"{email} has all rights in {handle}, by the role admin:\n\n{done}\n{next_step}")
    return 0


async def _restore(settings: Settings, handle: str, email: str) -> list[HostChange]:
    async with Registry(settings).open() as process:
        ctx = process.ctx
        await check_install(settings, ctx)
        now = ctx.clock()

        def change(tx: Connection) -> list[HostChange]:
            account, changes = restore_admin(tx, handle, email, partial(uuid7, now), now)
            for each in changes:
                command = "entrepot restore-admin"
                record_on_host(tx, each.action, [account.id], each.resource, command, now)
            return changes

        return await ctx.database.write(change)
