"""Settings and tags of a repository on the console: what moves only when asked twice."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from registry.console.page_request import PageRequest
from registry.console.pages.repositories import repository_settings
from registry.console.pages.repositories.repository_settings import (
    with_public_pull,
    without_public_pull,
)
from registry.metadata.images.tombstones import list_tombstones
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


async def test_a_move_back_to_a_deleted_image_leads_to_where_it_is_restored(shop: Shop) -> None:
    old, new = [(await shop.image(each, "moved"))["digest"] for each in ("older", "newer")]
    await shop.call("DELETE", f"/images/{old}")
    refused = await shop.send("/tags/moved", was=new, target=old)
    assert refused.status_code == 404
    assert f'href="{shop.address("/deleted")}">deleted images</a>' in refused.text
    history = re.sub(r"<[^>]*>", "", refused.text.partition('class="history"')[2])
    assert f"{new[:19]} from {old[:19]}" in history


async def test_what_a_run_has_deleted_is_restored_at_once(shop: Shop) -> None:
    made = [(await shop.image(f"run-{each}", f"run-{each}"))["digest"] for each in range(3)]
    other = (await shop.image("by hand", "by-hand"))["digest"]
    await shop.call("DELETE", f"/images/{other}")
    for digest in made:
        await shop.call("DELETE", f"/images/{digest}")
    run = "01977420-dd06-7a95-adf8-bae2bdf33f66"
    await shop.deleted_by(f"crn:registry:local:acme:lifecycle-run/{run}", made)

    asked = (await shop.send("/lifecycle/restore", run=run)).text
    assert "3 images of this run" in asked
    assert other not in asked
    told = await shop.told("/lifecycle/restore", run=run, confirmed="yes")
    assert "The images are back." in told
    for number, digest in enumerate(made):
        assert (await shop.call("GET", f"/tags/run-{number}"))["tag"]["digest"] == digest
    left = await shop.served.database.read(
        list_tombstones, shop.repository_id, shop.served.clock(), None, 10
    )
    assert {other, *made} & {each.digest for each in left} == {other}
    assert "Nothing that this run deleted" in (await shop.send("/lifecycle/restore", run=run)).text
    assert (await shop.send("/lifecycle/restore", run="x")).status_code == 400


async def test_many_tags_are_shown_by_fifties_in_their_order(shop: Shop) -> None:
    made = await shop.image("many", "many")
    for number in range(120):
        await shop.call("PUT", f"/tags/v1.{number}", {"digest": made["digest"]})

    def shown(page: str) -> list[str]:
        return re.findall(r'<a class="tag" href="[^"]*">(v1\.\d+)</a>', page)

    pages = [await shop.see("/tags?prefix=v1")]
    while found := re.search(r'rel="next" href="[^"?]*(\?[^"]*)"', pages[-1]):
        pages.append(await shop.see(f"/tags{html.unescape(found[1])}"))
    assert [len(shown(page)) for page in pages] == [50, 50, 20]
    assert [tag for page in pages for tag in shown(page)] == [f"v1.{n}" for n in range(120)]
    assert all("120 tags in all" in page for page in pages)
    assert "First page" in pages[1]
    recent = await shop.see("/tags?prefix=v1&sort=recent&from=50")
    assert shown(recent)[0] == "v1.69"
    for odd in ("-1", "x", "9" * 30, "\u0662"):
        assert (await shop.see(f"/tags?prefix=v1&from={odd}")).count('class="tag"') in (0, 50)
