"""Addresses that mail may be sent from once the link of a mail to them is confirmed."""

from __future__ import annotations

from typing import Final

from tests.integration.mail_world import World

HOUR: Final = 3600
PAGE: Final = "/v1/identity-confirmations"


async def test_opening_the_link_changes_nothing_and_its_button_verifies(mailing: World) -> None:
    made = await mailing.identity("Ada@shop.example")
    assert (made["value"], made["status"], made.get("dkim")) == (
        "ada@shop.example",
        "pending",
        None,
    )
    await mailing.work()
    (mail,) = mailing.mailbox.mails
    assert (mail["To"], mail["From"]) == ("ada@shop.example", "platform@registry.test")
    token = mailing.link()
    shown = await mailing.served.ask("GET", f"{PAGE}?token={token}")
    assert (shown.status_code, token in shown.text) == (200, True)
    assert (await mailing.show(made))["status"] == "pending"
    done = await mailing.confirm(token)
    assert (done.status_code, "ada@shop.example" in done.text) == (200, True)
    seen = await mailing.show(made)
    assert (seen["status"], seen["verified_at"] is None) == ("verified", False)
    assert (await mailing.confirm(token)).status_code == 400  # once
    refused = await mailing.ask("POST", f"/{made['id']}/verify")
    assert (refused.status_code, refused.json()["error"]["params"]["reason"]) == (409, "verified")
    await mailing.work(after=100 * HOUR)
    assert len(mailing.mailbox.mails) == 1
    assert (await mailing.show(made))["status"] == "verified"


async def test_only_a_hash_of_the_token_is_stored(mailing: World) -> None:
    made = await mailing.identity("ada@shop.example")
    await mailing.work()
    row = await mailing.row(made)
    assert mailing.link() not in str(row)
    await mailing.confirm(mailing.link())
    assert (await mailing.row(made)).confirmation_hash is None


async def test_a_link_confirms_for_72_hours(mailing: World) -> None:
    made = await mailing.identity("ada@shop.example")
    await mailing.work()
    await mailing.work(after=72 * HOUR)
    assert (await mailing.confirm(mailing.link())).status_code == 400
    assert (await mailing.show(made))["status"] == "pending"
    again = await mailing.ask("POST", f"/{made['id']}/verify")
    assert again.status_code == 202
    await mailing.work()
    await mailing.work(after=72 * HOUR - 1)
    assert (await mailing.confirm(mailing.link())).status_code == 200


async def test_a_newer_link_takes_the_place_of_the_one_before(mailing: World) -> None:
    made = await mailing.identity("ada@shop.example")
    await mailing.work()
    old = mailing.link()
    await mailing.ask("POST", f"/{made['id']}/verify")
    await mailing.work()
    assert len({each["Message-ID"] for each in mailing.mailbox.mails}) == 2
    assert (await mailing.confirm(old)).status_code == 400
    assert (await mailing.confirm(mailing.link())).status_code == 200


async def test_any_other_token_is_refused(mailing: World) -> None:
    for token in ("", "x", "a" * 43, "%00", "ä"):
        assert (await mailing.confirm(token)).status_code == 400


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


async def test_the_audit_log_has_who_opened_a_link(mailing: World) -> None:
    made = await mailing.identity("ada@shop.example")
    await mailing.work()
    await mailing.confirm(mailing.link())
    path = "/v1/audit-events?action=email:ConfirmIdentity"
    found = (await mailing.served.ask("GET", path, token=mailing.token())).json()["events"]
    assert [each["resources"] for each in found] == [[made["crn"]]]


async def test_odd_addresses_are_sent_to_as_they_are(mailing: World) -> None:
    for address in ("a?=b@shop.example", "a'b+c=d@shop.example", "o.o'o@shop.example"):
        await mailing.identity(address)
        await mailing.work()
        mail = mailing.mailbox.mails[-1]
        assert mail["To"].addresses[0].addr_spec == address
