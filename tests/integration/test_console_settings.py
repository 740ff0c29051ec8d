"""The settings of a repository: its description, and whether everyone may pull."""

from __future__ import annotations

import re
from typing import Any

import pytest

from registry.console.page_request import PageRequest
from registry.console.pages.repositories import repository_settings
from registry.console.pages.repositories.repository_settings import (
    with_public_pull,
    without_public_pull,
)
from tests.integration.console_access import hidden
from tests.integration.console_shop import Shop

PARTNER = {"effect": "allow", "principals": ["globex"], "actions": ["registry:PullImage"]}
DENIAL = {"effect": "deny", "principals": ["globex"], "actions": ["registry:PushImage"]}
EVERYONE = {"effect": "allow", "principals": ["*"], "actions": ["registry:PullImage"]}


def policy(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"version": "1", "statements": list(statements)}


def test_a_policy_is_opened_and_closed_and_else_kept() -> None:
    assert with_public_pull(None) == policy(EVERYONE)
    assert with_public_pull(policy(PARTNER, DENIAL)) == policy(PARTNER, DENIAL, EVERYONE)
    assert without_public_pull(with_public_pull(policy(PARTNER, DENIAL))) == policy(PARTNER, DENIAL)
    both = {**EVERYONE, "principals": ["*", "globex"]}
    assert without_public_pull(policy(both)) == policy(PARTNER)
    assert without_public_pull(policy(EVERYONE)) is None
    assert without_public_pull(None) is None


async def test_a_policy_that_changes_meanwhile_is_not_overwritten(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what was saved since the page was drawn, nor what is in the same moment."""
    await shop.call("PUT", "/policy", policy(PARTNER))
    read_policy = repository_settings._read_policy

    async def meddled(page: PageRequest) -> dict[str, Any] | None:
        found = await read_policy(page)
        await shop.call("PUT", "/policy", policy(PARTNER, DENIAL))
        return found

    for path in ("/settings/public", "/settings/private"):
        revision = hidden((await shop.send(path)).text, "revision")
        with monkeypatch.context() as meddling:
            meddling.setattr(repository_settings, "_read_policy", meddled)
            refused = await shop.send(path, confirmed="yes", revision=revision)
        assert refused.status_code == 409
        assert "someone has changed the policy since" in refused.text.lower()
        kept = (await shop.call("GET", "/policy"))["policy"]["document"]["statements"]
        assert [each["effect"] for each in kept] == ["allow", "deny"]
    await shop.call("DELETE", "/policy")


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
