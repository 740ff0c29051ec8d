"""The console as people use it: by mouse, by keyboard, on a phone, without script, in pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from cloudcore.identity.oauth.pages import HEADERS, code_page, new_password_page, refusal_page
from tests.clients.console_pages import DESKTOP, PHONE, Watched, watched
from tests.clients.console_screenshots import take
from tests.clients.console_world import World
from tests.entrepot import ADMIN, PASSWORD

ROOT: Final = Path(__file__).parents[2]
_PICTURE: Final = re.compile(r"console/([a-z-]+\.png)")
_WIDTHS: Final = """() => {
  const rules = [...document.styleSheets].flatMap((each) => [...each.cssRules]);
  const told = rules.flatMap((each) => each.media ? [...each.media] : []).join(" ");
  if (/[0-9](px|em)/.test(told)) throw new Error(told);
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  return [...new Set(told.match(/[0-9.]+(?=rem)/g))].map((each) => Math.floor(each * rem));
}"""
"""The widths of windows, in pixels, up to which rules of the style apply; all are in `rem`."""

pytestmark = pytest.mark.client("chromium")


def title(window: Watched, text: str) -> None:
    expect(window.page.locator("h1")).to_have_text(text)


def press(window: Watched, name: str) -> None:
    window.page.get_by_role("button", name=name, exact=True).click()


def test_a_person_finds_moves_tries_deletes_restores(filled: World, windows: Browser) -> None:
    with watched(windows, filled, **DESKTOP) as window:
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
        page.locator("tbody td a.mono").click()
        title(window, "frontend:1.4")
        expect(page.locator("section", has_text="Platforms").first).to_contain_text("linux/arm64")
        attached = page.locator(".tree > li", has_text="SBOM")
        expect(attached.locator(".tree")).to_contain_text("Signature")
        page.locator("section", has=page.locator("#platforms")).locator("tbody a").first.click()
        expect(page.locator("#layers + .bar rect")).to_have_count(4)
        expect(page.locator("section", has=page.locator("#layers"))).to_contain_text("nodejs tini")

        window.open(f"/console/repositories/{filled.frontend}/images/{filled.older}")
        page.fill("#tag", "latest")
        press(window, "Point here")
        title(window, "Move latest?")
        window.check()
        press(window, "Move the tag")
        expect(page.locator(".said p")).to_have_text("The tag was moved.")
        moved = page.locator(".history li").first
        expect(moved).to_contain_text("moved to")
        expect(moved).to_contain_text("by admin@example.org as admin")
        page.fill("#target", "1.4")
        press(window, "Move")
        press(window, "Move the tag")
        expect(page.locator(".history li")).to_have_count(3)

        page.get_by_role("link", name="shop/frontend").click()
        page.get_by_role("link", name="Lifecycle").click()
        page.fill("#number-1", "1")
        page.fill("#number-2", "2")
        press(window, "Preview")
        found = page.locator("#result")
        expect(found.locator(".figures li").first).to_have_text("6 of 18 images would expire")
        expect(found).to_contain_text("1.1")
        press(window, "Save these rules as the policy")
        expect(page.locator(".said p")).to_have_text("The policy was saved.")
        page.get_by_text("Delete the policy…").click()
        press(window, "Delete the policy")
        expect(page.locator(".said p")).to_have_text("The policy was deleted.")

        window.open(f"/console/repositories/{filled.frontend}/images/{filled.older}")
        page.get_by_text("Delete this image…").click()
        press(window, "Delete image")
        deleted = page.locator("tbody tr", has_text=filled.older[:19])
        expect(deleted).to_contain_text("1.3")
        expect(deleted).to_contain_text("by admin@example.org as admin")
        expect(deleted).to_contain_text("in 7 days")
        deleted.get_by_role("button").click()
        title(window, "frontend:1.3")
        window.check()

        cookies = page.context.cookies()
        page.locator(".account summary").click()
        press(window, "Sign out")
        title(window, "Signed out")
        assert [each["name"] for each in page.context.cookies(filled.url + "/console")] == []
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


def test_a_repository_comes_goes_and_comes_back(filled: World, windows: Browser) -> None:
    with watched(windows, filled, **DESKTOP) as window:
        page = window.page
        window.open_signed_in("/console/repositories")
        page.get_by_text("New repository").click()
        window.expected = (404, 409)
        page.fill("#name", "shop/api")
        page.fill("#description", "By hand.")
        press(window, "Create")
        expect(page.locator("#name")).to_have_accessible_description(
            re.compile("There is a repository of this name.")
        )
        expect(page.locator("#description")).to_have_value("By hand.")
        window.check()
        page.fill("#name", "made/here")
        press(window, "Create")
        title(window, "made/here")
        page.locator(".tabs").get_by_role("link", name="Settings").click()
        page.get_by_text("Delete this repository…").click()
        press(window, "Delete repository")
        title(window, "Deleted repositories")
        page.go_back()
        title(window, "There is nothing here")
        page.locator("main").get_by_role("link", name="Deleted").click()
        press(window, "Restore made/here")
        title(window, "made/here")
        page.locator(".commands button:visible").first.click()
        expect(page.locator("#aloud")).to_have_text("Copied.")
        window.check()


def test_files_go_into_a_bucket_and_come_back(
    filled: World, windows: Browser, tmp_path: Path
) -> None:
    file, data = tmp_path / "a cat+é.bin", bytes(range(256)) * 8000
    file.write_bytes(data)
    with watched(windows, filled, **DESKTOP) as window:
        page = window.page
        window.open_signed_in("/console/services/buckets")
        page.fill("#name", "files")
        press(window, "Create the bucket")
        title(window, "files")
        page.set_input_files("#files", [file])
        press(window, "Upload")
        expect(page.locator("tbody tr")).to_have_count(1)
        with page.expect_download() as downloading:
            page.get_by_role("link", name=file.name, exact=True).click()
        assert downloading.value.suggested_filename == file.name
        assert Path(downloading.value.path()).read_bytes() == data


def test_an_index_goes_with_its_images(filled: World, windows: Browser) -> None:
    pusher, name = filled.pusher, "index/made-here"
    repository = pusher.repository(name)
    images = [
        pusher.image(name, [(each, 3, "RUN")], architecture=each) for each in ("s390x", "arm")
    ]
    pusher.index(name, images[1:], "other")
    index = pusher.index(name, images, "1")
    with watched(windows, filled, **PHONE) as window:
        page = window.page
        window.open_signed_in(f"/console/repositories/{repository}/images/{index['digest']}")
        page.get_by_text("Delete this index with its images…").click()
        going = page.locator("details[open] tbody tr")
        expect(going).to_have_count(3)
        expect(going.filter(has_text="linux/arm")).to_contain_text("stays: another index lists it")
        window.check()
        press(window, "Delete index and 1 image")
        expect(page.get_by_role("status").first).to_contain_text("2 images were deleted.")
        window.check()
        page.get_by_role("status").get_by_role("link", name="Deleted").click()
        expect(page.locator("tbody tr", has_text=index["digest"][:19])).to_be_visible()


@pytest.mark.parametrize("options", [DESKTOP, PHONE], ids=["desktop, light", "phone, dark"])
def test_the_sign_in_looks_like_the_console(
    filled: World, windows: Browser, options: dict[str, object]
) -> None:
    shown = {
        "new": new_password_page("sealed", f"{'long' * 20}@example.com", "The two differ."),
        "code": code_page("c" * 90),
        "refusal": refusal_page("invalid_request", "The redirect is none of ours"),
    }
    with watched(windows, filled, **options) as window:
        filled.pusher.forget_attempts()
        window.open("/console")
        looks_like_the_console(window)
        own = colours_of(window.page)
        window.expected = (403,)
        window.page.fill("#email", ADMIN)
        window.page.fill("#password", "not this one")
        window.page.click("button[type=submit]")
        expect(window.page.get_by_role("alert")).to_contain_text("is wrong.")
        expect(window.page.locator("#password")).to_be_focused()
        looks_like_the_console(window)
        for name, page in shown.items():
            window.page.route(
                f"**/{name}",
                lambda route, _, page=page: route.fulfill(
                    body=page, content_type="text/html; charset=utf-8", headers=HEADERS
                ),
            )
            window.open(f"/{name}")
            looks_like_the_console(window)
        window.open("/console/signed-out")
        assert colours_of(window.page) == own


def looks_like_the_console(window: Watched) -> None:
    """Check that a page's own style was let in, and that the page can be read."""
    assert colours_of(window.page)[0] != "rgba(0, 0, 0, 0)"
    window.check()


