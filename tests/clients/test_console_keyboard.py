"""The console by keyboard alone and without script: each control is reached, and seen to be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, expect

from tests.clients.console_pages import DESKTOP, Watched, pages_of, sbom_of, watched
from tests.clients.console_world import World

_NUMBER: Final = """(within) => {
  const all = "a[href], button, input, select, textarea, summary";
  const found = [...document.querySelector(within).querySelectorAll(all)]
    .filter((each) => each.type !== "hidden" && each.tabIndex >= 0 && !each.disabled)
    .filter((each) => each.checkVisibility({visibilityProperty: true}));
  found.forEach((each, at) => { each.dataset.at = at; });
  return found.map((each) => each.outerHTML.slice(0, 120));
}"""
_FOCUSED: Final = """() => {
  const now = document.activeElement, style = getComputedStyle(now);
  return [now.dataset.at === undefined ? -1 : Number(now.dataset.at), style.outlineStyle];
}"""
_ACCESS: Final = (
    *("service-accounts/", "policies/", "account-roles/", "people", "simulator"),
    "settings",
)

pytestmark = [pytest.mark.client("chromium"), pytest.mark.timeout(300)]


@pytest.fixture
def window(filled: World, windows: Browser) -> Iterator[Watched]:
    options: dict[str, Any] = {**DESKTOP, "java_script_enabled": False}
    with watched(windows, filled, **options) as window:
        window.open_signed_in()
        yield window


def unreached(window: Watched, within: str = "body") -> list[str]:
    """Return the controls of the page that Tab does not reach, or whose focus is not seen."""
    page = window.page
    controls: list[str] = page.evaluate(_NUMBER, within)
    assert controls, page.url
    left = set(range(len(controls)))
    for _ in range(3 * len(controls) + 10):  # a date has several places for the focus
        if not left:
            break
        page.keyboard.press("Tab")
        at, outline = page.evaluate(_FOCUSED)
        if outline != "none":
            left.discard(at)
    return [controls[at] for at in sorted(left)]


def test_tab_reaches_each_control(filled: World, window: Watched) -> None:
    base = f"/console/repositories/{filled.frontend}"
    about = [
        path for path in pages_of(filled) if path.removeprefix("/console/").startswith(_ACCESS)
    ]
    paths = (base, f"{base}/lifecycle", f"{base}/settings", f"{base}/images/{sbom_of(filled)}")
    window.open(base)
    assert unreached(window) == []
    # What is around the content is the same in all.
    for path in (*about, *paths[1:], f"{paths[-1]}/attachment"):
        window.open(f"{path}#main")
        assert unreached(window, "main") == [], path


def test_forms_are_sent_by_enter(filled: World, window: Watched) -> None:
    page, keyboard = window.page, window.page.keyboard

    def write(field: str, text: str) -> None:
        page.locator(field).focus()
        keyboard.type(text)

    window.open("/console/simulator")
    write("#principal", "role/admin")
    write("#resource", "shop/api")
    keyboard.press("Enter")
    expect(page.locator("tbody .mark")).to_have_text(["Yes", "Yes"])

    window.open("/console/policies/new")
    write("#find-action", "push")
    keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("New policy")  # found, and nothing was created
    expect(page.locator("details[open]").first).to_contain_text("registry:PushImage")
    write("#name", "by-keyboard")
    page.locator("#template").focus()
    keyboard.press("p")  # pusher
    write("#names", "shop/*")
    page.get_by_role("button", name="Create the policy").focus()
    keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("by-keyboard")

    window.open("/console/service-accounts")
    write("#name", "by-keyboard")
    write("#names", "shop/*")
    keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("New access key of by-keyboard")

    window.open(f"/console/repositories/{filled.frontend}/lifecycle")
    page.locator("#number-1").focus()
    keyboard.press("Control+a")
    keyboard.type("1")
    keyboard.press("Enter")
    expect(page.locator("#preview")).to_have_text("Preview of rules that are not saved")

    window.open(f"/console/repositories/{filled.frontend}")
    page.locator(".pick input").first.focus()
    keyboard.press("Space")
    page.get_by_role("button", name="Delete the selected…").focus()
    keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Delete 1 image?")
    page.get_by_role("link", name="Keep them").focus()
    keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("shop/frontend")
    assert window.faults == []
