"""The console asks before a change takes the rights of whoever makes it."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloudcore.errors import Conflict
from registry.console.control_plane import Refused
from registry.console.form_refusals import (
    refusal_of,
    takes_own_rights,
)
from tests.integration.console_access import read, see, send
from tests.integration.console_shop import Shop, open_shop


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path / "data") as shop:
        yield shop


def fields_of(page: str) -> dict[str, str]:
    """Return the hidden fields of the only form of the question."""
    form = page.partition("<main")[2]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    return {name: html.unescape(value) for name, value in found}


async def ask(shop: Shop, path: str, back: str, **fields: str) -> httpx.Response:
    """Send a form whose change takes the own rights; check the question, and answer it with yes."""
    asked = await send(shop, path, **fields)
    assert asked.status_code == 409, asked.text
    assert "Take your own rights?" in asked.text
    assert f'href="{back}">Leave it as it is' in asked.text
    assert f'action="{path}"' in asked.text
    sent = fields_of(asked.text)
    assert sent == {"csrf": "csrf", "own_rights": "lose", **fields}
    return await shop.browser.post(path, data=sent)


async def own(shop: Shop) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the service account that the browser acts as, and its only policy."""
    accounts = (await read(shop, "/v1/service-accounts"))["service_accounts"]
    (account,) = [each for each in accounts if each["name"] == "program"]
    (policy,) = (await read(shop, f"/v1/policies?attached_to={account['id']}"))["policies"]
    return account, policy


async def test_a_policy_is_detached_and_saved_once_that_is_confirmed(shop: Shop) -> None:
    account, policy = await own(shop)
    page = f"/console/service-accounts/{account['id']}"
    document = '{"version": "1",\r\n "statements": [\r\n  {"effect": "allow", "actions":'
    document += ' ["iam:Get*", "iam:List*"],\r\n   "resources": ["*"]}]}'
    # The page without the question's answer, and what is no form's, stays as it was.
    detach = f"{page}/policies/{policy['id']}/detach"
    refused = await send(shop, detach, confirmed="yes")
    assert refused.status_code == 409
    assert (await own(shop))[1] == policy
    spare = {"name": "spare", "document": policy["document"]}
    made = await shop.served.make("/v1/policies", spare, token=shop.served.acme.program_token)
    assert (await send(shop, f"{page}/policies", policy="spare")).status_code == 303
    assert (await send(shop, detach, confirmed="yes")).status_code == 303
    editor = f"/console/policies/{made['id']}"
    fields = {"document": document, "description": "Less.", "revision": "1"}
    saved = await ask(shop, editor, editor, **fields)
    assert saved.status_code == 303, saved.text
    assert "Revision 2" in await see(shop, editor)


async def test_a_key_is_deleted_and_its_account_suspended_once_that_is_confirmed(
    shop: Shop,
) -> None:
    account, policy = await own(shop)
    page = f"/console/service-accounts/{account['id']}"
    keys = (await read(shop, f"/v1/service-accounts/{account['id']}/access-keys"))["access_keys"]
    (key,) = keys
    for path, fields in (
        (page, {"description": "", "status": "suspended"}),
        (f"{page}/keys/{key['id']}/status", {"status": "inactive"}),
        (f"{page}/delete", {"confirmed": "yes"}),
        (f"{page}/policies/{policy['id']}/detach", {"confirmed": "yes"}),
    ):
        asked = await send(shop, path, **fields)
        assert (asked.status_code, "Take your own rights?" in asked.text) == (409, True), path
    assert (await own(shop))[0]["status"] == "active"
    gone = await ask(shop, f"{page}/keys/{key['id']}/delete", page, confirmed="yes")
    assert gone.status_code == 303
    assert (await shop.browser.get(page)).status_code == 303  # to the sign-in


def test_another_conflict_is_no_question() -> None:
    error = Refused(409, Conflict.__name__, "the policy is attached there", "id")
    assert not takes_own_rights(error)
    assert refusal_of(error).status == 409
