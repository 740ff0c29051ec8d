"""Payment methods of an organization: who sees them, which is the default, and what is refused."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import select

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.schema import metadata
from cloudcore.db.statement import Statement
from tests.databases import on_both_databases
from tests.integration.billing_world import World
from tests.integration.served_world import Served, Tenant

PATH: Final = "/v1/payment-methods"
ABSENT = "01890000-0000-7000-8000-0000000000ff"
NUMBER: Final = "4242424242424242"
"""A number that cards are tried with; its check digit is right."""


async def add(served: Served, tenant: Tenant, token: str, **more: object) -> dict[str, Any]:
    body = {"type": "card", "token": token, **more}
    return dict(await served.make(PATH, body, token=tenant.program_token))


async def listed(served: Served, token: str, query: str = "") -> list[dict[str, Any]]:
    answer = await served.ask("GET", PATH + query, token=token)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["payment_methods"])


async def defaults(served: Served, tenant: Tenant) -> list[str]:
    found = await listed(served, tenant.program_token)
    return [each["id"] for each in found if each["is_default"]]


async def second_account(served: Served, tenant: Tenant) -> str:
    """Add an account to the organization of a tenant; return a token that acts in it."""
    body = {"handle": "second", "organization": tenant.organization_id}
    answer = await served.ask("POST", "/v1/accounts", body, token=tenant.person_token)
    assert answer.status_code == 201, answer.text
    assumed = await served.ask(
        "POST", "/v1/assume-role", {"role": "crn:iam::second:role/admin"}, token=tenant.person_token
    )
    assert assumed.status_code == 200, assumed.text
    return str(assumed.json()["access_token"])


async def test_the_list_is_that_of_the_organization(billed: World) -> None:
    """Two accounts of one organization see the same rows, another organization none of them."""
    served = billed.served
    made = await add(served, served.acme, "tok_visa")
    other = await second_account(served, served.acme)
    here, there = await listed(served, served.acme.program_token), await listed(served, other)
    assert here == there
    assert made["id"] in [each["id"] for each in there]
    foreign = await listed(served, served.globex.program_token)
    assert {each["id"] for each in foreign}.isdisjoint(each["id"] for each in here)


async def test_people_name_an_organization(billed: World) -> None:
    """Its owners and accountants may; its other members may not, and for others it is not there."""
    served = billed.served
    acme = served.acme
    made = await add(served, acme, "tok_visa")
    path = f"/v1/organizations/{acme.organization_id}"
    of = f"?organization_id={acme.organization_id}"
    accountant, accountant_token = await served.add_person("accountant")
    member, member_token = await served.add_person("plain-member")
    for user, token, role in (
        (accountant, accountant_token, "billing"),
        (member, member_token, "member"),
    ):
        await served.join(acme.organization_id, user.email, token, by=acme.person_token, role=role)
    for token in (acme.person_token, accountant_token):
        assert made["id"] in [each["id"] for each in await listed(served, token, of)]
    body = {"type": "card", "token": "tok_amex"}
    keyed = {"Idempotency-Key": "once"}
    answers = [
        await served.ask("POST", PATH + of, body, token=accountant_token, headers=keyed)
        for _ in range(2)
    ]
    assert [each.status_code for each in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    for token, status in (
        (member_token, 403),
        (served.globex.person_token, 404),
        (served.globex.program_token, 404),
    ):
        for method, where in (("GET", PATH), ("GET", f"{PATH}/{made['id']}"), ("DELETE", PATH)):
            target = f"{PATH}/{made['id']}" if method == "DELETE" else where
            answer = await served.ask(method, target + of, token=token)
            assert answer.status_code == status, (method, target, answer.text)
    assert (await served.ask("GET", PATH, token=acme.person_token)).status_code == 403
    events = await served.ask(
        "GET", f"/v1/audit-events{of}&action=billing:*", token=acme.person_token
    )
    told = [each for each in events.json()["events"] if each["outcome"] == "succeeded"]
    assert [each["action"] for each in told] == ["billing:CreatePaymentMethod"]
    assert (await served.ask("GET", path, token=acme.person_token)).status_code == 200


@on_both_databases
async def test_exactly_one_is_the_default(billed: World) -> None:
    """The first one; then the one that is made it, and never two or none."""
    served = billed.served
    acme = served.acme
    before = await defaults(served, acme)
    assert len(before) == 1
    first = await add(served, acme, "tok_visa")
    assert await defaults(served, acme) == before
    second = await add(served, acme, "tok_mastercard", is_default=True)
    assert await defaults(served, acme) == [second["id"]]
    path = f"{PATH}/{first['id']}"
    changed = await served.ask("PATCH", path, {"is_default": True}, token=acme.program_token)
    assert changed.json()["payment_method"] == {**first, "is_default": True}
    assert await defaults(served, acme) == [first["id"]]
    refused = await served.ask("PATCH", path, {"is_default": False}, token=acme.program_token)
    assert refused.status_code == 400
    assert refused.json()["error"]["params"]["field"] == "is_default"
    other = f"{PATH}/{second['id']}"
    same = await served.ask("PATCH", other, {"is_default": False}, token=acme.program_token)
    assert same.json()["payment_method"] == {**second, "is_default": False}
    assert await defaults(served, acme) == [first["id"]]


@on_both_databases
async def test_racing_changes_leave_one_default(billed: World) -> None:
    served = billed.served
    acme = served.acme
    made = [await add(served, acme, "tok_visa") for _ in range(6)]
    asked = [
        served.ask("PATCH", f"{PATH}/{each['id']}", {"is_default": True}, token=acme.program_token)
        for each in made
    ]
    asked += [
        served.ask(
            "POST",
            PATH,
            {"type": "card", "token": "tok_visa", "is_default": True},
            token=acme.program_token,
        )
        for _ in range(4)
    ]
    answers = await asyncio.gather(*asked)
    assert {each.status_code for each in answers} <= {200, 201}
    assert len(await defaults(served, acme)) == 1


@on_both_databases
async def test_the_database_refuses_a_second_default(billed: World) -> None:
    """Whatever the code does: the partial index is the arbiter."""
    served = billed.served
    from cloudcore.billing import payment_method_rows  # noqa: PLC0415
    from cloudcore.db.base import ConstraintViolated  # noqa: PLC0415

    acme = served.acme

    def both(tx: Connection) -> None:
        default = payment_method_rows.default_method(tx, acme.organization_id)
        assert default is not None
        other = default._replace(id=uuid7(), is_default=False)
        payment_method_rows.insert_method(tx, other)
        payment_method_rows.save_method(tx, other._replace(is_default=True))

    with pytest.raises(ConstraintViolated):
        await served.database.write(both)
    assert len(await defaults(served, acme)) == 1


async def test_fields_that_a_method_has_not_are_absent(billed: World) -> None:
    """Not null; and the year in which a card expires has four digits."""
    served = billed.served
    acme = served.acme
    card = await add(served, acme, "tok_visa")
    assert card.keys() == {
        *("id", "type", "display_name", "is_default", "created_at"),
        *("brand", "last4", "exp_month", "exp_year"),
    }
    assert (card["display_name"], card["brand"]) == ("Visa ending in 4242", "visa")
    assert 2000 < card["exp_year"] < 10000
    assert 1 <= card["exp_month"] <= 12
    body = {"type": "sepa_debit", "token": "tok_sepaDebit"}
    debit = await served.make(PATH, body, token=acme.program_token)
    assert debit.keys() == {"id", "type", "display_name", "is_default", "created_at"}
    named = await add(served, acme, "tok_amex", display_name="Travel")
    assert named["display_name"] == "Travel"


NUMBERS: Final[tuple[Any, ...]] = (
    {"type": "card", "token": NUMBER},
    {"type": "card", "token": "tok_visa", "display_name": f"my {NUMBER}"},
    {"type": "card", "token": "tok_visa", "display_name": "4242 4242 4242 4242"},
    {"type": "card", "token": "tok_visa", "display_name": "4242-4242-4242-4242 12/29 123"},
    {"type": "card", "token": "tok_visa", "display_name": "378282246310005"},
    {"type": "card", "token": "tok_visa", "display_name": "4242  4242  4242  4242"},
    {"type": "card", "token": "tok_visa", "display_name": "4242 - 4242 - 4242 - 4242"},
    {"type": "card", "token": "tok_visa", "display_name": "4242\u20134242\u20134242\u20134242"},
    {"type": "card", "token": "tok_visa", "display_name": "4242/4242/4242/4242"},
    {"type": "card", "token": "tok_visa", "display_name": " ".join(NUMBER)},
    {"type": "card", "token": "tok_visa", "display_name": "\u2074\u00b2" * 8},
    {"type": "card", "token": "4242_4242_4242_4242"},
    {"type": "card", "token": "tok_visa", "number": NUMBER, "cvc": "123"},
    {"type": NUMBER, "token": "tok_visa"},
    {"type": "card", "token": {"card": {"number": int(NUMBER)}}},
    {NUMBER: "card"},
    b'{"type": "card", "token": "' + NUMBER.encode() + b'"',
)
"""Bodies with the number of a card somewhere."""


async def test_the_number_of_a_card_is_refused(
    billed: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Raw numbers are 400 before anything is stored, and never logged or answered."""
    served = billed.served
    token = served.acme.program_token
    found = (await listed(served, token))[0]
    before = await served.database.read(_everything)
    caplog.set_level(logging.DEBUG)
    for body in NUMBERS:
        keyed = {"Idempotency-Key": f"{uuid7()}", "Content-Type": "application/json"}
        answer = await served.ask("POST", PATH, body, token=token, headers=keyed)
        assert answer.status_code == 400, (body, answer.text)
        assert answer.json()["error"]["params"]["reason"] == "card_number", body
        if isinstance(body, dict) and "display_name" in body:
            name = {"display_name": body["display_name"]}
            changed = await served.ask("PATCH", f"{PATH}/{found['id']}", name, token=token)
            assert changed.status_code == 400, body
        for text in (answer.text, caplog.text, repr(caplog.records)):
            assert "4242424242" not in text, body
            assert "4242 4242" not in text, body
        assert await served.database.read(_everything) == before, body


