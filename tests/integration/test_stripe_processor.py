"""The Stripe driver, by Stripe's own client, against localstripe in a process of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest.mock import Mock

import httpx
import pytest

from cloudcore.billing.processor import Declined, MethodRefused, Order
from cloudcore.billing.stripe_processor import StripeProcessor
from cloudcore.clock import uuid7
from cloudcore.errors import Unavailable
from registry.cli.server.setting_checks import refusals
from registry.settings.groups import BillingSettings
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError
from tests.integration.billing_world import open_world
from tests.stripe_relay import KEY, StripeRelay, stripe_relay

FAILING: Final = "pm_card_chargeCustomerFail"
"""A card that is kept, and whose charges are declined."""


@pytest.fixture(scope="module")
def stripe() -> Iterator[StripeRelay]:
    with stripe_relay() as relay:
        yield relay


@pytest.fixture
def processor(stripe: StripeRelay) -> Iterator[StripeProcessor]:
    made = StripeProcessor(KEY, stripe.url)
    yield made
    made.close()


async def ordered(processor: StripeProcessor, token: str, amount: str = "12.34") -> Order:
    """Return an order of a new customer with a card."""
    customer = await processor.customer(uuid7())
    kept = await processor.keep(customer, "card", token)
    return Order(uuid7(), customer, kept.reference, amount, "EUR")


async def test_a_card_is_kept_and_forgotten_and_a_debit_has_none(
    processor: StripeProcessor, stripe: StripeRelay
) -> None:
    customer = await processor.customer(uuid7())
    kept = await processor.keep(customer, "card", "pm_card_visa")
    assert kept.reference.startswith("pm_")
    assert (kept.brand, kept.last4, kept.exp_month, kept.exp_year) == ("visa", "4242", 12, 2030)
    await processor.forget(kept.reference)
    await processor.forget("pm_unknown")
    form = {"type": "sepa_debit", "sepa_debit[iban]": "DE89370400440532013000"}
    async with httpx.AsyncClient(base_url=stripe.url, auth=(KEY, "")) as client:
        made = (await client.post("/v1/payment_methods", data=form)).json()
    kept = await processor.keep(customer, "sepa_debit", made["id"])
    assert kept[1:] == ("sepa_debit", None, None, None, None)


async def test_what_stripe_does_not_take_is_refused(processor: StripeProcessor) -> None:
    customer = await processor.customer(uuid7())
    for token, is_card, code in (
        ("pm_card_visa_chargeDeclined", True, "card_declined"),
        ("pm_unknown", True, ""),
        ("pm_card_visa", False, "type_mismatch"),
    ):
        with pytest.raises(MethodRefused) as refused:
            await processor.keep(customer, "card" if is_card else "sepa_debit", token)
        assert not code or refused.value.code == code


async def test_money_is_moved_once_however_often_it_is_asked(
    processor: StripeProcessor, stripe: StripeRelay
) -> None:
    order = await ordered(processor, "pm_card_visa")
    before = {each["id"] for each in stripe.charges()}
    reference = await processor.prepare(order)
    assert {each["id"] for each in stripe.charges()} == before
    for _ in range(3):
        await processor.charge(reference, order)
    (charge,) = [each for each in stripe.charges() if each["id"] not in before]
    assert (charge["amount"], charge["currency"]) == (1234, "eur")
    assert stripe.confirmed()[-1] == f"{order.id}:confirm"
    assert ("POST", "/v1/payment_intents", f"{order.id}:intent") in stripe.asked


async def test_a_decline_is_told_also_when_asked_again(processor: StripeProcessor) -> None:
    order = await ordered(processor, FAILING)
    reference = await processor.prepare(order)
    for _ in range(2):
        with pytest.raises(Declined) as declined:
            await processor.charge(reference, order)
        assert declined.value.code == "card_declined"


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        ("processing", Unavailable("the payment is being processed", retry_after=3600)),
        ("requires_action", Declined("requires_action", "the payment needs its owner")),
    ],
)
async def test_a_debit_under_way_is_no_decline_and_a_payment_that_needs_its_owner_is_one(
    processor: StripeProcessor, monkeypatch: pytest.MonkeyPatch, status: str, failure: Exception
) -> None:
    client = Mock()
    client.v1.payment_intents.retrieve.return_value = Mock(status=status, last_payment_error=None)
    monkeypatch.setattr(StripeProcessor, "_client", client)
    order = Order(uuid7(), "cus_1", "pm_1", "12.34", "EUR")
    with pytest.raises(type(failure), match=str(failure)):
        await processor.charge("pi_1", order)
    client.v1.payment_intents.confirm.assert_not_called()


async def test_the_token_of_a_card_becomes_a_method(
    processor: StripeProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Mock()
    methods = client.v1.payment_methods
    methods.create.return_value.id = "pm_made"
    methods.attach.return_value = Mock(id="pm_made", type="card")
    monkeypatch.setattr(StripeProcessor, "_client", client)
    assert (await processor.keep("cus_1", "card", "tok_visa")).reference == "pm_made"
    methods.create.assert_called_once_with({"type": "card", "card": {"token": "tok_visa"}})
    methods.attach.assert_called_once_with("pm_made", {"customer": "cus_1"})


async def test_an_outage_or_a_wrong_key_is_no_decline(
    stripe: StripeRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody listens there; and the key is in no log."""
    away = StripeProcessor(KEY, "http://127.0.0.1:9")
    other = StripeProcessor("not a key", stripe.url)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Unavailable):
        await away.charge("pi_1", Order("x", "cus_1", "pm_1", "1.00", "EUR"))
    with pytest.raises(Unavailable):
        await other.customer(uuid7())
    away.close()
    other.close()
    assert KEY not in caplog.text


