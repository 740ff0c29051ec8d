"""The settings of a repository: its description, and whether everyone may pull."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from registry.console.addresses import HOME
from registry.console.page_request import PageRequest
from registry.console.pages.repositories import repository_settings
from registry.console.pages.repositories.repository_settings import (
    with_public_pull,
    without_public_pull,
)
from tests.integration.console_access import hidden, send
from tests.integration.console_shop import NAME, Shop

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
    await shop.told("/settings/public", confirmed="yes", revision="0")
    revision = re.search(
        r'name="revision" value="([0-9]+)"', (await shop.send("/settings/private")).text
    )
    assert revision
    await shop.told("/settings/private", confirmed="yes", revision=revision[1])
    assert (await shop.call("GET", ""))["repository"]["visibility"] == "private"


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


async def test_the_editor_of_a_policy_shows_what_was_saved_since(shop: Shop) -> None:
    await shop.call("PUT", "/policy", policy(DENIAL))
    await shop.call("DELETE", "/policy")
    drawn = hidden(await shop.see("/policy"), "revision")
    assert drawn == "0"
    await shop.call("PUT", "/policy", policy(DENIAL))
    mine = json.dumps(policy(PARTNER))
    for _ in range(2):  # as long as it is not looked at
        refused = await shop.send("/policy", document=mine, revision=drawn)
        assert refused.status_code == 409
    assert "This has changed since you opened the page" in refused.text
    assert html.escape(mine, quote=True).replace("&quot;", "&#34;") in refused.text
    assert "What is saved now" in refused.text
    assert "registry:PushImage" in refused.text
    assert "globex" in str((await shop.call("GET", "/policy"))["policy"]["document"])
    seen = hidden(refused.text, "revision")
    await shop.told("/policy", document=mine, revision=seen)
    kept = (await shop.call("GET", "/policy"))["policy"]
    assert [each["effect"] for each in kept["document"]["statements"]] == ["allow"]
    unread = await shop.send("/policy", document="[", revision=seen)
    path = f"/v1/repositories/{shop.repository_id}/policy?revision=0"
    refused = await shop.served.ask("DELETE", path, token=shop.served.acme.program_token)
    assert (refused.status_code, refused.json()["error"]["params"]) == (
        409,
        {"revision": int(seen) + 1},
    )
    await shop.call("DELETE", f"/policy?revision={int(seen) + 1}")
    gone = await shop.send("/policy", document=mine, revision=seen)
    assert (gone.status_code, "Nothing: it was deleted." in gone.text) == (409, True)
    await shop.call("PUT", "/policy?revision=0", policy(PARTNER))
    assert hidden(unread.text, "revision") == seen  # what it was drawn from, not what is there now
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


async def test_a_form_that_names_no_topic_says_so(shop: Shop) -> None:
    """The topic of an event rule is written by hand: the form comes again, with the reason."""
    form = {"topic": "absent", "registry.*": "on"}
    said = await send(shop, "/console/settings/events", **form)
    assert said.status_code == 404
    assert re.search('role="alert"[^<]*>There is no such topic; create it first.<', said.text)
    assert 'name="registry.*"' in said.text
