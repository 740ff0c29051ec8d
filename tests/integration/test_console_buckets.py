"""Buckets on the console: created, shown folder by folder, emptied and deleted."""

from __future__ import annotations

from urllib.parse import quote

from tests.integration.console_access import hidden
from tests.integration.console_shop import Shop

BUCKETS = "/console/services/buckets"


async def test_a_bucket_is_created_shown_emptied_and_deleted(shop: Shop) -> None:
    browser, token = shop.browser, shop.served.acme.program_token
    page = (await browser.get(BUCKETS)).text
    fields = {"csrf": "csrf", "once": hidden(page, "once"), "name": "photos"}
    made = await browser.post(BUCKETS, data=fields)
    assert made.status_code == 303, made.text
    assert str(made.headers["location"]).partition("?")[0] == f"{BUCKETS}/photos"
    again = await browser.post(BUCKETS, data=fields)
    assert again.headers["location"] == made.headers["location"]
    refused = await browser.post(BUCKETS, data={**fields, "once": "", "name": "Upper"})
    assert (refused.status_code, "3 to 63 of" in refused.text) == (400, True)
    path = f"{BUCKETS}/photos"
    assert "There is no object." in (await browser.get(path)).text
    for key in ("top", "2026/<cat>.jpg", "2026/07/dog.jpg", *(f"n{n:02}" for n in range(60))):
        put = f"/v1/buckets/photos/objects/{quote(key, safe='')}"
        assert (await shop.served.ask("PUT", put, b"bytes", token=token)).status_code == 200
    assert ">photos</a>" in (await browser.get(BUCKETS)).text
    shown = (await browser.get(path)).text
    assert "63 objects, 315 B." in shown
    assert f'href="{path}?prefix=2026%2F">2026/</a>' in shown
    assert ">top</a></th>" not in shown, "it is on the next page"
    following = shown.partition('rel="next" href="')[2].partition('"')[0]
    assert ">top</a></th>" in (await browser.get(following.replace("&amp;", "&"))).text
    folder = (await browser.get(f"{path}?prefix=2026%2F")).text
    assert "2026/&lt;cat&gt;.jpg</a></th>" in folder
    assert f'href="{path}?prefix=2026%2F07%2F"' in folder
    assert f'<a href="{path}">The folder above</a>' in folder
    one = {"csrf": "csrf", "key": "2026/<cat>.jpg"}
    asked = await browser.post(f"{path}/delete-object", data=one)
    assert 'Delete <span class="wraps">2026/&lt;cat&gt;.jpg</span>?' in asked.text
    answer = await browser.post(f"{path}/delete-object", data={**one, "confirmed": "yes"})
    assert answer.headers["location"].partition("&")[0] == f"{path}?prefix=2026%2F"
    assert "cat" not in (await browser.get(f"{path}?prefix=2026%2F")).text
    asked = await browser.post(f"{path}/delete", data={"csrf": "csrf"})
    assert "It has 62 objects: delete them first." in asked.text
    refused = await browser.post(f"{path}/delete", data={"csrf": "csrf", "confirmed": "yes"})
    assert (refused.status_code, "bucket has objects; delete them first" in refused.text) == (
        409,
        True,
    )
    await shop.served.make("/v1/buckets", {"name": "spare"}, token=token)
    answer = await browser.post(
        f"{BUCKETS}/spare/delete", data={"csrf": "csrf", "confirmed": "yes"}
    )
    assert "The bucket was deleted." in (await browser.get(answer.headers["location"])).text
    assert (await browser.get(f"{BUCKETS}/spare")).status_code == 404


async def test_files_go_up_and_down_with_the_rights_of_the_role(shop: Shop) -> None:
    browser, token = shop.browser, shop.served.acme.program_token
    await shop.served.make("/v1/buckets", {"name": "files"}, token=token)
    path, data = f"{BUCKETS}/files", bytes(range(256)) * 1000
    page = await browser.get(path)
    assert "data-upload" in page.text
    assert page.headers["content-security-policy"].endswith("; connect-src 'self'")
    assert "connect-src" not in (await browser.get(BUCKETS)).headers["content-security-policy"]
    query = "key=a%2Fb%20%C3%A9.html"
    up, down = f"{path}/upload?{query}", f"{path}/download?{query}"
    own = {"x-csrf": "csrf", "content-type": "text/html"}
    for headers in ({}, {"x-csrf": "other"}, {**own, "origin": "http://evil.example"}):
        assert (await browser.put(up, content=data, headers=headers)).status_code == 403
    assert (await browser.get(down)).status_code == 404
    put = await browser.put(up, content=data, headers=own)
    assert (put.status_code, put.json()["object"]["size"]) == (200, len(data))
    got = await browser.get(down)
    assert (got.status_code, got.content) == (200, data)
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''b%20%C3%A9.html"
    assert got.headers["content-security-policy"].startswith("sandbox;")
    got = await browser.get(down, headers={"range": "bytes=1-2"})
    assert (got.status_code, got.content) == (206, data[1:3])
    refused = await browser.put(f"{path}/upload?key={'k' * 1025}", content=b"", headers=own)
    assert refused.json()["error"]["params"]["field"] == "key"


async def test_an_upload_without_a_session_is_refused_in_words_and_a_download_is_not_cached(
    shop: Shop,
) -> None:
    browser, token = shop.browser, shop.served.acme.program_token
    await shop.served.make("/v1/buckets", {"name": "kept-files"}, token=token)
    path = f"{BUCKETS}/kept-files"
    put = {"cache-control": "public, max-age=9", "expires": "Thu, 01 Dec 2033 16:00:00 GMT"}
    stored = await shop.served.ask(
        "PUT", "/v1/buckets/kept-files/objects/a", b"data", token=token, headers=put
    )
    assert stored.status_code == 200, stored.text
    for method in ("GET", "HEAD"):
        got = await browser.request(method, f"{path}/download?key=a")
        assert (got.status_code, got.headers["content-length"]) == (200, "4")
        assert got.headers.get_list("cache-control") == ["no-store"]
        assert "expires" not in got.headers
    kept = dict(browser.cookies)
    browser.cookies.clear()
    own = {"x-csrf": "csrf"}
    refused = await browser.put(f"{path}/upload?key=a", content=b"new", headers=own)
    browser.cookies.update(kept)
    assert refused.status_code == 401, "a script would follow a redirect, and find a page"
    assert "session has ended" in refused.json()["error"]["message"]
