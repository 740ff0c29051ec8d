"""``entrepot invoices void``, ``settle`` and ``retry``; the organization's audit log has them."""

from __future__ import annotations

import argparse
import asyncio

from cloudcore.billing.charging import ACTIONS, Decision, decide
from cloudcore.billing.invoice_rows import Invoice
from cloudcore.command_failures import CommandFailure, Missing, Misuse
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, NotFound
from cloudcore.resource_names import Crn, parse_uuid
from registry.cli.output.records import write_now
from registry.cli.server.existing_data import prepare_existing
from registry.cli.server.lost_credentials import record_on_host
from registry.cli.server.options import settings_of
from registry.cli.server.serve import check_install
from registry.composition.main import Registry
from registry.settings.settings import Settings


def run_void(options: argparse.Namespace) -> int:
    """Let nobody owe an invoice; return the exit status."""
    return _run(options, "void")


def run_settle(options: argparse.Namespace) -> int:
    """Note that an invoice was paid otherwise; return the exit status."""
    return _run(options, "settle")


def run_retry(options: argparse.Namespace) -> int:
    """Let an invoice be tried anew; return the exit status."""
    return _run(options, "retry")


def _run(options: argparse.Namespace, decision: Decision) -> int:
    settings, invoice_id = settings_of(options), parse_uuid(options.invoice)
    if invoice_id is None:
        raise Misuse(f"{options.invoice!r} is no id of an invoice; 'invoices list' shows them")
    prepare_existing(settings)
    try:
        changed = asyncio.run(_change(settings, invoice_id, decision))
    except NotFound as error:
        raise Missing(str(error)) from None
    except Conflict as error:
        raise CommandFailure(str(error)) from None
    write_now(f"The invoice of {changed.total} {changed.currency} is {changed.status}.\n")
    return 0


async def _change(settings: Settings, invoice_id: str, decision: Decision) -> Invoice:
    async with Registry(settings).open() as process:
        ctx = process.ctx
        await check_install(settings, ctx)
        now = ctx.clock()

        def change(tx: Connection) -> Invoice:
            changed = decide(tx, invoice_id, decision, now)
            owner = changed.organization_id
            crn = str(Crn("billing", settings.region, owner, "invoice", invoice_id))
            command = f"entrepot invoices {decision}"
            record_on_host(tx, ACTIONS[decision], [owner], crn, command, now)
            return changed

        return await ctx.database.write(change)
