"""Identity providers in the console, the groups of roles, and the log of an organization."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from registry.console.addresses import ACCOUNT_ROLES, AUDIT, PEOPLE
from registry.console.sessions import COOKIE, Acting, ConsoleSession, CookieJar, Token
from tests.integration.console_access import read, refusal, see, send, told
from tests.integration.console_shop import Shop, open_shop
from tests.integration.served_world import HOST, HOUR, URL

SECRET = "a secret of the client"
FIELDS = {
    "name": "Acme Login",
    "issuer": "https://login.acme.example",
    "client_id": "entrepot",
    "client_secret": SECRET,
    "email_domains": "acme.example, acme.test",
    "creates_people": "on",
    "scopes": "email groups",
    "groups_claim": "groups",
    "email_verified_claim": "email_verified",
    "session_hours": "168",
}


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("providers") / "data") as shop:
        sign_in(shop, shop.served.acme.person_token)
        for each in await rows_of(shop):  # the tenant has one of each thing
            await told(shop, f"{providers_of(shop)}/{each['id']}/delete", confirmed="yes")
        yield shop


def sign_in(shop: Shop, person_token: str) -> None:
    """Let the browser act as a person, in the rights of the account's program."""
    end = shop.served.clock() + HOUR
    acme = shop.served.acme
    acting = Acting("1", "admin", acme.account_id, "acme", Token(acme.program_token, end))
    person = Token(person_token, end)
    session = ConsoleSession("1", "a@example.org", "csrf", end, person, "", acting)
    sealed = CookieJar(shop.served.keyring, URL).seal(COOKIE, session)
    value = sealed.partition(";")[0].partition("=")[2]
    shop.browser.cookies.delete(COOKIE)
    shop.browser.cookies.set(COOKIE, value, domain=HOST, path="/console")


def providers_of(shop: Shop) -> str:
    return f"{PEOPLE}/{shop.served.acme.organization_id}/identity-providers"


async def rows_of(shop: Shop) -> list[dict[str, Any]]:
    """Return the identity providers as `/v1` has them."""
    path = f"/v1/organizations/{shop.served.acme.organization_id}/identity-providers"
    answer = await shop.served.ask("GET", path, token=shop.served.acme.person_token)
    found: list[dict[str, Any]] = answer.json()["identity_providers"]
    return found


async def test_an_owner_adds_changes_and_deletes_a_provider(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    all_of_them = providers_of(shop)
    people = await see(shop, f"{PEOPLE}/{shop.served.acme.organization_id}")
    assert f'href="{all_of_them}"' in people
    assert "There is none." in await see(shop, all_of_them)
    sent = await send(shop, all_of_them, **FIELDS)
    assert sent.status_code == 303, sent.text
    page = sent.headers["location"]
    shown = await see(shop, page)
    (provider,) = await rows_of(shop)
    assert f"<code>{provider['redirect_uri']}</code>" in shown
    assert 'data-copy hidden aria-label="Copy: Redirect URI"' in shown
    assert provider["email_domains"] == ["acme.example", "acme.test"]
    assert (provider["scopes"], provider["creates_people"]) == (
        ["openid", "email", "groups"],
        True,
    )
    assert f'href="{page}">Acme Login<' in await see(shop, all_of_them)

    fewer = {"name": "Login", "email_verified_claim": "xms_edov", "inactive": "on"}
    await refusal(shop, page, 400, **fewer)
    fewer["session_hours"] = "12"
    kept = await told(shop, page, **fewer)
    assert ">inactive<" in kept
    assert "it keeps the one it has" in kept
    assert "It has none." in await told(shop, page, **fewer, no_secret="yes")
    assert "it keeps the one it has" in await told(shop, page, **fewer, client_secret=SECRET)
    (provider,) = await rows_of(shop)
    assert (provider["name"], provider["status"], provider["email_verified_claim"]) == (
        "Login",
        "inactive",
        "xms_edov",
    )
    assert (provider["email_domains"], provider["creates_people"]) == ([], False)
    assert provider["session_hours"] == 12
    for text in (shown, kept, await see(shop, all_of_them), caplog.text):
        assert SECRET not in text

    assert "Delete the identity provider Login?" in (await send(shop, f"{page}/delete")).text
    assert "There is none." in await told(shop, f"{page}/delete", confirmed="yes")
    await see(shop, page, 404)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"issuer": "http://login.acme.example"}, "issuer"),
        ({"name": ""}, "name"),
        ({"email_domains": "acme.example no_domain"}, "email_domains"),
        ({"scopes": 'a"b'}, "scopes"),
        ({"session_hours": "a week"}, "session_hours"),
        ({"session_hours": "721"}, "session_hours"),
    ],
)
async def test_a_form_that_cannot_be_keeps_all_but_the_secret(
    shop: Shop, change: dict[str, str], field: str
) -> None:
    sent = await send(shop, providers_of(shop), **{**FIELDS, **change})
    assert sent.status_code == 400, sent.text
    assert 'role="alert" id="refusal"' in sent.text
    found = re.search(rf'<input id="{field}"[^>]*>', sent.text)
    assert found
    assert 'aria-invalid="true"' in found[0]
    assert 'value="entrepot"' in sent.text
    assert SECRET not in sent.text


