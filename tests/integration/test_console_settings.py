"""The settings of a repository: its description, and whether everyone may pull."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from registry.console.pages.repository_settings import closed, opened
from registry.console.paths import HOME
from tests.integration.console_shop import NAME, Shop, open_shop

PARTNER = {"effect": "allow", "principals": ["globex"], "actions": ["registry:PullImage"]}
DENIAL = {"effect": "deny", "principals": ["globex"], "actions": ["registry:PushImage"]}
EVERYONE = {"effect": "allow", "principals": ["*"], "actions": ["registry:PullImage"]}


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("settings") / "data") as shop:
        yield shop


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"version": "1", "statements": list(statements)}


def test_a_policy_is_opened_and_closed_and_else_kept() -> None:
    assert opened(None) == policy(EVERYONE)
    assert opened(policy(PARTNER, DENIAL)) == policy(PARTNER, DENIAL, EVERYONE)
    assert closed(opened(policy(PARTNER, DENIAL))) == policy(PARTNER, DENIAL)
    both = {**EVERYONE, "principals": ["*", "globex"]}
    assert closed(policy(both)) == policy(PARTNER)
    assert closed(policy(EVERYONE)) is None
    assert closed(None) is None


async def test_a_description_is_changed_and_listed(shop: Shop) -> None:
    told = await shop.told("/settings", description="What <customers> see.", immutable="on")
    assert "The settings were saved." in told
    listed = (await shop.browser.get(HOME)).text
    assert "What &lt;customers&gt; see." in listed
    assert '<span class="mark">private</span>' in listed
    assert "immutable tags" in await shop.see()
    refused = await shop.send("/settings", description="x" * 1001)
    assert (refused.status_code, 'role="alert"' in refused.text) == (400, True)
    await shop.told("/settings", description="")
    assert (await shop.call("GET", ""))["repository"]["description"] is None


async def test_a_repository_is_public_only_after_a_warning(shop: Shop) -> None:
    await shop.call("PUT", "/policy", policy(PARTNER))
    asked = (await shop.send("/settings/public")).text
    assert "without a sign-in" in asked
    assert "globex" in asked
    assert (await shop.call("GET", ""))["repository"]["visibility"] == "shared"
    revision = re.search(r'name="revision" value="([0-9]+)"', asked)
    assert revision

    await shop.call("PUT", "/policy", policy(PARTNER, DENIAL))
    stale = await shop.send("/settings/public", confirmed="yes", revision=revision[1])
    assert stale.status_code == 409
    fresh = str(int(revision[1]) + 1)
    told = await shop.told("/settings/public", confirmed="yes", revision=fresh)
    assert "Everyone can pull from the repository now." in told
    document = (await shop.call("GET", "/policy"))["policy"]["document"]
    assert [each["effect"] for each in document["statements"]] == ["allow", "deny", "allow"]
    assert '<span class="mark has">public</span>' in (await shop.browser.get(HOME)).text
    pulled = await shop.served.ask("GET", f"/v2/token?scope=repository:{NAME}:pull")
    assert pulled.status_code == 200

    asked = (await shop.send("/settings/private")).text
    revision = re.search(r'name="revision" value="([0-9]+)"', asked)
    assert revision
    told = await shop.told("/settings/private", confirmed="yes", revision=revision[1])
    assert "Nobody can pull without a sign-in any more" in told
    document = (await shop.call("GET", "/policy"))["policy"]["document"]
    assert [each["effect"] for each in document["statements"]] == ["allow", "deny"]
    await shop.call("DELETE", "/policy")
    await shop.told("/settings/public", confirmed="yes", revision="")
    revision = re.search(
        r'name="revision" value="([0-9]+)"', (await shop.send("/settings/private")).text
    )
    assert revision
    await shop.told("/settings/private", confirmed="yes", revision=revision[1])
    assert (await shop.call("GET", ""))["repository"]["visibility"] == "private"


async def test_what_a_role_may_not_do_is_not_shown(shop: Shop) -> None:
    image = await shop.image("shown", "shown")
    reading = [f"registry:{each}" for each in ("DescribeRepositories", "DescribeImages")]
    paths = ("", "/tags", "/tags/shown", f"/images/{image['digest']}", "/settings", "/deleted")
    async with shop.browser_that_may(*reading) as reader:
        for path in paths:
            page = await reader.get(shop.address(path))
            assert page.status_code == 200
            forms = re.findall(r'<form [^>]*method="post"[^>]*action="([^"]*)"', page.text)
            assert set(forms) == {"/console/sign-out"}, path
            assert '<button class="primary">Save</button>' not in page.text
            assert "Delete the selected" not in page.text
        assert "Delete this image" in await shop.see(f"/images/{image['digest']}")
