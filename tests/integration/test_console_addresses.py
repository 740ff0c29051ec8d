"""Addresses of pages: a repository's own name, an image reference, and ids."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from registry.composition.families import FAMILIES
from registry.console.addresses import (
    HOME,
    OWN_WORDS,
    page_of_reference,
    parse_address,
    path_of_id,
    path_of_name,
    path_of_record,
)
from registry.console.app import routes_of
from tests.integration.console_shop import NAME, Shop, open_shop
from tests.integration.served_world import URL

DIGEST = f"sha256:{'0a' * 32}"
HTML = {"Accept": "text/html,*/*;q=0.8"}


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path_factory.mktemp("addresses") / "data") as shop:
        await shop.image("first", "1.0")
        yield shop


@pytest.mark.parametrize(
    ("path", "name", "routed"),
    [
        ("/console/acme/app", "acme/app", "/-"),
        ("/console/acme/web/app", "acme/web/app", "/-"),
        ("/console/acme/web/app:1.4", "acme/web/app", "/-/tags/1.4"),
        (f"/console/acme/app@{DIGEST}", "acme/app", f"/-/images/{DIGEST}"),
        (f"/console/acme/app:1@{DIGEST}/-/pins", "acme/app", f"/-/images/{DIGEST}/pins"),
        ("/console/acme/lifecycle/-/lifecycle/run", "acme/lifecycle", "/-/lifecycle/run"),
        ("/console/-/settings/events", "settings/events", "/-"),
        ("/console/-/acme/app:1/-/delete", "acme/app", "/-/tags/1/delete"),
    ],
)
def test_an_address_names_a_repository(path: str, name: str, routed: str) -> None:
    found = parse_address(path)
    assert found is not None
    assert (str(found.name), found.routed) == (name, HOME + routed)


@pytest.mark.parametrize(
    "path",
    [
        "/console/acme",
        "/console/Acme/app",
        "/console/acme//app",
        "/console/acme/app/",
        "/console/acme/a%2fb",
        "/console/settings/events",
        "/console/storage/collection",
        f"{HOME}/deleted",
        "/acme/app",
    ],
)
def test_other_addresses_name_none(path: str) -> None:
    assert parse_address(path) is None


def test_an_address_is_read_as_it_was_written() -> None:
    for handle, repository in (("acme", "web/app"), ("settings", "events")):
        there = path_of_name(handle, repository)
        for path, routed in (
            (there.base, ""),
            (there.tab("tags"), "/tags"),
            (there.tag("1.4", "delete"), "/tags/1.4/delete"),
            (there.image(DIGEST), f"/images/{DIGEST}"),
            (there.image(DIGEST, "pins/a/delete"), f"/images/{DIGEST}/pins/a/delete"),
        ):
            found = parse_address(path)
            assert found is not None
            assert found == ((handle, repository), f"{HOME}/-{routed}")
    assert path_of_id("1").image(DIGEST, "pins") == f"{HOME}/1/images/{DIGEST}/pins"
    foreign = {"id": "1", "name": "app", "uri": "registry.test:5000/globex/app"}
    assert path_of_record("acme", foreign).base == f"{HOME}/1"
    assert path_of_record("globex", foreign).base == "/console/globex/app"


def test_the_words_of_the_console_are_known() -> None:
    paths = [path for handler in routes_of(FAMILIES) for path in handler.paths]
    first = {path.split("/")[2] for path in paths if path.startswith("/console/")}
    assert first == OWN_WORDS


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("/acme/web/app", "/console/acme/web/app"),
        ("/acme/app:1.4", "/console/acme/app:1.4"),
        (f"/acme/app:1.4@{DIGEST}", f"/console/acme/app@{DIGEST}"),
        ("/storage/app", "/console/-/storage/app"),
        ("/v1/repositories", None),
        ("/v2/acme", None),
        ("/healthz/x", None),
        ("/console/acme", None),
        ("/acme", None),
        ("//acme/app", None),
        ("/Acme/app", None),
    ],
)
def test_a_reference_in_the_address_bar_has_a_page(path: str, page: str | None) -> None:
    assert page_of_reference(path) == page


async def test_a_browser_is_led_to_the_page_of_a_reference(shop: Shop) -> None:
    app = shop.served.app
    assert (await shop.served.ask("GET", f"/{NAME}:1.0")).status_code == 404  # no browser
    assert (await shop.served.ask("POST", f"/{NAME}:1.0", headers=HTML)).status_code == 404
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=URL, headers=HTML) as stranger:
        catalog = await stranger.get("/v1/repositories")
        assert catalog.status_code == 401
    led = await shop.browser.get(f"/{NAME}:1.0", headers=HTML)
    assert (led.status_code, led.headers["location"]) == (303, f"/console/{NAME}:1.0")
    shown = await shop.browser.get(led.headers["location"])
    assert (shown.status_code, ">History<" in shown.text) == (200, True)
    led = await shop.browser.get("/console-team/app:1", headers=HTML)  # a handle may begin so
    assert (led.status_code, led.headers["location"]) == (303, "/console/console-team/app:1")


async def test_an_id_leads_to_the_name(shop: Shop) -> None:
    before = f"{HOME}/{shop.repository_id}"
    digest = (await shop.call("GET", "/tags/1.0"))["tag"]["digest"]
    for old, new in (
        ("?tag_status=any", "?tag_status=any"),
        ("/tags?prefix=1", "/-/tags?prefix=1"),
        ("/tags/1.0", ":1.0"),
        (f"/images/{digest}", f"@{digest}"),
        ("/lifecycle/preview", "/-/lifecycle/preview"),
    ):
        answer = await shop.browser.get(before + old)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/console/{NAME}{new}")
        shown = await shop.browser.get(answer.headers["location"])
        assert shown.status_code in (200, 303)
    sent = await shop.browser.post(f"{before}/tags/1.0/delete", data={"csrf": "csrf"})
    assert sent.status_code == 303
    told = await shop.browser.get(sent.headers["location"], follow_redirects=True)
    assert "The tag was deleted" in told.text
    await shop.call("POST", "/tags/1.0/restore")


async def test_pages_name_their_repository_alone(shop: Shop) -> None:
    digest = (await shop.call("GET", "/tags/1.0"))["tag"]["digest"]
    tabs = ("", "/tags", "/lifecycle", "/storage", "/policy", "/deleted", f"/images/{digest}")
    for path in (*tabs, "/tags/1.0"):
        assert shop.repository_id not in await shop.see(path)
    assert f'href="/console/{NAME}"' in (await shop.browser.get(HOME)).text


async def test_names_of_others_and_of_nobody_are_told_apart(shop: Shop) -> None:
    other = await shop.browser.get("/console/globex/app")
    assert (other.status_code, "you act in acme" in other.text) == (404, True)
    missing = await shop.browser.get("/console/acme/missing")
    assert (missing.status_code, "There is no repository missing." in missing.text) == (404, True)
    assert f'href="{HOME}/deleted"' in missing.text
    gone = await shop.browser.get(f"/console/{NAME}@{DIGEST}")
    assert (gone.status_code, f'href="/console/{NAME}/-/deleted"' in gone.text) == (404, True)
    assert (await shop.browser.get(f"/console/{NAME}:a/b")).status_code == 404