async def test_amounts_are_in_the_smallest_unit_of_the_currency(
    processor: StripeProcessor, stripe: StripeRelay
) -> None:
    for currency, amount, counted in (
        ("JPY", "1234", 1234),
        ("ISK", "12", 1200),
        ("USD", "0.5", 50),
    ):
        order = (await ordered(processor, "pm_card_visa", amount))._replace(currency=currency)
        before = {each["id"] for each in stripe.charges()}
        await processor.charge(await processor.prepare(order), order)
        (made,) = (each for each in stripe.charges() if each["id"] not in before)
        assert made["amount"] == counted


async def test_an_install_pays_by_stripe(tmp_path: Path, stripe: StripeRelay) -> None:
    """Over the API, with a decline, and with the key from its file."""
    key = tmp_path / "stripe.key"
    key.write_text(f"{KEY}\n")
    key.chmod(0o600)
    settings = BillingSettings("stripe", str(key), stripe.url)
    before = {each["id"] for each in stripe.charges()}
    async with open_world(tmp_path / "data", billing=settings) as world:
        invoice = await world.owing(FAILING)
        path = f"/v1/invoices/{invoice['id']}/pay"
        declined = await world.ask("POST", path)
        assert declined.status_code == 402
        assert declined.json()["error"]["params"]["code"] == "card_declined"
        unknown = {"type": "card", "token": "pm_unknown"}
        assert (await world.ask("POST", "/v1/payment-methods", unknown)).status_code == 400
        card = await world.add_method("pm_card_visa")
        assert card["display_name"] == "Visa ending in 4242"
        paid = await world.ask("POST", path)
        assert paid.json()["invoice"]["status"] == "paid"
    (charge,) = (each for each in stripe.charges() if each["id"] not in before)
    assert (charge["amount"], charge["currency"]) == (130, "eur")
    assert invoice["total"] == "1.30"


def test_the_settings_say_what_is_wrong(tmp_path: Path) -> None:
    for group, words in (
        (BillingSettings("paypal"), "embedded or stripe"),  # type: ignore[arg-type]
        (BillingSettings("stripe"), "needs stripe_key_file"),
    ):
        with pytest.raises(SettingsError, match=words):
            Settings(data=tmp_path, billing=group)
    open_to_all = tmp_path / "open.key"
    open_to_all.write_text(KEY)
    open_to_all.chmod(0o644)
    for path, words in ((open_to_all, "others can read"), (tmp_path / "none", "cannot read")):
        settings = Settings(
            data=tmp_path, public_url="http://x", billing=BillingSettings("stripe", str(path))
        )
        found = [each for each in refusals(settings) if each.startswith("payment_processor")]
        assert len(found) == 1
        assert words in found[0]
        assert KEY not in found[0]
