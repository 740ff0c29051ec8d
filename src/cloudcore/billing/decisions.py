"""What an operator decides about an invoice that is not paid by its organization."""

from __future__ import annotations

from typing import Final, Literal

from cloudcore.billing import invoice_rows as rows
from cloudcore.billing.charging import wake
from cloudcore.billing.invoice_rows import Invoice
from cloudcore.db.base import Connection
from cloudcore.errors import Conflict

Decision = Literal["void", "settle", "retry"]
ACTIONS: Final = {
    "void": "billing:VoidInvoice",
    "settle": "billing:SettleInvoice",
    "retry": "billing:RetryInvoice",
}
"""What the audit log of the organization has."""


def decide(tx: Connection, invoice_id: str, decision: Decision, now: int) -> Invoice:
    """Let nobody owe an invoice, note that it was paid otherwise, or let it be tried anew.

    Raises:
        NotFound: there is no such invoice.
        Conflict: it is paid or void, or a payment is under way.

    """
    organization_id = rows.owner_of(tx, invoice_id)
    invoice = rows.lock_invoice(tx, organization_id, invoice_id)
    if invoice.status in ("paid", "void"):
        raise Conflict(f"the invoice is {invoice.status}")
    if rows.pending_charge(tx, organization_id, invoice_id) is not None:
        raise Conflict("a payment of the invoice is under way; its outcome comes first")
    if decision == "void":
        changed = invoice._replace(status="void", charge_at=None, updated_at=now)
    elif decision == "settle":
        changed = invoice._replace(status="paid", charge_at=None, paid_at=now, updated_at=now)
    else:
        changed = invoice._replace(status="open", attempts=0, charge_at=now, updated_at=now)
        wake(tx, invoice, now)
    return rows.save_invoice(tx, changed)
