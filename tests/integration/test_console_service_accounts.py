"""Service accounts in the console: their creation with one form, keys and policies."""

from __future__ import annotations

import re

import pytest

from registry.console.addresses import SERVICE_ACCOUNTS
from tests.integration.console_access import check_secret, hidden, read, refusal, see, send, told
from tests.integration.console_shop import Shop

_SECRET = re.compile(r"<span class=\"label\">Secret</span>\s*<div class=\"copyable\"><code>([^<]+)")


async def page_named(shop: Shop, name: str) -> str:
    """Return the address of a service account's page."""
    listed = await see(shop, SERVICE_ACCOUNTS)
    found = re.search(rf'href="({SERVICE_ACCOUNTS}/[^"]*)">{name}<', listed)
    assert found, listed
    return found[1]


async def test_one_form_makes_a_bot_and_shows_its_secret_once(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    bot = {"name": "ci", "description": "Builds <web>", "template": "pusher"}
    keyed = {"names": "web/*, api", "key": "on", "expires": "2999-01-01"}
    made = await send(shop, SERVICE_ACCOUNTS, **bot, **keyed)
    found = _SECRET.search(made.text)
    assert found, made.text
    secret = found[1]
    check_secret(made, secret)
    assert "docker login --username" in made.text

    page = await page_named(shop, "ci")
    shown = await see(shop, page)
    assert "Builds &lt;web&gt;" in shown
    assert "ci-pusher" in shown
    (key,) = (await read(shop, f"/v1{page.removeprefix('/console')}/access-keys"))["access_keys"]
    assert key["expires_at"] == "2999-01-01T00:00:00.000000Z"
    assert key["access_key_id"] in made.text
    (policy,) = (await read(shop, f"/v1/policies?attached_to={page.rpartition('/')[2]}"))[
        "policies"
    ]
    assert "repository/api" in str(policy["document"])
    for path in (SERVICE_ACCOUNTS, page, "/console/audit"):
        assert secret not in await see(shop, path)
    assert secret not in caplog.text

    again = await send(shop, SERVICE_ACCOUNTS, **bot, **keyed)
    assert again.status_code == 409
    assert _SECRET.search(again.text) is None
    assert 'value="web/*, api"' in again.text


async def test_a_form_that_is_sent_again_makes_no_second_key(shop: Shop) -> None:
    """A reload sends it again, as does a second click."""
    once = hidden(await see(shop, SERVICE_ACCOUNTS), "once")
    bot = {"name": "twice", "template": "", "key": "on", "once": once}
    first, second = [await send(shop, SERVICE_ACCOUNTS, **bot) for _ in range(2)]
    secret = _SECRET.search(first.text)
    assert secret
    check_secret(second, secret[1])
    page = await page_named(shop, "twice")
    api = f"/v1{page.removeprefix('/console')}/access-keys"
    assert len((await read(shop, api))["access_keys"]) == 1

    shown = await see(shop, page)
    again = {"description": "rotated", "once": hidden(shown, "once")}
    assert again["once"] != once
    secrets = [_SECRET.search((await send(shop, f"{page}/keys", **again)).text) for _ in range(2)]
    assert secrets[0]
    assert secrets[1]
    assert secrets[0][1] == secrets[1][1] != secret[1]
    assert len((await read(shop, api))["access_keys"]) == 2
    complaint = await refusal(shop, f"{page}/keys", 409, description="other", once=again["once"])
    assert complaint.startswith("This form was sent before with something else in it")
    forged = await refusal(shop, f"{page}/keys", 400, description="other", once="\u2603\r\n")
    assert "Idempotency-Key" in forged


async def test_forms_that_cannot_be_name_their_fault(shop: Shop) -> None:
    wrong = await refusal(shop, SERVICE_ACCOUNTS, 400, name="Not A Name")
    assert "Not A Name" in wrong or "name" in wrong.lower()
    await refusal(shop, SERVICE_ACCOUNTS, 400, name="a", template="reader", names="")
    await refusal(shop, SERVICE_ACCOUNTS, 400, name="a", template="no-such", names="web/*")
    await refusal(shop, SERVICE_ACCOUNTS, 400, name="a", key="on", expires="2001-01-01")
    await refusal(shop, SERVICE_ACCOUNTS, 400, name="a", key="on", expires="soon")
    assert ">a</a>" not in await see(shop, SERVICE_ACCOUNTS)
    await see(shop, f"{SERVICE_ACCOUNTS}/no-uuid", 404)


async def test_keys_are_rotated_and_deleted(shop: Shop) -> None:
    await told(shop, SERVICE_ACCOUNTS, name="rotated", template="")
    page = await page_named(shop, "rotated")
    api = f"/v1{page.removeprefix('/console')}/access-keys"
    assert "It has no key" in await see(shop, page)
    for description in ("old", "new"):
        made = await send(shop, f"{page}/keys", description=description)
        found = _SECRET.search(made.text)
        assert found
        check_secret(made, found[1])
        assert found[1] not in await see(shop, page)
    await refusal(shop, f"{page}/keys", 409)
    old, new = (await read(shop, api))["access_keys"]
    assert "inactive" in await told(shop, f"{page}/keys/{old['id']}/status", status="inactive")
    await refusal(shop, f"{page}/keys/{old['id']}/status", 400, status="gone")
    assert "The access key was saved." in await told(
        shop, f"{page}/keys/{new['id']}/end", expires="2999-02-03"
    )
    assert (await read(shop, api))["access_keys"][1]["expires_at"].startswith("2999-02-03")
    asked = await send(shop, f"{page}/keys/{old['id']}/delete")
    assert f"Delete {old['access_key_id']}?" in asked.text
    assert len((await read(shop, api))["access_keys"]) == 2
    await told(shop, f"{page}/keys/{old['id']}/delete", confirmed="yes")
    assert len((await read(shop, api))["access_keys"]) == 1


async def test_policies_come_and_go_and_then_the_program(shop: Shop) -> None:
    statement = {"effect": "allow", "actions": ["registry:*"], "resources": ["*"]}
    document = {"version": "1", "statements": [statement]}
    token = shop.served.acme.program_token
    policy = await shop.served.make(
        "/v1/policies", {"name": "everything", "document": document}, token=token
    )
    await told(shop, SERVICE_ACCOUNTS, name="passing")
    page = await page_named(shop, "passing")
    assert '<option value="everything">' in await see(shop, page)
    attached = await told(shop, f"{page}/policies", policy="everything")
    assert 'aria-label="Detach everything"' in attached
    assert '<option value="everything">' not in attached
    await refusal(shop, f"{page}/policies", 409, policy="everything")
    assert "no-such" in await refusal(shop, f"{page}/policies", 404, policy="no-such")
    detach = f"{page}/policies/{policy['id']}/detach"
    assert "Detach everything from passing?" in (await send(shop, detach)).text
    assert 'aria-label="Detach everything"' in await see(shop, page)
    detached = await told(shop, detach, confirmed="yes")
    assert 'aria-label="Detach everything"' not in detached
    saved = await told(shop, page, description="Off", status="suspended")
    assert "suspended" in saved
    assert "Delete passing?" in (await send(shop, f"{page}/delete")).text
    gone = await told(shop, f"{page}/delete", confirmed="yes")
    assert ">passing</a>" not in gone


async def test_what_is_not_allowed_is_said(shop: Shop) -> None:
    page = await page_named(shop, "program")
    async with shop.browser_that_may("iam:ListServiceAccounts", "iam:GetServiceAccount") as reader:
        assert (await reader.get(SERVICE_ACCOUNTS)).status_code == 200
        shown = (await reader.get(page)).text
        assert "You may not list its access keys." in shown
        assert "You may not list policies." in shown
        sent = await reader.post(f"{page}/keys", data={"csrf": "csrf"})
        assert (sent.status_code, "iam:CreateAccessKey" in sent.text) == (403, True)


async def test_a_field_that_is_too_short_is_told_in_words(shop: Shop) -> None:
    assert await refusal(shop, SERVICE_ACCOUNTS, 400, name="") == "Name: at least 1 character."
    unnamed = {"name": "unnamed", "template": "reader", "names": ""}
    assert await refusal(shop, SERVICE_ACCOUNTS, 400, **unnamed) == "Names: at least 1 entry."
