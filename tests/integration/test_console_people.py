"""The people of an organization in the console, and a person's own password."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from registry.console.addresses import MY_ACCOUNT, PEOPLE
from registry.console.sessions import COOKIE, ConsoleSession, CookieJar, Token
from tests.integration.console_access import check_secret, hidden, read, refusal, see, send, told
from tests.integration.console_shop import Shop, open_shop
from tests.integration.served_world import HOUR, URL

_SECRET = re.compile(r'label">(?:One-time password|Code)</span>\s*<div [^>]*><code>([^<]+)')


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("people") / "data") as shop:
        await sign_in(shop, shop.browser, shop.served.acme.person_token)
        yield shop


async def sign_in(shop: Shop, browser: httpx.AsyncClient, token: str, user_id: str = "1") -> None:
    """Let a browser act as a person, without a role."""
    end = shop.served.clock() + HOUR
    session = ConsoleSession(user_id, "a@example.org", "csrf", end, Token(token, end), "", None)
    sealed = CookieJar(shop.served.keyring, URL).seal(COOKIE, session)
    value = sealed.partition(";")[0].partition("=")[2]
    browser.cookies.delete(COOKIE)
    browser.cookies.set(COOKIE, value)


def secret_in(answer: httpx.Response) -> str:
    found = _SECRET.search(answer.text)
    assert found, answer.text
    check_secret(answer, found[1])
    return found[1]


async def test_an_owner_adds_a_person_and_manages_it(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    acme = shop.served.acme
    people = f"{PEOPLE}/{acme.organization_id}"
    moved = await shop.browser.get(PEOPLE)
    assert moved.headers["location"] == people
    secret = secret_in(await send(shop, f"{people}/users", email="new@example.org"))
    assert secret not in await see(shop, people)
    assert (await shop.browser.get(f"{people}/users")).headers["location"] == people
    assert secret not in caplog.text
    await refusal(shop, f"{people}/users", 409, email="new@example.org")
    await refusal(shop, f"{people}/users", 400, email="no address")

    found = re.search(r'href="([^"]*)">new@example.org<', await see(shop, people))
    assert found
    member = found[1]
    assert ">active<" in await see(shop, member)
    assert ">suspended<" in await told(shop, f"{member}/status", status="suspended")
    assert ">active<" in await told(shop, f"{member}/status", status="active")
    await refusal(shop, f"{member}/status", 400, status="gone")
    assert '<span class="mark">billing</span>' in await told(shop, f"{member}/role", role="billing")
    assert "Reset the password of new@example.org?" in (await send(shop, f"{member}/password")).text
    again = secret_in(await send(shop, f"{member}/password", confirmed="yes"))
    assert again != secret
    assert again not in await see(shop, member)
    assert "Delete new@example.org?" in (await send(shop, f"{member}/delete")).text
    assert ">new@example.org<" not in await told(shop, f"{member}/delete", confirmed="yes")


async def test_a_form_that_is_sent_again_makes_no_second_password_or_code(shop: Shop) -> None:
    people = f"{PEOPLE}/{shop.served.acme.organization_id}"
    form = {"email": "twice@example.org", "once": hidden(await see(shop, people), "once")}
    first, again = [secret_in(await send(shop, f"{people}/users", **form)) for _ in range(2)]
    assert first == again
    found = re.search(r'href="([^"]*)">twice@example.org<', await see(shop, people))
    assert found
    asked = (await send(shop, f"{found[1]}/password")).text
    form = {"confirmed": "yes", "once": hidden(asked, "once")}
    reset, again = [secret_in(await send(shop, f"{found[1]}/password", **form)) for _ in range(2)]
    assert first != reset == again
    form = {"email": "called@example.org", "role": "member", "once": form["once"]}
    first, again = [secret_in(await send(shop, f"{people}/invitations", **form)) for _ in range(2)]
    assert first == again


async def test_invitations_are_shown_once_and_revoked(shop: Shop) -> None:
    people = f"{PEOPLE}/{shop.served.acme.organization_id}"
    sent = await send(shop, f"{people}/invitations", email="guest@example.org", role="member")
    code = secret_in(sent)
    listed = await see(shop, people)
    assert code not in listed
    of_guest = listed[listed.index(">guest@example.org ") :]
    found = re.search(rf'action="({people}/invitations/[^"]*/delete)"', of_guest)
    assert found
    assert "guest@example.org" not in await told(shop, found[1])
    await refusal(shop, f"{people}/invitations", 400, email="guest@example.org", role="king")


async def test_a_member_sees_what_it_may_and_leaves_the_rest(shop: Shop) -> None:
    acme = shop.served.acme
    people = f"{PEOPLE}/{acme.organization_id}"
    person, token = await shop.served.add_person("plain")
    await shop.served.join(acme.organization_id, person.email, token, by=acme.person_token)
    page = f"{people}/members/{person.id}"
    assert "Remove from the organization" in await see(shop, page)
    try:
        await sign_in(shop, shop.browser, token, person.id)
        assert "Add a person" not in await see(shop, people)
        sent = await send(shop, f"{people}/users", email="x@example.org")
        assert (sent.status_code, _SECRET.search(sent.text)) == (403, None)
        await see(shop, f"{PEOPLE}/{shop.served.globex.organization_id}", 404)
    finally:
        await sign_in(shop, shop.browser, acme.person_token)
    assert f">{person.email}<" not in await told(shop, f"{page}/remove", confirmed="yes")


async def test_a_password_is_changed_and_never_shown(shop: Shop) -> None:
    assert "Current password" in await see(shop, MY_ACCOUNT)
    typed = {"current_password": "wrong current", "password": "a long new password 1"}
    differ = await refusal(shop, MY_ACCOUNT, 400, **typed, again="another")
    assert "in two ways" in differ
    sent = await send(shop, MY_ACCOUNT, **typed, again=typed["password"])
    assert sent.status_code == 400
    assert "The current password is wrong" in sent.text or "current password" in sent.text.lower()
    assert not any(value in sent.text for value in typed.values())
    assert (await read(shop, "/v1/policies"))["policies"]
