"""A person's passwords for container clients, and their accounts, in the console."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from registry.console.addresses import ACCOUNTS, CONTAINER_PASSWORDS, MY_ACCOUNT, PEOPLE
from tests.integration.console_access import check_secret, hidden, refusal, see, send, told
from tests.integration.console_shop import Shop, open_shop
from tests.integration.served_world import HOST

_COPIED = re.compile(r'class="copyable"><code>([^<]+)')
_ROLE = re.compile(r'<option value="([^"]+)"[^>]*>acme as admin<')


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path / "data") as shop:
        yield shop


async def exchange(shop: Shop, password: str) -> int:
    basic = httpx.BasicAuth("token", password)._auth_header
    answer = await shop.served.ask("GET", "/v2/token", headers={"Authorization": basic})
    return answer.status_code


async def test_docker_is_logged_in_from_my_account(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    page = await see(shop, MY_ACCOUNT)
    found = _ROLE.search(page)
    assert found
    form = {"name": "desktop", "role": found[1], "once": hidden(page, "once")}
    answer = await send(shop, CONTAINER_PASSWORDS, **form)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    command, password, *_ = map(html.unescape, _COPIED.findall(answer.text))
    assert command == f"docker login --username token {HOST}"
    check_secret(answer, password)
    assert await exchange(shop, password) == 200
    assert password not in caplog.text

    # The form sent again shows the same; another of the name is refused beside it.
    again = await send(shop, CONTAINER_PASSWORDS, **form)
    assert password in again.text
    taken = await refusal(shop, CONTAINER_PASSWORDS, 409, name="desktop", role=found[1])
    assert "You have a container password of this name" in taken
    assert (await shop.browser.get(CONTAINER_PASSWORDS)).headers["location"] == MY_ACCOUNT

    page = await see(shop, MY_ACCOUNT)
    assert password not in page
    revoke = re.search(
        rf'action="({CONTAINER_PASSWORDS}/[^"]+)">(?:(?!</form>).)*Revoke desktop', page, re.DOTALL
    )
    assert revoke
    assert "The password was revoked" in await told(shop, revoke[1])
    assert await exchange(shop, password) == 401


async def test_the_panel_of_a_repository_leads_to_the_form_with_its_role(shop: Shop) -> None:
    page = await see(shop, shop.address(""))
    found = re.search(rf'href="({MY_ACCOUNT}\?role=[^"#]+)#docker"', page)
    assert found
    roles = await shop.served.ask("GET", "/v1/users/me/roles", token=shop.served.acme.person_token)
    for role in roles.json()["roles"]:
        page = await see(shop, f"{MY_ACCOUNT}?role={role['id']}")
        assert f'<option value="{role["id"]}" selected>' in page


@pytest.mark.parametrize(("founders", "forms"), [("nobody", 0), ("owners", 1)])
async def test_the_form_is_there_where_the_operator_lets_owners_found(
    tmp_path: Path, founders: str, forms: int
) -> None:
    async with open_shop(tmp_path / "data", founders=founders) as shop:
        page = await see(shop, ACCOUNTS)
        assert page.count(f'<form method="post" action="{ACCOUNTS}">') == forms
        # Of the personal organization, no account may be founded.
        assert page.count("<option") == forms


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
