"""A worker to be killed: ``python -m tests.fault.invoice_payer URL ENDPOINT``.

It pays the invoices of a database at a Stripe.
"""

from __future__ import annotations

import asyncio
import sys

from cloudcore.billing.charging import job_kind
from cloudcore.billing.needs import BillingNeeds
from cloudcore.billing.stripe_processor import StripeProcessor
from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Database
from cloudcore.db.opening import open_database
from cloudcore.events import NO_EVENTS
from cloudcore.jobs.worker import JobWorker
from tests.fault.certificate_worker import PACE
from tests.stripe_relay import KEY


def needs_at(database: Database, endpoint: str) -> BillingNeeds:
    """Return the needs of billing in an install that pays at a Stripe."""
    return BillingNeeds(
        database=database,
        clock=system_clock,
        new_id=uuid7,
        processor=StripeProcessor(KEY, endpoint),
        prices=lambda: (),
        skus=(),
        events=NO_EVENTS,
    )


def payer(database: Database, needs: BillingNeeds) -> JobWorker:
    """Return a worker that pays invoices."""
    return JobWorker(database, [job_kind(needs)], pace=PACE)


async def main(url: str, endpoint: str) -> None:
    """Pay until killed."""
    database = open_database(url)
    await payer(database, needs_at(database, endpoint)).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
