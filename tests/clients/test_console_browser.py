"""The console as people use it: by mouse, by keyboard, on a phone, without script."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.clients.console_pages import DESKTOP, PHONE, Watched, chromium, watched
from tests.clients.console_world import World, serve_world
from tests.entrepot import ADMIN, PASSWORD

pytestmark = pytest.mark.client("chromium")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serve_world(tmp_path_factory.mktemp("console") / "data") as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def title(window: Watched, text: str) -> None:
    expect(window.page.locator("h1")).to_have_text(text)


def press(window: Watched, name: str) -> None:
    window.page.get_by_role("button", name=name, exact=True).click()


def pages_of(world: World) -> list[str]:
    base = f"/console/repositories/{world.frontend}"
    parts = ("", "/tags", "/tags/latest", "/lifecycle", "/storage", "/policy", "/deleted")
    return [
        "/console/repositories",
        "/console/repositories?prefix=shop",
        "/console/repositories/deleted",
        "/console/storage",
        "/console/roles",
        "/console/signed-out",
        *(base + part for part in parts),
        f"{base}?tag_status=any",
        f"/console/repositories/{world.api}/deleted",
        f"/console/repositories/{world.api}/tags/passing",
        f"{base}/images/{world.index}",
    ]


def test_a_person_finds_moves_tries_deletes_restores(world: World, browser: Browser) -> None:
    with watched(browser, world, **DESKTOP) as window:
        page = window.page
        window.sign_in()
        title(window, "Repositories")
        page.fill("#prefix", "shop/fr")
        press(window, "Search")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="shop/frontend").click()
        title(window, "shop/frontend")
        page.fill("#prefix", "1.4")
        press(window, "Search")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.locator("tbody th a").click()
        title(window, "frontend:1.4")
        expect(page.locator("section", has_text="Platforms").first).to_contain_text("linux/arm64")
        attached = page.locator(".tree > li", has_text="SBOM")
        expect(attached.locator(".tree")).to_contain_text("Signature")
        page.locator("section", has=page.locator("#platforms")).locator("tbody a").first.click()
        expect(page.locator("#layers + .bar rect")).to_have_count(4)
        expect(page.locator("section", has=page.locator("#layers"))).to_contain_text("nodejs tini")

        window.open(f"/console/repositories/{world.frontend}/images/{world.older}")
        page.fill("#tag", "latest")
        press(window, "Point here")
        expect(page.locator(".said")).to_have_text("The tag was moved.")
        moved = page.locator(".history li").first
        expect(moved).to_contain_text("moved to")
        expect(moved).to_contain_text("by admin (role)")
        page.fill("#target", "1.4")
        press(window, "Move")
        expect(page.locator(".history li")).to_have_count(3)

        page.get_by_role("link", name="shop/frontend").click()
        page.get_by_role("link", name="Lifecycle").click()
        page.fill("#untagged_days", "1")
        page.fill("#keep_last", "2")
        page.get_by_role("button", name="Preview").first.click()
        found = page.locator("#result")
        expect(found.locator(".figures li").first).to_have_text("6 of 18 images would go")
        expect(found).to_contain_text("1.1")
        press(window, "Save as the policy")
        expect(page.locator(".said")).to_have_text("The policy was saved.")
        press(window, "Delete the policy")
        expect(page.locator(".said")).to_have_text("The policy was deleted.")

        window.open(f"/console/repositories/{world.frontend}/images/{world.older}")
        page.get_by_text("Delete this image…").click()
        press(window, "Delete image")
        deleted = page.locator("tbody tr", has_text=world.older[:19])
        expect(deleted).to_contain_text("1.3")
        expect(deleted).to_contain_text("by admin (role)")
        expect(deleted).to_contain_text("in 7 days")
        deleted.get_by_role("button").click()
        title(window, "frontend:1.3")
        window.check()

        cookies = page.context.cookies()
        page.locator(".account summary").click()
        press(window, "Sign out")
        title(window, "Signed out")
        assert [each["name"] for each in page.context.cookies(world.url + "/console")] == []
        page.context.add_cookies(  # whoever kept a copy has nothing
            [
                {key: each[key] for key in ("name", "value", "domain", "path")}  # type: ignore[misc]
                for each in cookies
                if each["path"] == "/console"
            ]
        )
        window.open("/console/repositories")
        title(window, "Sign in")
        window.check()


def test_a_repository_comes_goes_and_comes_back(world: World, browser: Browser) -> None:
    with watched(browser, world, **DESKTOP) as window:
        page = window.page
        window.sign_in()
        page.get_by_text("New repository").click()
        page.fill("#name", "made/here")
        page.fill("#description", "By hand.")
        press(window, "Create")
        title(window, "made/here")
        page.get_by_text("Delete this repository…").click()
        press(window, "Delete repository")
        press(window, "Restore made/here")
        title(window, "made/here")
        page.locator(".commands button:visible").first.click()
        expect(page.locator("#aloud")).to_have_text("Copied.")
        window.check()


@pytest.mark.parametrize("options", [DESKTOP, PHONE], ids=["desktop, light", "phone, dark"])
def test_each_page_fits_and_can_be_read(
    world: World, browser: Browser, options: dict[str, object]
) -> None:
    world.leave_traces()
    with watched(browser, world, **options) as window:
        window.sign_in()
        for path in pages_of(world):
            window.open(path)
            expect(window.page.locator("main h1")).to_be_visible()
            window.check()


def test_a_keyboard_is_enough(world: World, browser: Browser) -> None:
    with watched(browser, world, **DESKTOP) as window:
        page, keyboard = window.page, window.page.keyboard
        world.pusher.forget_attempts()
        window.open("/console")
        expect(page.locator("#email")).to_be_focused()
        keyboard.type(ADMIN)
        keyboard.press("Tab")
        expect(page.locator("#password")).to_be_focused()
        keyboard.type(PASSWORD)
        keyboard.press("Enter")
        title(window, "Repositories")
        keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        keyboard.press("Enter")
        tab_to(window, "shop/frontend")
        keyboard.press("Enter")
        title(window, "shop/frontend")
        tab_to(window, world.index[:19])
        keyboard.press("Enter")
        title(window, "frontend:1.4")
        tab_to(window, "Delete this image…")
        keyboard.press("Enter")
        expect(page.get_by_role("button", name="Delete image")).to_be_visible()
        window.check()


def tab_to(window: Watched, text: str) -> None:
    """Press Tab until the focus, which must be seen, is on what has this text."""
    window.page.wait_for_load_state()
    focus = window.page.locator(":focus")
    for _ in range(60):
        window.page.keyboard.press("Tab")
        if focus.inner_text().strip() == text:
            assert focus.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
            return
    pytest.fail(f"Tab never came to {text}")


def test_no_script_is_needed(world: World, browser: Browser) -> None:
    with watched(browser, world, java_script_enabled=False, **PHONE) as window:
        page = window.page
        window.sign_in(f"/console/repositories/{world.frontend}/tags")
        page.fill("#tag", "no-script")
        page.fill("#target", world.older)
        press(window, "Point it there")
        title(window, "no-script")
        page.get_by_text("Delete this tag…").click()
        press(window, "Delete tag")
        press(window, "Restore no-script")
        title(window, "no-script")
        expect(page.locator("[data-copy]").first).to_be_hidden()
        assert window.faults == []


def test_what_others_wrote_is_text(world: World, browser: Browser) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'>{{ 7*7 }}"
    pusher = world.pusher
    repository = pusher.repository("evil", description=evil)
    made = pusher.image("evil", [("evil", 1, evil)], "1", **{"org.example.<b>": evil})
    pusher.attach("evil", made, "application/x-sbom+evil", 1)
    with watched(browser, world, **DESKTOP) as window:
        page = window.page
        window.sign_in()
        expect(page.locator("tbody", has_text=evil)).to_be_visible()
        window.open(f"/console/repositories/{repository}/images/{made['digest']}")
        expect(page.locator("dd", has_text=evil)).to_be_visible()
        expect(page.locator(".step", has_text=evil)).to_be_visible()
        window.open(f"/console/repositories/{repository}")
        expect(page.locator(".lead")).to_have_text(evil)
        window.expected = (400,)
        window.open(f"/console/repositories/{repository}/lifecycle")
        page.fill("#rules", f"</textarea>{evil}")
        page.get_by_role("button", name="Preview").last.click()
        expect(page.get_by_role("alert")).to_contain_text("no list of JSON objects")
        expect(page.locator("#rules")).to_have_value(f"</textarea>{evil}")
        assert page.locator("img, main script").count() == 0
        window.check()
