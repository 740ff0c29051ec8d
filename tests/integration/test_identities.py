"""Sending identities: domains are proved by their DKIM record, addresses by a link."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any, Final

import dkim
import dns.asyncresolver
import pytest
from sqlalchemy import select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.email.dkim import open_key, signed
from cloudcore.email.resources import SendingIdentity
from cloudcore.email.sending_identities import for_sender, signer_of
from cloudcore.errors import InvalidInput
from cloudcore.jobs.outbox import outbox
from tests.databases import on_both_databases
from tests.integration.mail_world import World
from tests.jobs import until

HOUR: Final = 3600
DAY: Final = 24 * HOUR
MESSAGE: Final = b"From: Ada <ada@shop.example>\r\nTo: b@x.example\r\nSubject: Hi\r\n\r\nHello.\r\n"
_EVENTS: Final = Statement(select(outbox.c.type, outbox.c.payload).order_by(outbox.c.sequence))


def events(tx: Connection) -> list[str]:
    """Return the statuses that the events of shop.example tell."""
    data = [(row[0], json.loads(row[1])["data"]) for row in tx.rows(_EVENTS)]
    told = ("email.identity.verified", "email.identity.failed")
    of_it = [each for kind, each in data if kind in told]
    return [each["status"] for each in of_it if each["identity"]["name"] == "shop.example"]


def codes(made: dict[str, Any]) -> list[tuple[str, str]]:
    """Return code and severity of the faults of a record."""
    return [(each["code"], each["severity"]) for each in made["faults"]]


async def sender(world: World, address: str, account_id: str = "") -> SendingIdentity:
    """Return the identity that mail from an address is sent by; acme's unless another is said."""
    account = account_id or world.served.acme.account_id
    return await world.served.database.write(for_sender, account, "local", address)


async def test_a_domain_is_verified_as_long_as_its_record_is_there(mailing: World) -> None:
    token = mailing.token()
    topic = await mailing.served.make("/v1/topics", {"name": "mail"}, token=token)
    rule = {"topic": topic["crn"], "event_types": ["email.*"]}
    await mailing.served.make("/v1/event-rules", rule, token=token)
    made = await mailing.identity("Shop.Example", description="The shop.")
    selector = made["dkim"]["selector"]
    assert (made["value"], made["status"], made["verified_at"]) == ("shop.example", "pending", None)
    assert made["crn"].endswith(":identity/shop.example")
    assert made["dkim"]["record_name"] == f"{selector}._domainkey.shop.example"
    await mailing.work()
    waits = await mailing.show(made)
    assert (waits["status"], codes(waits)) == ("pending", [("DKIM_RECORD_MISSING", "error")])
    assert made["dkim"]["record_value"] in waits["faults"][0]["message"]
    mailing.publish(made)
    await mailing.work(after=299)
    assert (await mailing.show(made))["status"] == "pending"
    await mailing.work(after=1)
    there = await mailing.show(made)
    assert (there["status"], there["faults"]) == ("verified", [])
    assert there["verified_at"] == there["checked_at"]
    published = dict(mailing.names.texts)
    mailing.names.texts.clear()
    await mailing.work(after=HOUR)
    gone = await mailing.show(made)
    assert (gone["status"], codes(gone)) == ("failed", [("DKIM_RECORD_MISSING", "error")])
    mailing.names.texts.update(published)
    await mailing.work(after=HOUR)
    again = await mailing.show(made)
    assert (again["status"], again["faults"]) == ("verified", [])
    assert again["verified_at"] > there["verified_at"]
    told = await mailing.served.database.read(events)
    assert told == ["verified", "failed", "verified"]


async def test_the_owner_can_have_the_record_looked_for_at_once(mailing: World) -> None:
    made = await mailing.identity("shop.example")
    await mailing.work()
    mailing.publish(made)
    asked = await mailing.ask("POST", f"/{made['id']}/verify")
    assert (asked.status_code, asked.json()["identity"]["status"]) == (202, "pending")
    await mailing.work()
    assert (await mailing.show(made))["status"] == "verified"