async def test_what_is_escaped_is_read_too_and_what_takes_long_is_not(billed: World) -> None:
    """All other requests would wait while a number is looked for."""
    number = "".join(f"\\u003{digit}" for digit in NUMBER)
    for body in (
        f'{{"type": "card", "token": "{number}"}}',
        f'{{"type": "card", "token": "tok_visa", "{number}": 1}}',
    ):
        answer = await send_json(billed.served, "POST", PATH, body.encode())
        assert answer.status_code == 400, body
        assert answer.json()["error"]["params"]["reason"] == "card_number", body
        assert NUMBER not in answer.text, body
    long = b'{"display_name": "' + b"11 " * 1400 + b'"}'
    for method, at in (("POST", PATH), ("PATCH", f"{PATH}/{ABSENT}")):
        answer = await send_json(billed.served, method, at, long)
        assert answer.status_code == 413, (method, answer.text)


async def send_json(served: Served, method: str, path: str, body: bytes) -> httpx.Response:
    kind = {"Content-Type": "application/json"}
    return await served.ask(method, path, body, token=served.acme.program_token, headers=kind)


async def test_no_field_of_a_card_and_no_unknown_token_is_taken(billed: World) -> None:
    served = billed.served
    for body, field in (
        *(({"type": "card", "token": "tok_visa", name: "123"}, name) for name in ("cvc", "exp")),
        ({"type": "card", "token": "tok_nobody"}, "token"),
        ({"type": "sepa_debit", "token": "tok_visa"}, "token"),
        ({"type": "card", "token": "tok_visa", "display_name": "a\u202eb"}, "display_name"),
    ):
        answer = await served.ask("POST", PATH, body, token=served.acme.program_token)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["params"]["field"] == field, body


