"""The pages of mirrors: made, tested, changed and deleted in a browser."""

from __future__ import annotations

from registry.console.pages.repositories.mirrors import mirror_fields
from tests.integration.console_shop import Shop

MIRRORS = "/console/settings/mirrors"
SECRET = "canary-0123456789"


async def test_a_mirror_from_its_making_to_its_end(shop: Shop) -> None:
    browser = shop.browser

    async def send(path: str, **fields: str) -> str:
        answer = await browser.post(path, data={"csrf": "csrf", **fields})
        assert answer.status_code == 303, answer.text
        return answer.headers["location"].partition("?")[0]

    made = {
        "prefix": "docker-hub",
        "upstream_url": "https://docker.io",
        "username": "robot",
        "secret": SECRET,
        "tag_ttl_seconds": "600",
        "max_bytes": "",
    }
    path = await send(MIRRORS, **made)
    page = (await browser.get(path)).text
    assert "https://registry-1.docker.io" in page
    assert "acme/docker-hub/" in page
    assert 'value="600"' in page
    assert 'value="robot"' in page
    assert "it does not say" in page
    assert 'href="' + path + '">docker-hub</a>' in (await browser.get(MIRRORS)).text

    changed = {key: made[key] for key in ("upstream_url", "username")}
    await send(path, **changed, keep_unpulled_days="30", disabled="on")
    page = (await browser.get(path)).text
    assert '<span class="mark has">disabled</span>' in page
    assert 'name="keep_unpulled_days" maxlength="4" value="30"' in page
    moved = {"csrf": "csrf", "upstream_url": "https://quay.io"}
    refused = await browser.post(path, data=moved)
    assert refused.status_code == 400
    assert "give its credential again" in refused.text
    wrong = await browser.post(path, data={**moved, "max_bytes": "1 GB"})
    assert wrong.status_code == 400
    assert "whole numbers" in wrong.text
    for each in (page, refused.text, wrong.text):
        assert SECRET not in each
    await send(path, **moved, no_credential="on")
    assert "It has none." in (await browser.get(path)).text

    assert await send(f"{path}/delete") == MIRRORS
    assert (await browser.get(path)).status_code == 404
    assert path not in (await browser.get(MIRRORS)).text


async def test_a_test_that_fails_is_shown_on_the_page(shop: Shop) -> None:
    token = shop.served.acme.program_token
    body = {"prefix": "nowhere", "upstream_url": "https://registry.invalid"}
    rule = await shop.served.make("/v1/pull-through-cache-rules", body, token=token)
    path = f"{MIRRORS}/{rule['id']}"
    probed = await shop.browser.post(f"{path}/test", data={"csrf": "csrf", "image": "app:1"})
    assert probed.status_code == 200
    assert '<span class="mark has">failed</span>' in probed.text
    assert 'value="app:1"' in probed.text
    wrong = await shop.browser.post(f"{path}/test", data={"csrf": "csrf", "image": "APP"})
    assert (wrong.status_code, 'role="alert"' in wrong.text) == (400, True)


async def test_who_may_only_look_sees_no_forms(shop: Shop) -> None:
    token = shop.served.acme.program_token
    body = {"prefix": "seen", "upstream_url": "https://registry.invalid"}
    rule = await shop.served.make("/v1/pull-through-cache-rules", body, token=token)
    async with shop.browser_that_may("registry:DescribePullThroughCacheRules") as browser:
        for path in (MIRRORS, f"{MIRRORS}/{rule['id']}"):
            page = await browser.get(path)
            assert page.status_code == 200
            assert "seen" in page.text
            assert 'method="post" action="/console/settings' not in page.text
            assert 'name="upstream_url"' not in page.text


def test_a_secret_that_was_not_written_is_kept() -> None:
    form = {"upstream_url": " https://quay.io ", "username": "robot", "secret": ""}
    assert mirror_fields(form) == {
        "upstream_url": "https://quay.io",
        "upstream_prefix": "",
        "keep_unpulled_days": None,
        "max_bytes": None,
    }
    assert mirror_fields({"username": "robot", "secret": "x"})["credential"] == {
        "username": "robot",
        "secret": "x",
    }
