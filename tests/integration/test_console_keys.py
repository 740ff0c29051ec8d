"""Keys on the console, and the cards that bind the account and a repository to one."""

from __future__ import annotations

import re
from typing import Any

from tests.integration.console_access import hidden, read, send, told
from tests.integration.console_shop import Shop

KEYS = "/console/settings/keys"
SETTINGS = "/console/settings"


async def make(shop: Shop, name: str) -> str:
    """Create a key by the form; return the path of its page."""
    once = hidden((await shop.browser.get(KEYS)).text, "once")
    fields = {"name": name, "description": "Of <web>."}
    made = await send(shop, KEYS, once=once, **fields)
    assert made.status_code == 303, made.text
    again = await send(shop, KEYS, once=once, **fields)
    assert again.headers["location"] == made.headers["location"]
    return str(made.headers["location"])


async def record(shop: Shop, path: str) -> dict[str, Any]:
    """Return a key by the path of its page."""
    return dict((await read(shop, f"/v1/keys/{path.rpartition('/')[2]}"))["key"])


async def test_a_key_is_made_rotated_disabled_enabled_deleted_and_kept(shop: Shop) -> None:
    path = await make(shop, "life")
    assert "Of &lt;web&gt;." in (await shop.browser.get(path)).text
    assert "platform" in (await shop.browser.get(KEYS)).text
    refused = await send(shop, KEYS, name="Upper")
    assert (refused.status_code, "1 to 63 of" in refused.text) == (400, True)
    assert "new material" in await told(shop, f"{path}/rotate")
    assert (await record(shop, path))["current_version"] == 2
    assert "can be neither pulled nor pushed" in await told(shop, f"{path}/disable")
    refused = await send(shop, f"{path}/rotate")
    assert (refused.status_code, 'role="alert"' in refused.text) == (409, True)
    assert "The key is enabled." in await told(shop, f"{path}/enable")
    for days in ("6", "31", "x", ""):
        refused = await send(shop, f"{path}/delete", confirmed="yes", pending_window_days=days)
        assert (refused.status_code, "from 7 to 30" in refused.text) == (400, True)
    assert (await record(shop, path))["state"] == "enabled"
    pending = await told(shop, f"{path}/delete", confirmed="yes", pending_window_days="7")
    assert re.search(r"It is deleted <time [^>]+>in 7 days</time>; until then", pending)
    assert (await record(shop, path))["state"] == "pending_deletion"
    assert "The key stays." in await told(shop, f"{path}/cancel-deletion")
    assert (await record(shop, path))["state"] == "disabled"


async def test_a_deletion_names_what_it_would_shred(shop: Shop) -> None:
    path = await make(shop, "holder")
    assert "Saved." in await shop.told("/settings/encryption", kms_key="holder")
    image = await shop.image("sealed", "sealed")
    asked = (await send(shop, f"{path}/delete")).text
    assert "Delete holder?" in asked
    assert image["digest"] in asked
    assert re.search(r"Blobs that no other key opens</dt><dd>2,", asked)
    assert (await record(shop, path))["state"] == "enabled"
    assert "Saved." in await shop.told("/settings/encryption", kms_key="")


async def test_the_repository_and_the_account_are_bound_to_keys(shop: Shop) -> None:
    await make(shop, "team")
    assert "sealed under" in await shop.see("/settings")
    await shop.told("/settings/encryption", kms_key="team")
    assert "its own binding" in await shop.see("/settings")
    assert (await shop.call("GET", ""))["repository"]["encryption"]["kms_key"]["name"] == "team"
    for _ in range(2):  # the second has nothing to end
        await shop.told("/settings/encryption", kms_key="")
    seen = await shop.see("/settings")
    assert "(the account&#39;s default)" in seen
    assert "What was bound" in seen
    refused = await shop.send("/settings/encryption", kms_key="nobodys")
    assert (refused.status_code, "there is no such key" in refused.text.lower()) == (404, True)

    assert "Saved." in await told(shop, f"{SETTINGS}/encryption", kms_key="team")
    assert ">team</a> (the account&#39;s default)" in (await shop.browser.get(SETTINGS)).text
    refused = await send(shop, f"{SETTINGS}/encryption", kms_key="nobodys")
    assert refused.status_code == 404
    assert 'name="undelete_days"' in refused.text
    await told(shop, f"{SETTINGS}/encryption", kms_key="")
    assert "nothing is bound to another" in (await shop.browser.get(SETTINGS)).text
    assert "nothing is bound to another" in await shop.see("/settings")


async def test_a_disabled_key_is_told_on_the_card(shop: Shop) -> None:
    path = await make(shop, "sleeper")
    await shop.told("/settings/encryption", kms_key="sleeper")
    await told(shop, f"{path}/disable")
    assert "The key is disabled, or its deletion is pending" in await shop.see("/settings")
    await shop.told("/settings/encryption", kms_key="")


async def test_the_blobs_of_a_repository_are_moved_to_its_key(shop: Shop) -> None:
    await make(shop, "later")
    await shop.image("early")
    await shop.told("/settings/encryption", kms_key="later")
    seen = await shop.see("/settings")
    assert shop.address("/settings/rewrap") in seen
    assert "The last run" not in seen
    assert "A run is under way: 0 of ? blobs." in await shop.told("/settings/rewrap")
    (run,) = (await shop.call("GET", "/encryption-binding/rewrap/runs"))["runs"]
    await shop.told("/settings/rewrap")  # joins the run
    (again,) = (await shop.call("GET", "/encryption-binding/rewrap/runs"))["runs"]
    assert again["id"] == run["id"]
    await shop.told("/settings/encryption", kms_key="")


async def test_who_may_less_is_shown_less(shop: Shop) -> None:
    path = await make(shop, "watched")
    async with shop.browser_that_may("kms:DescribeKeys") as browser:
        listed = (await browser.get(KEYS)).text
        assert "watched" in listed
        assert "New key" not in listed
        shown = (await browser.get(path)).text
        assert "You may not read that" in shown
        for form in ("rotate", "disable", "delete"):
            assert f"{path}/{form}" not in shown
        refused = await browser.post(f"{path}/delete", data={"csrf": "csrf"})
        assert refused.status_code == 403