async def test_who_asks_while_the_record_is_looked_for_has_it_looked_for_again(
    mailing: World,
) -> None:
    made = await mailing.identity("shop.example")
    mailing.names.held = []
    looking = asyncio.create_task(mailing.work())

    async def is_asked() -> bool:
        return bool(mailing.names.held)

    await until(is_asked)
    mailing.publish(made)
    assert (await mailing.ask("POST", f"/{made['id']}/verify")).status_code == 202
    mailing.names.release()
    await looking
    await mailing.work()
    assert (await mailing.show(made))["status"] == "verified"


async def test_a_domain_without_a_record_fails_after_72_hours_and_may_still_be_proved(
    mailing: World,
) -> None:
    made = await mailing.identity("shop.example")
    await mailing.work(after=71 * HOUR)
    assert (await mailing.show(made))["status"] == "pending"
    await mailing.work(after=2 * HOUR)
    assert (await mailing.show(made))["status"] == "failed"
    mailing.publish(made)
    await mailing.work(after=HOUR)
    assert (await mailing.show(made))["status"] == "verified"


async def test_that_no_name_server_answers_takes_no_proof_away(mailing: World) -> None:
    made = await mailing.verified("shop.example")
    mailing.names.fails = True
    await mailing.work(after=HOUR)
    seen = await mailing.show(made)
    assert (seen["status"], codes(seen)) == ("verified", [("DNS_UNREACHABLE", "warning")])
    mailing.names.fails = False
    await mailing.work(after=HOUR)
    seen = await mailing.show(made)
    assert (seen["status"], seen["faults"]) == ("verified", [])


@on_both_databases
async def test_only_the_account_whose_record_is_there_is_verified(mailing: World) -> None:
    globex = mailing.served.globex
    ours = await mailing.identity("shop.example")
    theirs = await mailing.identity("shop.example", of=globex)
    assert ours["dkim"]["selector"] != theirs["dkim"]["selector"]
    assert ours["dkim"]["record_value"] != theirs["dkim"]["record_value"]
    mailing.publish(ours)
    # The key of another at a selector that it has guessed is no proof.
    mailing.publish({"dkim": {**ours["dkim"], "record_name": theirs["dkim"]["record_name"]}})
    await mailing.work()
    assert (await mailing.show(ours))["status"] == "verified"
    seen = await mailing.show(theirs, of=globex)
    assert (seen["status"], codes(seen)) == ("pending", [("DKIM_RECORD_MISMATCH", "error")])
    assert (await sender(mailing, "ada@shop.example")).id == ours["id"]
    with pytest.raises(InvalidInput):
        await sender(mailing, "ada@shop.example", globex.account_id)
    assert (await mailing.ask("GET", f"/{theirs['id']}")).status_code == 404


async def test_of_two_records_receivers_may_take_either_so_it_is_no_proof(mailing: World) -> None:
    made = await mailing.identity("shop.example")
    mailing.publish(made)
    mailing.names.texts[f"{made['dkim']['record_name']}."].append('"v=DKIM1; p="')
    await mailing.work()
    assert codes(await mailing.show(made)) == [("DKIM_RECORD_MISMATCH", "error")]


async def test_the_key_is_sealed_in_its_row_and_in_no_answer(mailing: World) -> None:
    made = await mailing.identity("shop.example")
    row = await mailing.row(made)
    key = open_key(mailing.served.keyring, row)
    assert key.startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    assert row.dkim_key is not None
    assert b"PRIVATE KEY" not in row.dkim_key
    assert not {"dkim_key", "dkim_public", "dkim_selector", "asked", "check_at"} & made.keys()
    other = await mailing.row(await mailing.identity("other.example"))
    assert open_key(mailing.served.keyring, other) != key


async def test_what_is_signed_verifies_by_the_record_in_the_dns(mailing: World) -> None:
    made = await mailing.verified("shop.example")
    found = await sender(mailing, "Ada@shop.example")
    mail = signed(MESSAGE, found, partial(open_key, mailing.served.keyring))
    host, port = mailing.names.address.split(":")
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = [host], int(port)
    answer = await resolver.resolve(made["dkim"]["record_name"], "TXT")
    text = b"".join(answer[0].strings)
    asked = []

    def look_up(name: bytes, timeout: float = 5) -> bytes:
        asked.append(name.decode())
        return text

    assert dkim.verify(mail, dnsfunc=look_up)
    assert asked == [f"{made['dkim']['record_name']}."]
    assert not dkim.verify(mail.replace(b"Hello.", b"Hallo."), dnsfunc=look_up)


