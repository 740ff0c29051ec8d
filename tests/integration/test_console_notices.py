"""What pages say after a change, once, and the button that undoes it."""

from __future__ import annotations

import re

from registry.console.page_request import NOTICE_COOKIE
from registry.oci.media_types import OCI_INDEX
from tests.integration.console_shop import Shop


async def test_a_notice_is_shown_once(shop: Shop) -> None:
    await shop.image("once", "once")
    sent = await shop.send("/tags", tag="again", target="once")
    assert "?" not in sent.headers["location"]
    first = await shop.browser.get(sent.headers["location"])
    assert "The tag was created." in first.text
    assert NOTICE_COOKIE not in shop.browser.cookies
    again = await shop.browser.get(sent.headers["location"])
    assert "The tag was created." not in again.text
    asked = await shop.browser.get(f"{sent.headers['location']}?said=tag-deleted")
    assert "The tag was deleted" not in asked.text


async def test_a_restored_index_is_shown_not_a_child(shop: Shop) -> None:
    parts = [await shop.image(f"child-{number}") for number in range(2)]
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": parts}
    whole = await shop.manifest(index, "whole")
    for each in (whole, *parts):
        await shop.call("DELETE", f"/images/{each['digest']}")
    sent = await shop.send(f"/images/{whole['digest']}/restore")
    assert sent.headers["location"].endswith(f"@{whole['digest']}")
    assert "The image is back." in (await shop.browser.get(sent.headers["location"])).text


async def undo(shop: Shop, page: str) -> str:
    """Press the button of the notice, and return the page that follows."""
    path = re.search(r'<form method="post" action="([^"]*)">[^/]*/?[^/]*<button>Undo<', page)
    assert path, page
    sent = await shop.browser.post(path[1], data={"csrf": "csrf"})
    assert sent.status_code == 303, sent.text
    return (await shop.browser.get(sent.headers["location"], follow_redirects=True)).text


async def test_a_deletion_is_undone_by_the_button_of_its_notice(shop: Shop) -> None:
    made = await shop.image("gone", "gone", annotations={"a": "b"})
    page = await shop.told("/tags/gone/delete")
    assert "The tag is back." in await undo(shop, page)
    page = await shop.told(f"/images/{made['digest']}/delete")
    assert "The image is back." in await undo(shop, page)
    page = await shop.told("/delete")
    assert "The repository is back" in await undo(shop, page)
    assert "<button>Undo<" not in await shop.see("/deleted")