def colours_of(page: Page) -> list[str]:
    """Return how a page is coloured and lettered."""
    found: list[str] = page.evaluate(
        """() => [document.body, document.querySelector(".brand")].flatMap((each) => {
          const style = getComputedStyle(each);
          return [style.backgroundColor, style.color, style.fontFamily, style.fontWeight];
        })"""
    )
    return found


def test_the_audit_log_fits_every_width(filled: World, windows: Browser) -> None:
    filled.pusher.call("PATCH", "/v1/certificate-settings", {"private_key_export": True})
    with watched(windows, filled, viewport={"width": 1280, "height": 900}) as window:
        window.open_signed_in("/console/audit")
        window.page.get_by_text("certificate:UpdateCertificateSettings").first.wait_for()
        for width in (1024, 1280):
            widen(window, width)
            check_filters_align(window)
        check_header_is_one_row(window)
        # As it is in an hour.
        window.page.evaluate(
            "document.querySelectorAll('time')"
            ".forEach((each) => { each.textContent = '59 minutes ago' })"
        )
        for width in (700, 720, 768, 800, 820):
            widen(window, width)
            window.check()


def widen(window: Watched, width: int) -> None:
    """Resize a window, and wait until its page has that width."""
    window.page.set_viewport_size({"width": width, "height": 900})
    window.page.wait_for_function("(width) => window.innerWidth === width", arg=width)