async def test_the_identity_of_an_address_goes_before_that_of_its_domain(mailing: World) -> None:
    domain = await mailing.verified("shop.example")
    assert (await sender(mailing, "ada@shop.example")).id == domain["id"]
    address = await mailing.identity("ada@shop.example")
    assert (await sender(mailing, "ADA@Shop.Example")).id == domain["id"]
    await mailing.work()
    assert (await mailing.confirm(mailing.link())).status_code == 200
    found = await sender(mailing, "ADA@Shop.Example")
    assert found.id == address["id"]
    signs = await mailing.served.database.read(signer_of, found)
    assert signs is not None
    assert signs.id == domain["id"]
    assert (await sender(mailing, "bob@shop.example")).id == domain["id"]


async def test_only_the_very_domain_sends_and_while_it_is_verified(mailing: World) -> None:
    await mailing.verified("shop.example")
    for address in ("ada@mail.shop.example", "ada@example", "ada@notshop.example", "no address"):
        with pytest.raises(InvalidInput, match="from: ") as raised:
            await sender(mailing, address)
        assert raised.value.params["reason"] == "not_verified"
    mailing.names.texts.clear()
    await mailing.work(after=HOUR)
    with pytest.raises(InvalidInput):
        await sender(mailing, "ada@shop.example")


async def test_an_ip_pool_stays_while_an_identity_refers_to_it(mailing: World) -> None:
    pools, token = "/v1/ip-pools", mailing.token()
    pool = await mailing.served.make(pools, {"name": "letters"}, token=token)
    made = await mailing.identity("shop.example", ip_pool="letters")
    assert made["ip_pool"] == {"id": pool["id"], "crn": pool["crn"], "name": "letters"}
    refused = await mailing.served.ask("DELETE", f"{pools}/{pool['id']}", token=token)
    assert refused.status_code == 409
    assert refused.json()["error"]["params"]["identity"] == "shop.example"
    await mailing.ask("PATCH", f"/{made['id']}", {"ip_pool": None})
    deleted = await mailing.served.ask("DELETE", f"{pools}/{pool['id']}", token=token)
    assert deleted.status_code == 204


NO_DOMAINS: Final = (
    *("ada@shop.example", "shop", "shop..example", "-shop.example", "shop.example\r\nX: y"),
    *("[127.0.0.1]", ".".join(["a" * 59] * 4)),
)
NO_ADDRESSES: Final = (
    *("shop.example", "ada@shop.example\r\nBcc: b@x.example", "Ada <ada@shop.example>"),
    *('"a b"@shop.example', "=?utf-8?q?x?=@shop.example"),
)


async def test_what_mail_cannot_be_from_is_refused(mailing: World) -> None:
    for kind, values in (("domain", NO_DOMAINS), ("address", NO_ADDRESSES)):
        for value in values:
            refused = await mailing.ask("POST", "", {"kind": kind, "value": value})
            assert refused.status_code == 400, value
            assert refused.json()["error"]["params"]["field"] == "value"


async def test_two_forms_of_a_value_are_one(mailing: World) -> None:
    made = await mailing.identity("exämple.example")
    assert made["value"] == "xn--exmple-cua.example"
    body = {"kind": "domain", "value": "XN--EXMPLE-CUA.example"}
    assert (await mailing.ask("POST", "", body)).status_code == 409
    for asked in ("exämple.example", "xn--exmple-cua.example"):
        listed = await mailing.ask("GET", f"?value={asked}")
        assert [each["id"] for each in listed.json()["identities"]] == [made["id"]]


PAGE: Final = "/v1/identity-confirmations"


