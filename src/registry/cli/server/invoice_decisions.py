"""``entrepot invoices void``, ``settle`` and ``retry``, recorded in the audit log."""

from __future__ import annotations

import argparse

from cloudcore.billing.charging import ACTIONS, Decision, decide
from cloudcore.billing.invoice_rows import Invoice
from cloudcore.command_failures import CommandFailure, Misuse
from cloudcore.commands.records import write_now
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict
from cloudcore.keyring import Keyring
from cloudcore.resource_names import Crn, parse_uuid
from registry.cli.server.host_changes import record_on_host, write_on_host
from registry.cli.server.options import settings_of


def run_decision(options: argparse.Namespace) -> None:
    """Void an invoice, record that it was paid by other means, or retry its payment."""
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