async def test_only_owners_see_providers_and_logs(shop: Shop) -> None:
    acme = shop.served.acme
    person, token = await shop.served.add_person("no-owner")
    await shop.served.join(acme.organization_id, person.email, token, by=acme.person_token)
    people = f"{PEOPLE}/{acme.organization_id}"
    try:
        sign_in(shop, token)
        shown = await see(shop, people)
        assert "identity-providers" not in shown
        assert f"{people}/audit" not in shown
        assert f"{people}/audit" not in await see(shop, AUDIT)
        await see(shop, providers_of(shop), 403)
        assert (await send(shop, providers_of(shop), **FIELDS)).status_code == 403
        await see(shop, f"{people}/audit", 403)
        await see(shop, f"{PEOPLE}/{shop.served.globex.organization_id}/audit", 404)
        role = f"{ACCOUNT_ROLES}/{acme.ids['/v1/roles/{}']}"
        assert "Id of the identity provider" in await see(shop, role)
    finally:
        sign_in(shop, acme.person_token)


async def test_pages_call_as_often_whatever_they_list(shop: Shop) -> None:
    role = f"{ACCOUNT_ROLES}/{shop.served.acme.ids['/v1/roles/{}']}"
    log = f"{PEOPLE}/{shop.served.acme.organization_id}/audit"

    async def costs() -> list[int]:
        found = []
        for path in (providers_of(shop), role, log):
            shop.calls.clear()
            await see(shop, path)
            found.append(len(shop.calls))
        return found

    before = await costs()
    made = [await send(shop, providers_of(shop), **{**FIELDS, "name": name}) for name in "abc"]
    for each in made:
        given = {"identity_provider": each.headers["location"].rpartition("/")[2], "group": "x"}
        await told(shop, f"{role}/groups", **given)
    # What the role may do, on each page. The providers. The role, its people, its groups, the
    # account and its organization's providers, the policies it has and the others. The events,
    # and the organizations.
    assert (await costs(), before) == ([2, 8, 3], [2, 8, 3])
    for each in made:
        await told(shop, f"{each.headers['location']}/delete", confirmed="yes")


async def test_an_owner_in_a_role_sees_who_is_suspended(shop: Shop) -> None:
    people = f"{PEOPLE}/{shop.served.acme.organization_id}"
    await send(shop, f"{people}/users", email="leaving@example.org")
    row = re.compile(r'href="([^"]*)">leaving@example.org</a>(.*?)</tr>', re.DOTALL)
    ((page, before),) = row.findall(await see(shop, people))
    assert '<span class="mark">active</span>' in before
    await told(shop, f"{page}/status", status="suspended")
    ((_, after),) = row.findall(await see(shop, people))
    assert '<span class="mark has">suspended</span>' in after
    assert "leaving@" not in await told(shop, f"{page}/delete", confirmed="yes")


