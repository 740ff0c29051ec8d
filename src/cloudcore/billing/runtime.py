"""The billing family at run time: its routes, job kind and schedule."""

from __future__ import annotations

from typing import Final

from cloudcore.billing import invoice_routes, payment_method_routes
from cloudcore.billing.charging import job_kind
from cloudcore.billing.closing import close_months
from cloudcore.billing.needs import BillingNeeds, open_needs
from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.resources.routes import handlers_of

_HOUR: Final = 3600

RUNTIME: Final[Runtime[BillingNeeds]] = Runtime(
    open=open_needs,
    routes=handlers_of(payment_method_routes, invoice_routes),
    job_kinds=lambda needs: (job_kind(needs),),
    schedule=scheduled(("billing.closing", _HOUR, close_months)),
)
