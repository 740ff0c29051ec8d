"""The events and the quota of billing; all accounts of an organization get its invoice events."""

from __future__ import annotations

from typing import Final

from cloudcore.quotas.quota import Quota

PAYMENT_METHODS: Final = Quota("payment_methods", 20, "payment methods", per="organization")


CREATED: Final = "billing.invoice.created"
PAID: Final = "billing.invoice.paid"
PAYMENT_FAILED: Final = "billing.invoice.payment_failed"
EVENTS: Final = (CREATED, PAID, PAYMENT_FAILED)
