"""Access on the console: what a person has, and the roles of an account."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from cloudcore.clock import uuid7
from cloudcore.identity.services.roles import put_platform_role
from registry.console.addresses import (
    ACCOUNT_ROLES,
    ACCOUNTS,
    CONTAINER_PASSWORDS,
    MY_ACCOUNT,
    PEOPLE,
)
from tests.integration.console_access import check_secret, hidden, read, refusal, see, send, told
from tests.integration.console_shop import Shop, browser_with, open_shop
from tests.integration.served_world import HOST
from tests.tenants import basic

_COPIED = re.compile(r'class="copyable"><code>([^<]+)')
_ROLE = re.compile(r'<option value="([^"]+)"[^>]*>acme as admin<')


async def exchange(shop: Shop, password: str) -> int:
    answer = await shop.served.ask("GET", "/v2/token", headers=basic(password))
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


def trust(*principals: str, action: str = "iam:AssumeRole") -> str:
    statement = {"effect": "allow", "principals": list(principals), "actions": [action]}
    return json.dumps({"version": "1", "statements": [statement]}, indent=2)


async def test_a_role_gets_the_policy_that_says_the_same_already(shop: Shop) -> None:
    """One of another name, and one left of a deleted role of this name; else a new one."""
    same = {"name": "all-of-team", "template": {"name": "pusher", "names": ["team/*", "api"]}}
    there = await shop.make("/v1/policies", same)
    fields = {"seconds": "3600", "trust_policy": trust("acme"), "template": "pusher"}

    async def attached(name: str, names: str) -> list[tuple[str, str]]:
        sent = await send(shop, ACCOUNT_ROLES, **fields, name=name, names=names)
        assert sent.status_code == 303, sent.text
        page = sent.headers["location"].partition("?")[0]
        path = f"/v1/policies?attached_to={page.rpartition('/')[2]}"
        policies = [(each["name"], each["id"]) for each in (await read(shop, path))["policies"]]
        await told(shop, f"{page}/delete", confirmed="yes")
        return policies

    assert await attached("team", "team/*, api") == [("all-of-team", there["id"])]
    first = await attached("team", "team/*")
    assert [name for name, _ in first] == ["team-pusher"]
    assert await attached("team", "team/*") == first
    copy = {"name": "a-copy", "template": {"name": "pusher", "names": ["team/*"]}}
    await shop.make("/v1/policies", copy)
    assert await attached("team", "team/*") == first  # its own name before another
    refused = await send(shop, ACCOUNT_ROLES, **fields, name="team", names="other/*")
    assert refused.status_code == 409  # the name is taken by a policy that says something else

    every = {"name": "everything", "template": {"name": "pusher", "names": ["*"]}}
    await shop.make("/v1/policies", every)
    none = await send(shop, ACCOUNT_ROLES, **fields, name="none", names=" ")
    assert none.status_code == 400  # no name is not every name


async def test_a_role_of_the_platform_is_shown_as_such_without_forms(shop: Shop) -> None:
    may = {"effect": "allow", "actions": ["queue:ListQueues"], "resources": ["*"]}
    policy = {"version": "1", "statements": [may]}
    of = shop.served.acme.account_id, "web", policy, uuid7, shop.served.clock()
    role_id = await shop.served.database.write(put_platform_role, "loadbalancer", *of)
    listed = await see(shop, ACCOUNT_ROLES)
    assert re.search(r"service/loadbalancer/web</a> <span class=\"mark\">the platform's<", listed)
    assert listed.count("the platform's") == 1
    assert (await see(shop, "/console/policies")).count("the platform's") == 1
    page = await see(shop, f"{ACCOUNT_ROLES}/{role_id}")
    assert "for its loadbalancer service" in page
    assert "Delete this role" not in page
    assert 'name="user"' not in page


async def test_one_is_told_that_it_is_the_own_role(shop: Shop) -> None:
    acme = shop.served.acme
    roles = (await read(shop, "/v1/roles"))["roles"]
    (own,) = [each for each in roles if each["name"] == "admin"]
    policies = (await read(shop, f"/v1/policies?attached_to={own['id']}"))["policies"]
    page = f"{ACCOUNT_ROLES}/{own['id']}"
    async with browser_with(
        shop.served, shop.app, acme.program_token, role_id=own["id"], user_id=acme.person.id
    ) as browser:
        for path, is_own in (
            (f"{page}/policies/{policies[0]['id']}/detach", True),
            (f"{page}/assignments/{acme.person.id}/delete", True),
            (f"{page}/assignments/{own['id']}/delete", False),
        ):
            asked = await browser.post(path, data={"csrf": "csrf"})
            assert asked.status_code == 200
            assert ("You act in this role now" in asked.text) is is_own, path