async def test_the_default_stays_while_it_is_in_use(billed: World) -> None:
    served = billed.served
    acme = served.acme
    for each in await listed(served, acme.program_token):
        if not each["is_default"]:
            await deleted(served, acme, each["id"], 204)
    (only,) = await listed(served, acme.program_token)
    other = await add(served, acme, "tok_visa")
    refused = await deleted(served, acme, only["id"], 409)
    assert refused.json()["error"]["params"]["reason"] == "is_default"
    await deleted(served, acme, other["id"], 204)
    await deleted(served, acme, other["id"], 404)
    await deleted(served, acme, only["id"], 204)
    assert await listed(served, acme.program_token) == []
    assert (await add(served, acme, "tok_visa"))["is_default"]


async def test_the_only_method_stays_while_an_invoice_is_open(billed: World) -> None:
    served, acme = billed.served, billed.served.acme
    for each in await listed(served, acme.program_token):
        if not each["is_default"]:
            await deleted(served, acme, each["id"], 204)
    (first,) = await listed(served, acme.program_token)
    await billed.owing()
    token = billed.token()
    refused = await served.ask("DELETE", f"{PATH}/{first['id']}", token=token)
    assert refused.status_code == 204  # no longer the default
    (only,) = await listed(served, token)
    refused = await served.ask("DELETE", f"{PATH}/{only['id']}", token=token)
    error = refused.json()["error"]
    assert (refused.status_code, error["params"]["reason"]) == (409, "is_default")
    assert "an invoice is open" in error["message"]
    assert await listed(served, token) == [only]


async def test_an_organization_has_at_most_twenty(billed: World) -> None:
    served = billed.served
    acme = served.acme
    while len(await listed(served, acme.program_token)) < 20:
        await add(served, acme, "tok_visa")
    for token in ("tok_visa", "tok_unknown"):  # the processor is not asked, which would store it
        body = {"type": "card", "token": token}
        answer = await served.ask("POST", PATH, body, token=acme.program_token)
        assert answer.status_code == 403
        full = {"quota": "payment_methods", "limit": 20, "used": 20}
        assert answer.json()["error"]["params"] == full


async def deleted(served: Served, tenant: Tenant, method_id: str, status: int) -> httpx.Response:
    answer = await served.ask("DELETE", f"{PATH}/{method_id}", token=tenant.program_token)
    assert answer.status_code == status, answer.text
    return answer


def _everything(tx: Connection) -> str:
    """Return all rows of all tables."""
    tables = metadata.sorted_tables
    return repr([sorted(map(repr, tx.rows(Statement(select(table))))) for table in tables])
