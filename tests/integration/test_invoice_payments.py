"""Payment of invoices: by whom, how often it is tried, and that money moves once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, get_args
from unittest.mock import Mock

import pytest
from sqlalchemy import select

from cloudcore.billing import charging
from cloudcore.billing.embedded_processor import EmbeddedProcessor
from cloudcore.billing.stripe_processor import StripeProcessor
from cloudcore.billing.tables import embedded_charges, invoice_charges, payment_methods
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict, InvoicePaymentAttemptsExhausted
from cloudcore.jobs.kinds import Done, Next
from cloudcore.jobs.outbox import outbox
from cloudcore.jobs.queue import Job
from cloudcore.web.idempotency import idempotency_records
from tests.databases import on_both_databases, opened
from tests.integration.billing_world import DAY, World
from tests.jobs import run_due

RATE_HEADERS: Final = ("x-ratelimit-limit", "x-ratelimit-reset", "retry-after")


_CHARGED: Final = Statement(select(embedded_charges.c.amount, embedded_charges.c.decline))
_STATES: Final = Statement(select(invoice_charges.c.state))
_TOLD: Final = Statement(select(outbox.c.type).order_by(outbox.c.sequence))
_REMOVE_METHODS: Final = Statement(payment_methods.delete())


async def rows(world: World, statement: Statement) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await world.served.database.read(lambda tx: tx.rows(statement))]


async def ledger(world: World) -> list[tuple[str, str]]:
    """Return amount and decline of what the embedded processor was asked to charge."""
    return [(amount, why) for amount, why in await rows(world, _CHARGED)]


async def shown(world: World, invoice: dict[str, Any]) -> dict[str, Any]:
    answer = await world.ask("GET", f"/v1/invoices/{invoice['id']}")
    return dict(answer.json()["invoice"])


def pay_path(invoice: dict[str, Any]) -> str:
    return f"/v1/invoices/{invoice['id']}/pay"


async def test_an_invoice_is_paid_once(billed: World) -> None:
    invoice = await billed.owing()
    answer = await billed.ask("POST", pay_path(invoice), key="pay")
    assert answer.status_code == 200, answer.text
    paid = answer.json()["invoice"]
    assert (paid["status"], paid["attempts"]) == ("paid", 0)
    assert paid["paid_at"] is not None
    assert paid["lines"] == invoice["lines"]
    replayed = await billed.ask("POST", pay_path(invoice), key="pay")
    assert replayed.json() == answer.json()
    again = await billed.ask("POST", pay_path(invoice), key="again")
    assert again.json() == answer.json()
    await billed.run_jobs()
    assert await ledger(billed) == [(invoice["total"], "")]


@on_both_databases
async def test_payments_at_once_move_money_once(billed: World) -> None:
    invoice = await billed.owing()
    async with asyncio.TaskGroup() as together:
        together.create_task(billed.run_jobs())
        asked = [
            together.create_task(billed.ask("POST", pay_path(invoice), key=f"k{number}"))
            for number in range(6)
        ]
    assert {each.result().status_code for each in asked} <= {200, 409}
    await billed.run_jobs()
    assert (await shown(billed, invoice))["status"] == "paid"
    assert await ledger(billed) == [(invoice["total"], "")]


async def test_attempts_are_exhausted_per_invoice(billed: World) -> None:
    """Five declines, then 429 without headers of a rate; replays do not count."""
    invoice = await billed.owing("tok_chargeDeclined")
    other = await billed.owing("tok_chargeDeclined")
    for number in range(1, 6):
        answers = [
            await billed.ask("POST", pay_path(invoice), key=f"attempt-{number}") for _ in range(2)
        ]
        for answer in answers:
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (402, "PAYMENT_DECLINED")
            assert error["params"]["code"] == "card_declined"
        assert answers[0].text == answers[1].text
        assert (await shown(billed, invoice))["attempts"] == number
    await billed.add_method("tok_visa")
    for key in ("attempt-6", "attempt-7"):
        refused = await billed.ask("POST", pay_path(invoice), key=key)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "INVOICE_PAYMENT_ATTEMPTS_EXHAUSTED"
        assert not [name for name in RATE_HEADERS if name in refused.headers]
    replayed = await billed.ask("POST", pay_path(invoice), key="attempt-1")
    assert replayed.status_code == 402
    failed = await shown(billed, invoice)
    assert (failed["status"], failed["attempts"]) == ("failed", 5)
    assert (await billed.ask("POST", pay_path(other))).status_code == 200
    assert len(await ledger(billed)) == 6


@on_both_databases
async def test_attempts_survive_a_restart(billed: World, metadata_url: str) -> None:
    """What another process finds: the count, and which requests were answered."""
    invoice = await billed.owing("tok_chargeDeclined")
    place = billed.acme.organization_id, invoice["id"]
    for number in range(3):
        await billed.ask("POST", pay_path(invoice), key=f"attempt-{number}")
    async with opened(metadata_url) as database:
        processor = EmbeddedProcessor(database, billed.needs.clock)
        needs = replace(billed.needs, database=database, processor=processor)
        for number in range(2):
            charge = await database.write(
                charging.begin_charge, needs, *place, None, f"other-{number}"
            )
            assert charge is not None
            declined = await charging.settle(needs, charge)
            await database.write(charging.record, needs, charge, declined)
        known = await database.write(charging.begin_charge, needs, *place, None, "other-1")
        assert known is not None
        assert charge is not None
        assert (known.id, known.state) == (charge.id, "declined")
        with pytest.raises(InvoicePaymentAttemptsExhausted):
            await database.write(charging.begin_charge, needs, *place, None, "other-2")
    assert (await billed.ask("POST", pay_path(invoice))).status_code == 429


async def test_a_closed_month_is_paid_by_the_default_method_and_retried_on_following_days(
    billed: World,
) -> None:
    invoice = await billed.owing("tok_chargeDeclinedInsufficientFunds")
    for days, attempts in ((0, 1), (0, 1), (1, 2)):
        billed.served.clock.advance(days * DAY)
        await billed.run_jobs()
        assert (await shown(billed, invoice))["attempts"] == attempts
    await billed.add_method("tok_visa")
    for _ in range(2):
        billed.served.clock.advance(DAY)
        await billed.run_jobs()
        assert (await shown(billed, invoice))["status"] == "paid"
    why = "insufficient_funds"
    assert sorted(await ledger(billed)) == sorted(
        [(invoice["total"], why), (invoice["total"], why), (invoice["total"], "")]
    )


async def test_five_days_of_declines_end_the_tries(billed: World) -> None:
    invoice = await billed.owing("tok_chargeDeclined")
    for _ in range(8):
        await billed.run_jobs()
        billed.served.clock.advance(DAY)
    found = await shown(billed, invoice)
    assert (found["status"], found["attempts"]) == ("failed", 5)
    assert len(await ledger(billed)) == 5


async def test_an_invoice_that_is_retried_while_its_job_ends_is_paid_all_the_same(
    billed: World,
) -> None:
    """The end of a job drops what it was woken for; so the end itself looks once more."""
    invoice = await billed.owing("tok_chargeDeclined")
    for _ in range(charging.MAX_ATTEMPTS):
        await billed.ask("POST", pay_path(invoice))
    assert (await shown(billed, invoice))["status"] == "failed"
    await billed.add_method("tok_visa")
    kind = charging.job_kind(billed.needs)
    ends: list[str] = []

    async def retried_meanwhile(job: Job) -> Next | Done:
        outcome = await charging.pay(billed.needs, job)
        if isinstance(outcome, Done) and not ends:
            ends.append(job.id)
            now = billed.needs.clock()
            await billed.needs.database.write(charging.decide, invoice["id"], "retry", now)
        return outcome

    retried = replace(kind, step=retried_meanwhile)
    await run_due(billed.served.database, [retried], billed.served.clock)
    assert len(ends) == 1
    found = await shown(billed, invoice)
    assert (found["status"], found["attempts"]) == ("paid", 0)


async def test_without_a_payment_method_nothing_is_declined(billed: World) -> None:
    invoice = await billed.owing()
    # No operation takes them away while an invoice is open.
    await billed.served.database.write(lambda tx: tx.execute(_REMOVE_METHODS))
    await billed.run_jobs()
    found = await shown(billed, invoice)
    assert (found["status"], found["attempts"]) == ("open", 0)
    answer = await billed.ask("POST", pay_path(invoice))
    assert answer.status_code == 409
    assert answer.json()["error"]["params"]["reason"] == "no_payment_method"
    await billed.add_method("tok_visa")
    billed.served.clock.advance(DAY)
    await billed.run_jobs()
    assert (await shown(billed, invoice))["status"] == "paid"


async def test_another_method_than_the_default_may_pay(billed: World) -> None:
    good = await billed.add_method("tok_mastercard")
    invoice = await billed.owing("tok_chargeDeclined")
    unknown = {"payment_method": "01890000-0000-7000-8000-0000000000ff"}
    assert (await billed.ask("POST", pay_path(invoice), unknown)).status_code == 404
    answer = await billed.ask("POST", pay_path(invoice), {"payment_method": good["id"]})
    assert answer.status_code == 200
    assert await ledger(billed) == [(invoice["total"], "")]


async def test_an_outage_is_no_decline_and_the_payment_goes_on_by_itself(billed: World) -> None:
    """What is told apart: an outage counts nothing, and no other payment begins meanwhile."""
    invoice = await billed.owing("tok_chargeUnavailable")
    away = await billed.ask("POST", pay_path(invoice), key="away")
    assert away.status_code == 200
    assert away.json()["invoice"]["status"] == "open"
    found = await shown(billed, invoice)
    assert (found["status"], found["attempts"]) == ("open", 0)
    visa = await billed.add_method("tok_visa")
    other = await billed.ask("POST", pay_path(invoice), {"payment_method": visa["id"]})
    assert other.status_code == 409
    assert other.json()["error"]["params"]["reason"] == "in_progress"
    busy = [
        each
        for each in (await billed.ask("GET", "/v1/payment-methods")).json()["payment_methods"]
        if each["last4"] == "0119"
    ]
    refused = await billed.ask("DELETE", f"/v1/payment-methods/{busy[0]['id']}")
    assert refused.status_code == 409
    for decision in get_args(charging.Decision):
        with pytest.raises(Conflict, match="a payment of the invoice is under way"):
            await decide(billed, invoice, decision)
    assert (await shown(billed, invoice))["status"] == "open"
    assert await rows(billed, _STATES) == [("pending",)]


async def decide(world: World, invoice: dict[str, Any], decision: charging.Decision) -> None:
    """Decide about an invoice as the operator does."""
    now = world.served.clock()
    await world.served.database.write(charging.decide, invoice["id"], decision, now)


async def test_a_void_invoice_is_not_paid(billed: World) -> None:
    invoice = await billed.owing()
    await decide(billed, invoice, "void")
    refused = await billed.ask("POST", pay_path(invoice))
    assert (refused.status_code, refused.json()["error"]["params"]["reason"]) == (409, "is_void")
    await billed.run_jobs()
    assert (await rows(billed, _STATES), await ledger(billed)) == ([], [])


async def test_a_method_of_a_processor_that_is_not_in_use_any_more_is_not_charged(
    billed: World,
) -> None:
    invoice = await billed.owing()
    needs = replace(billed.needs, processor=Mock(StripeProcessor))
    ids = billed.acme.organization_id, invoice["id"]
    with pytest.raises(Conflict) as refused:
        await needs.database.write(charging.begin_charge, needs, *ids)
    assert refused.value.params["reason"] == "other_processor"
    assert await rows(billed, _STATES) == []


async def test_a_request_whose_decline_was_not_answered_gets_it_when_it_is_repeated(
    billed: World,
) -> None:
    invoice = await billed.owing("tok_chargeDeclined")
    first = await billed.ask("POST", pay_path(invoice), key="pay")
    forget = Statement(idempotency_records.delete())
    await billed.served.database.write(lambda tx: tx.execute(forget))
    again = await billed.ask("POST", pay_path(invoice), key="pay")
    for answer in (first, again):
        error = answer.json()["error"]
        assert (answer.status_code, error["params"]["code"]) == (402, "card_declined")
    assert (await shown(billed, invoice))["attempts"] == 1
    assert len(await ledger(billed)) == 1


class DiesAfterCharging(EmbeddedProcessor):
    """A processor after whose charge the process dies, as far as its caller can tell."""

    async def charge(self, reference: str, order: Any) -> None:  # noqa: ANN401
        await super().charge(reference, order)
        raise asyncio.CancelledError


@on_both_databases
async def test_a_crash_after_the_charge_never_charges_twice(billed: World) -> None:
    """The row of the charge is there before the call; the job goes on with the same key."""
    invoice = await billed.owing()
    needs = billed.needs
    charge = await needs.database.write(
        charging.begin_charge, needs, billed.acme.organization_id, invoice["id"]
    )
    assert charge is not None
    dying = DiesAfterCharging(needs.database, needs.clock)
    with suppress(asyncio.CancelledError):
        await charging.settle(replace(needs, processor=dying), charge)
    assert await ledger(billed) == [(invoice["total"], "")]
    assert (await shown(billed, invoice))["status"] == "open"
    assert (await billed.ask("POST", pay_path(invoice))).status_code == 409
    billed.served.clock.advance(301)
    await billed.run_jobs()
    assert (await shown(billed, invoice))["status"] == "paid"
    assert await ledger(billed) == [(invoice["total"], "")]


async def test_all_accounts_are_told(billed: World) -> None:
    """Of a new invoice, a decline and a payment, by the rules of each account."""
    token = billed.acme.program_token
    topic = f"crn:notifications:local:{billed.acme.account_id}:topic/bills"
    await billed.served.make("/v1/topics", {"name": "bills"}, token=token)
    rule = {"topic": topic, "event_types": ["billing.invoice.*"]}
    await billed.served.make("/v1/event-rules", rule, token=token)
    invoice = await billed.owing("tok_chargeDeclined")
    await billed.run_jobs()
    await billed.add_method("tok_visa")
    assert (await billed.ask("POST", pay_path(invoice))).status_code == 200

    told = [kind for (kind,) in await rows(billed, _TOLD) if "billing" in kind]
    assert told == [f"billing.invoice.{each}" for each in ("created", "payment_failed", "paid")]