async def test_a_role_is_given_to_a_group_and_taken(shop: Shop) -> None:
    role_id = shop.served.acme.ids["/v1/roles/{}"]
    role = f"{ACCOUNT_ROLES}/{role_id}"
    assert "There is no identity provider yet" in await see(shop, role)
    made = await send(shop, providers_of(shop), **FIELDS)
    provider = made.headers["location"].rpartition("/")[2]
    assert f'<option value="{provider}">Acme Login</option>' in await see(shop, role)
    given = {"identity_provider": provider, "group": "platform <team>"}
    shown = await told(shop, f"{role}/groups", **given)
    assert "platform &lt;team&gt;" in shown
    assert "at Acme Login, since" in shown
    assert "is assigned to this group" in await refusal(shop, f"{role}/groups", 409, **given)
    await refusal(shop, f"{role}/groups", 400, **{**given, "identity_provider": "x"})
    crn = f"crn:iam::{shop.served.acme.organization_id}:identity-provider/{provider}"
    assert crn not in shown
    for group in "xy":  # the second finds that the provider is trusted
        trusted = await told(shop, f"{role}/groups", **{**given, "group": group}, trust="on")
        assert trusted.count(crn) == 1
    for row in (await read(shop, f"/v1/roles/{role_id}/group-assignments"))["group_assignments"]:
        if row["group"] in "xy":
            await told(shop, f"{role}/groups/{row['id']}/delete", confirmed="yes")
    api = f"/v1/roles/{role_id}/group-assignments"
    (row,) = (await read(shop, api))["group_assignments"]
    assert row["identity_provider"] == provider
    assert "platform &lt;team&gt;" not in await told(
        shop, f"{role}/groups/{row['id']}/delete", confirmed="yes"
    )
    assert (await read(shop, api))["group_assignments"] == []
    await told(shop, f"{made.headers['location']}/delete", confirmed="yes")


async def test_an_owner_reads_the_organizations_log(shop: Shop) -> None:
    made = await send(shop, providers_of(shop), **FIELDS)
    await told(shop, f"{made.headers['location']}/delete", confirmed="yes")
    log = f"{PEOPLE}/{shop.served.acme.organization_id}/audit"
    of_account = await see(shop, AUDIT)
    assert f'href="{log}"' in of_account
    assert "iam:CreateIdentityProvider" not in of_account
    shown = await see(shop, f"{log}?action=iam:CreateIdentityProvider")
    assert "iam:CreateIdentityProvider" in shown
    assert f'href="{log}" aria-current="page"' in shown
    assert SECRET not in shown
    await see(shop, f"{log}?since=never", 400)


async def test_an_owner_whose_role_may_not_read_the_account_reads_the_organization(
    shop: Shop,
) -> None:
    acme = shop.served.acme
    people = f"{PEOPLE}/{acme.organization_id}"
    may = ("registry:DescribeRepositories",)
    async with shop.browser_that_may(*may, person_token=acme.person_token) as browser:
        assert f'href="{people}/audit"' in (await browser.get(people)).text
        shown = await browser.get(f"{people}/audit")
        assert (shown.status_code, "iam:" in shown.text) == (200, True)
        assert 'href="/console/audit"' not in shown.text


async def test_a_log_goes_on_in_its_own_pages(shop: Shop) -> None:
    acme = shop.served.acme
    made = await shop.served.ask(
        "GET",
        f"/v1/audit-events?organization_id={acme.organization_id}&limit=1",
        token=acme.person_token,
    )
    marker = made.json()["meta"]["marker"]
    log = f"{PEOPLE}/{acme.organization_id}/audit"
    older = await see(shop, f"{log}?marker={marker}")
    assert f'<a href="{log}">Newest</a>' in older
