"""A process killed while it pays an invoice at Stripe: the money is moved once.

localstripe ignores idempotency keys. So what keeps it from charging twice here is what the process
has stored before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from cloudcore.billing import invoice_rows
from cloudcore.billing.charging import wake
from cloudcore.billing.invoice_rows import Invoice
from cloudcore.billing.needs import BillingNeeds
from cloudcore.billing.payment_method_rows import PaymentMethod, insert_method
from cloudcore.billing.payment_method_services import customer_of
from cloudcore.clock import system_clock, uuid7
from cloudcore.db.base import Connection, Database
from cloudcore.identity.rows.organizations import ORGANIZATIONS, Organization
from tests.databases import on_both_databases
from tests.fault.invoice_payer import needs_at, payer
from tests.fault.workers import kill
from tests.jobs import end_leases, running, until
from tests.loaded import start_worker
from tests.stripe_relay import StripeRelay, stripe_relay

PLACES: Final = ("/v1/payment_intents", "/confirm")
"""Ends of the paths whose answer the process does not live to see: the intent that is made, and the
charge."""


@pytest.fixture(scope="module")
def stripe() -> Iterator[StripeRelay]:
    """Return a Stripe on this machine."""
    with stripe_relay() as relay:
        yield relay


async def owing(needs: BillingNeeds) -> Invoice:
    """Return an open invoice of a new organization that has a card."""
    now, organization_id = system_clock(), uuid7()
    await needs.database.write(ORGANIZATIONS.add, Organization(organization_id, "Acme", now, now))
    customer = await customer_of(needs, organization_id)
    kept = await needs.processor.keep(customer, "card", "pm_card_visa")
    method = PaymentMethod(
        id=uuid7(),
        organization_id=organization_id,
        type="card",
        display_name="Visa",
        brand=kept.brand,
        last4=kept.last4,
        exp_month=kept.exp_month,
        exp_year=kept.exp_year,
        is_default=True,
        processor="stripe",
        reference=kept.reference,
        created_at=now,
        updated_at=now,
    )
    invoice = Invoice(
        id=uuid7(),
        organization_id=organization_id,
        period_start=0,
        period_end=1,
        currency="EUR",
        total="12.34",
        status="open",
        attempts=0,
        due_at=now,
        charge_at=now,
        paid_at=None,
        created_at=now,
        updated_at=now,
    )

    def add(tx: Connection) -> None:
        insert_method(tx, method)
        invoice_rows.add_invoice(tx, invoice, [])
        wake(tx, invoice, now)

    await needs.database.write(add)
    return invoice


@on_both_databases
@pytest.mark.timeout(120)
@pytest.mark.parametrize("place", PLACES)
async def test_a_process_killed_between_charge_and_record_charges_once(
    database: Database, metadata_url: str, stripe: StripeRelay, place: str
) -> None:
    needs = needs_at(database, stripe.url)
    invoice = await owing(needs)
    charged, confirmed = {each["id"] for each in stripe.charges()}, len(stripe.confirmed())
    words = "tests.fault.invoice_payer", metadata_url, stripe.url
    dying = await asyncio.to_thread(start_worker, *words)

    def die(path: str) -> None:
        if path.endswith(place):
            stripe.before_answer = lambda _path: None
            kill([dying.process.pid])

    stripe.before_answer = die
    assert await asyncio.to_thread(dying.process.wait) == -9
    dying.kill()
    assert len(stripe.charges()) - len(charged) == (place == "/confirm")
    place_of = invoice.organization_id, invoice.id
    pending = await database.read(invoice_rows.pending_charge, *place_of)
    assert pending is not None
    assert (await database.read(invoice_rows.get_invoice, *place_of)).status == "open"
    assert await asyncio.to_thread(end_leases, metadata_url) == ["billing.payment"]

    async def is_paid() -> bool:
        found = await database.read(invoice_rows.get_invoice, *place_of)
        return found.status == "paid"

    async with running(payer(database, replace(needs, processor=needs.processor))):
        await until(is_paid)
    (made,) = [each for each in stripe.charges() if each["id"] not in charged]
    assert (made["amount"], made["currency"]) == (1234, "eur")
    assert stripe.confirmed()[confirmed:] == [f"{pending.id}:confirm"]
