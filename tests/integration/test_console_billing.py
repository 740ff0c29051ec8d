"""Payment methods and invoices in the console, and an invoice to print."""

from __future__ import annotations

import re
from typing import Final

from tests.integration.console_access import hidden, refusal, see, send, told
from tests.integration.console_shop import Shop

METHODS: Final = "/console/services/payment-methods"
INVOICES: Final = "/console/services/invoices"
NUMBER: Final = "4242424242424242"
_ROW: Final = re.compile(r'<th scope="row"><a href="(/console/services/[^"]*)">([^<]*)</a>')


async def test_a_payment_method_is_added_made_the_default_and_deleted(shop: Shop) -> None:
    once = hidden(await see(shop, METHODS), "once")
    card = {"type": "card", "token": "tok_mastercard", "display_name": "Travel"}
    made = await told(shop, METHODS, **card, once=once)
    assert "The payment method was added." in made
    assert "<h1>Travel</h1>" in made
    path = {name: path for path, name in _ROW.findall(await see(shop, METHODS))}["Travel"]
    changed = await told(shop, path, display_name="Flights", is_default="on")
    assert "The payment method was changed." in changed
    assert "<h1>Flights</h1>" in changed
    refused = await refusal(shop, path, 400, display_name="Flights")
    assert "default" in refused
    held = await refusal(shop, f"{path}/delete", 409, confirmed="yes")
    assert "default" in held


async def test_the_number_of_a_card_is_not_shown_again(shop: Shop) -> None:
    once = hidden(await see(shop, METHODS), "once")
    body = {"type": "card", "token": NUMBER, "display_name": f"My {NUMBER}", "once": once}
    answer = await send(shop, METHODS, **body)
    assert answer.status_code == 400
    assert "number of a card" in answer.text
    assert NUMBER not in answer.text


async def test_an_invoice_is_shown_printed_and_paid(shop: Shop) -> None:
    ((path, name),) = _ROW.findall(await see(shop, INVOICES))
    assert re.fullmatch(r"\d{4}-\d\d-EUR", name)
    page = await see(shop, path)
    assert "GiB-month" in page
    assert f'href="{path}/print"' in page
    printed = await see(shop, f"{path}/print")
    for words in ("<h1>Invoice</h1>", "registry.storage", "1.50 EUR", "acme"):
        assert words in printed
    assert "<form" not in printed
    asked = await send(shop, f"{path}/pay")
    assert "default payment method" in asked.text
    paid = await told(shop, f"{path}/pay", confirmed="yes", once=hidden(asked.text, "once"))
    assert ">paid<" in paid
    assert "Pay this invoice" not in paid
    assert _ROW.findall(await see(shop, f"{INVOICES}?status=open")) == []


async def test_who_may_not_sees_neither(shop: Shop) -> None:
    browser = await shop.browser.get("/console/services/invoices/none/print")
    assert browser.status_code == 404
