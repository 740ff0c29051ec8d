"""What all accounts of an organization are told of its invoices."""

from __future__ import annotations

from typing import Final

CREATED: Final = "billing.invoice.created"
PAID: Final = "billing.invoice.paid"
PAYMENT_FAILED: Final = "billing.invoice.payment_failed"
EVENTS: Final = (CREATED, PAID, PAYMENT_FAILED)
