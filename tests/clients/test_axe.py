"""Pages of the console and the reference fit, and axe-core finds nothing wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, expect

from tests.clients.console_pages import (
    DESKTOP,
    PHONE,
    Watched,
    chromium,
    pages_of,
    questions_of,
    send,
    watched,
)
from tests.clients.console_world import World, serve_world
from tests.clients.programs import attempt
from tests.tools import missing

PACKAGE: Final = "axe-core@4.14.1"
# Those of the reference are many and alike: hundreds of operations, of which some are looked at.
_OPEN: Final = """(most) => {
  const folds = [...document.querySelectorAll('details')];
  const step = Math.ceil(folds.length / most);
  folds.forEach((each, number) => { each.open = number % step === 0; });
}"""
_MOST_OPEN: Final = 15
_RUN: Final = """async () => {
  const found = await axe.run(document, {resultTypes: ["violations"]});
  return found.violations.flatMap((each) => each.nodes.map(
    (node) => [each.id, node.target.join(" "), node.failureSummary.replaceAll("\\n", " ")]));
}"""

pytestmark = [pytest.mark.client("chromium"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the source of axe-core, or skip (fail in CI) where it cannot be installed."""
    folder = tmp_path_factory.mktemp("node")
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder)
    if attempt("npm", "install", *options, PACKAGE).returncode != 0:
        missing(f"npm cannot install {PACKAGE}")
    return (Path(folder) / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serve_world(tmp_path_factory.mktemp("console") / "data") as made:
        made.set_up_account()
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def test_each_page_fits_and_axe_finds_no_violation(
    world: World, browser: Browser, axe: str
) -> None:
    world.leave_traces()
    pin = f"/v1/repositories/{world.frontend}/images/{world.index}/pins/production"
    world.pusher.call("PUT", pin, {"expires_at": None})
    with watched(browser, world, **PHONE) as window:
        looks = Looks(window)
        found = {}
        for path in ("/console/sign-in?to=/console", "/v1/reference"):
            found[path] = violations(looks, path, axe)
        window.sign_in()
        for path in pages_of(world):
            found[path] = violations(looks, path, axe)
        for question in questions_of(world):
            window.expected = (question.status,)
            send(window, question)
            found[f"{question.path} {question.status}"] = violations(looks, "", axe)
        window.expected = (404,)
        for path in ("/console/nothing-here", f"/console/policies/{uuid4()}"):
            found[path] = violations(looks, path, axe)
    told = [f"{path}: {' | '.join(each)}" for path, nodes in found.items() for each in nodes]
    assert told == [], "\n".join(told)


class Looks:
    """A window that shows its page on a dark phone, then on a light desktop, without a reload."""

    def __init__(self, window: Watched) -> None:
        self.window = window
        self._devices = window.page.context.new_cdp_session(window.page)

    def each(self) -> Iterator[str]:
        """Take each look in turn; yield its name."""
        for name, look in (("phone", PHONE), ("desktop", DESKTOP)):
            page = self.window.page
            page.set_viewport_size(look["viewport"])
            page.emulate_media(color_scheme=look["color_scheme"], reduced_motion="reduce")
            touch = {"enabled": "has_touch" in look}
            self._devices.send("Emulation.setTouchEmulationEnabled", touch)
            yield name


def violations(looks: Looks, path: str, axe: str) -> list[list[str]]:
    """Return what axe-core finds wrong in a page, or the present one, with its folds open.

    The page must fit, and break nothing.
    """
    window = looks.window
    if path:
        window.open(path)
    expect(window.page.locator("h1")).to_be_visible()
    window.page.evaluate(_OPEN, _MOST_OPEN)
    window.page.evaluate(axe)  # not by a script tag, which the pages' policy forbids
    found = []
    for look in looks.each():
        window.check()
        found += [[look, *each] for each in window.page.evaluate(_RUN)]
    return found