async def test_opening_the_link_changes_nothing_and_its_button_verifies(mailing: World) -> None:
    made = await mailing.identity("Ada@shop.example")
    assert (made["value"], made["status"]) == ("ada@shop.example", "pending")
    assert made.get("dkim") is None
    await mailing.work()
    (mail,) = mailing.mailbox.mails
    assert (mail["To"], mail["From"]) == ("ada@shop.example", "platform@registry.test")
    token = mailing.link()
    shown = await mailing.served.ask("GET", f"{PAGE}?token={token}")
    assert (shown.status_code, token in shown.text) == (200, True)
    assert (await mailing.show(made))["status"] == "pending"
    for wrong in ("", "x", "a" * 43, "%00", "ä"):
        assert (await mailing.confirm(wrong)).status_code == 400
    assert token not in str(await mailing.row(made)), "only a hash of it is stored"
    done = await mailing.confirm(token)
    assert (await mailing.row(made)).confirmation_hash is None
    assert (done.status_code, "ada@shop.example" in done.text) == (200, True)
    seen = await mailing.show(made)
    assert (seen["status"], seen["verified_at"] is None) == ("verified", False)
    assert (await mailing.confirm(token)).status_code == 400  # once
    refused = await mailing.ask("POST", f"/{made['id']}/verify")
    assert (refused.status_code, refused.json()["error"]["params"]["reason"]) == (409, "verified")
    path = "/v1/audit-events?action=email:ConfirmIdentity"
    opened = (await mailing.served.ask("GET", path, token=mailing.token())).json()["events"]
    assert [each["resources"] for each in opened] == [[made["crn"]]]
    await mailing.work(after=100 * HOUR)
    assert len(mailing.mailbox.mails) == 1
    assert (await mailing.show(made))["status"] == "verified"


async def test_a_link_confirms_for_72_hours_unless_there_is_a_newer_one(mailing: World) -> None:
    made = await mailing.identity("ada@shop.example")
    await mailing.work()
    await mailing.work(after=72 * HOUR)
    assert (await mailing.confirm(mailing.link())).status_code == 400
    assert (await mailing.show(made))["status"] == "pending"
    links = []
    for _ in range(2):
        assert (await mailing.ask("POST", f"/{made['id']}/verify")).status_code == 202
        await mailing.work()
        links.append(mailing.link())
    assert len({each["Message-ID"] for each in mailing.mailbox.mails}) == 3
    assert (await mailing.confirm(links[0])).status_code == 400
    await mailing.work(after=72 * HOUR - 1)
    assert (await mailing.confirm(links[1])).status_code == 200


async def test_an_address_is_asked_at_most_ten_times_an_hour_by_all_accounts(
    mailing: World,
) -> None:
    globex = mailing.served.globex
    made = await mailing.identity("ada@shop.example")
    for _ in range(8):
        assert (await mailing.ask("POST", f"/{made['id']}/verify")).status_code == 202
    await mailing.identity("ada+tag@shop.example", of=globex)
    body = {"kind": "address", "value": "ada@shop.example"}
    assert (await mailing.ask("POST", "", body, of=globex)).status_code == 429
    assert (await mailing.ask("POST", f"/{made['id']}/verify")).status_code == 429
    mailing.served.clock.now += 3600 * 1_000_000
    assert (await mailing.ask("POST", f"/{made['id']}/verify")).status_code == 202


async def test_that_the_mail_is_refused_is_a_fault_and_a_later_one_is_tried_anew(
    mailing: World,
) -> None:
    mailing.mailbox.refusal = "554 no"
    made = await mailing.identity("ada@shop.example")
    await mailing.work()
    (fault,) = (await mailing.show(made))["faults"]
    assert (fault["code"], fault["severity"]) == ("MAIL_REFUSED", "error")
    mailing.mailbox.refusal = "451 later"
    await mailing.ask("POST", f"/{made['id']}/verify")
    await mailing.work()
    faults = {each["code"]: each["severity"] for each in (await mailing.show(made))["faults"]}
    assert faults["MAIL_UNREACHABLE"] == "warning"
    mailing.mailbox.refusal = ""
    await mailing.work(after=60)
    assert (await mailing.show(made))["faults"] == []
    assert (await mailing.confirm(mailing.link())).status_code == 200


async def test_odd_addresses_are_sent_to_as_they_are(mailing: World) -> None:
    for address in ("a?=b@shop.example", "a'b+c=d@shop.example", "o.o'o@shop.example"):
        await mailing.identity(address)
        await mailing.work()
        mail = mailing.mailbox.mails[-1]
        assert mail["To"].addresses[0].addr_spec == address