def check_filters_align(window: Watched) -> None:
    fields = window.page.locator(".filters :is(input, select)")
    tops = [box["y"] for each in fields.all() if (box := each.bounding_box())]
    assert len(tops) == 6
    assert len(set(tops)) == 2  # rows of three
    # No name is broken: what is between breaks that its text allows is in one line.
    who = window.page.locator('td[data-label="Who"]').get_by_text("admin@").first
    assert who.evaluate("each => getComputedStyle(each).overflowWrap") == "break-word"


def check_header_is_one_row(window: Watched) -> None:
    """Check so where its style changes and between, and that all of it is there when narrow."""
    header = window.page.locator("header.top")
    assert header.locator("nav a").count() == 8  # an administrator's, all there are
    changes = window.page.evaluate(_WIDTHS)
    assert len(changes) >= 4
    at_changes = {each + more for each in changes if each > 704 for more in (0, 1)}
    for width in sorted({*range(705, 1300, 45), *at_changes, 1300}):
        widen(window, width)
        box = header.bounding_box()
        assert box is not None
        assert box["height"] < 64, width
        window.check()
    widen(window, 720)
    for each in (*header.locator("nav a").all(), header.locator(".find input")):
        found = each.bounding_box()
        assert found is not None
        assert found["x"] >= 0
        assert found["x"] + found["width"] <= 720
        assert found["width"] > 40


def test_a_keyboard_is_enough(filled: World, windows: Browser) -> None:
    with watched(windows, filled, **DESKTOP) as window:
        page, keyboard = window.page, window.page.keyboard
        filled.pusher.forget_attempts()
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
        tab_to(window, filled.index[:19])
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
    for _ in range(90):
        window.page.keyboard.press("Tab")
        if focus.inner_text().strip() == text:
            assert focus.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
            return
    pytest.fail(f"Tab never came to {text}")


def test_no_script_is_needed(filled: World, windows: Browser) -> None:
    with watched(windows, filled, java_script_enabled=False, **PHONE) as window:
        page = window.page
        window.sign_in(f"/console/repositories/{filled.frontend}/tags")
        page.fill("#tag", "no-script")
        page.fill("#target", filled.older)
        press(window, "Point it there")
        title(window, "no-script")
        page.get_by_text("Delete this tag…").click()
        press(window, "Delete tag")
        press(window, "Restore no-script")
        title(window, "no-script")
        window.open("/console/settings/events")
        filled.pusher.call("POST", "/v1/topics", {"name": "no-script"})
        page.fill("#topic", "no-script")
        page.get_by_label("An image was pushed").check()
        press(window, "Create the rule")
        rule = page.locator("tbody tr", has_text="no-script")
        rule.locator("summary").click()
        rule.get_by_role("button", name="Delete rule").click()
        expect(page.locator(".said p")).to_have_text("The rule was deleted.")
        window.open(f"/console/repositories/{filled.frontend}/tags/no-script")
        expect(page.locator("[data-copy]").first).to_be_hidden()
        assert window.faults == []


def test_what_others_wrote_is_text(filled: World, windows: Browser) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'>{{ 7*7 }}"
    pusher = filled.pusher
    repository = pusher.repository("evil", description=evil)
    made = pusher.image("evil", [("evil", 1, evil)], "1", **{"org.example.<b>": evil})
    pusher.attach("evil", made, "application/x-sbom+evil", 1)
    pin = f"/v1/repositories/{repository}/images/{made['digest']}/pins/{'s' * 128}"
    pusher.call("PUT", pin, {"expires_at": None})
    with watched(windows, filled, **DESKTOP) as window:
        page = window.page
        window.open_signed_in("/console/repositories")
        expect(page.locator("tbody", has_text=evil)).to_be_visible()
        window.open(f"/console/repositories/{repository}/images/{made['digest']}")
        expect(page.locator("dd", has_text=evil)).to_be_visible()
        expect(page.locator(".step", has_text=evil)).to_be_visible()
        expect(page.locator(".pins")).to_contain_text("s" * 128)
        window.check()
        window.open(f"/console/repositories/{repository}")
        expect(page.locator(".lead")).to_have_text(evil)
        window.expected = (400,)
        window.open(f"/console/repositories/{repository}/lifecycle")
        page.get_by_text("As JSON").click()
        page.fill("#rules", f"</textarea>{evil}")
        press(window, "Preview the JSON")
        expect(page.get_by_role("alert")).to_contain_text("no list of JSON objects")
        expect(page.locator("#rules")).to_have_value(f"</textarea>{evil}")
        assert page.locator("img, main script").count() == 0
        window.check()


def test_each_picture_of_the_docs_can_be_taken(
    filled: World, windows: Browser, tmp_path: Path
) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in _PICTURE.findall(page.read_text())}
    kept = {each.name for each in (ROOT / "docs/console").iterdir()}
    take(windows, filled, tmp_path)
    taken = {each.name for each in tmp_path.iterdir()}
    assert named
    assert named <= taken
    assert kept == taken
