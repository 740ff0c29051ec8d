"""Pages of the console and the reference fit, and axe-core finds nothing wrong with them.

Each page is opened, and must fit and be legible as a phone and as a desktop show it. axe-core
takes most of the time: it is asked about a page if that has something that none before it had, in
the one look or the other, in turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from playwright.sync_api import Browser

from tests.clients.console_pages import (
    DESKTOP,
    PHONE,
    Watched,
    pages_of,
    questions_of,
    send,
    watched,
)
from tests.clients.console_world import World
from tests.clients.programs import attempt
from tests.tools import missing

PACKAGE: Final = "axe-core@4.14.1"
_LOOKS: Final = {"phone": PHONE, "desktop": DESKTOP}
_MOST_OPEN: Final = 15
_MOST_ALIKE: Final = 30
"""Of a list or table, axe-core is shown so many rows, and of a long page so many sections."""
# Those of the reference are many and alike: hundreds of operations, of which some are looked at.
# axe-core would read the others too, though nothing of them is seen.
_OPEN: Final = """(most) => {
  const folds = [...document.querySelectorAll('details')];
  const step = Math.ceil(folds.length / most);
  folds.forEach((each, number) => { each.open = number % step === 0; });
  if (step > 1) document.querySelectorAll('details:not([open]) > :not(summary)')
    .forEach((each) => each.remove());
  return document.querySelector("h1").checkVisibility();
}"""
_KINDS: Final = """(most) => {
  for (const each of document.querySelectorAll("ul, tbody, dl, select, datalist")) {
    [...each.children].slice(most).forEach((child) => child.remove());
  }
  const sections = [...document.querySelectorAll("main > section")];
  const step = Math.ceil(sections.length / most);
  sections.filter((_, number) => number % step !== 0).forEach((each) => each.remove());
  const place = (each) => each ? `${each.localName}.${each.getAttribute("class") ?? ""}` : "";
  const count = (id) => document.querySelectorAll(`[id="${CSS.escape(id)}"]`).length;
  const told = ({name, value}) => {
    if (name === "id") return [`id ${count(value)}`];
    if (["for", "list", "aria-labelledby", "aria-describedby"].includes(name)) {
      return [`${name} ${value.split(" ").map(count)}`];
    }
    if (["alt", "title", "aria-label"].includes(name)) return [`${name} ${value !== ""}`];
    const counts = /^(aria-|role|type|scope|tabindex|lang|autocomplete)/.test(name);
    return counts ? [`${name} ${value}`] : [];
  };
  const acts = "a, button, input, select, summary, textarea";
  const kind = (each) => {
    const {width, height} = each.getBoundingClientRect();
    const isSmall = each.matches(acts) && Math.min(width, height) < 24;
    const style = getComputedStyle(each);
    return [each.parentElement?.localName, each.localName,
      [...each.attributes].flatMap(told).sort(), each.labels?.length,
      each.textContent.trim() !== "", isSmall && [place(each.parentElement), place(each)],
      each.localName === "a" && [style.display, style.textDecorationLine],
      each.parentElement?.closest("a, button, label, summary")?.localName,
      each.closest("main, header, footer, nav")?.localName].join("|");
  };
  const headings = [...document.querySelectorAll("h1, h2, h3, h4")].map((each) => each.localName);
  const steps = headings.map((each, number) => `${headings[number - 1]} ${each}`);
  const counts = ["main", "h1"].map((each) => `${document.querySelectorAll(each).length} ${each}`);
  const seen = [...document.querySelectorAll("*")].filter((each) => each.checkVisibility());
  const scrolls = seen.filter((each) => getComputedStyle(each).overflowX === "auto").map(place);
  const title = `title ${document.title !== ""}`;
  return [...new Set([...seen.map(kind), ...steps, ...counts, ...scrolls, title])];
}"""
"""What there is in a page that axe-core's rules look at, each once: elements by their place and
meaning, whether what they refer to is there, whether they have words or a label, are small (and
then by their class, as their neighbours are looked at too), or scroll, and how links differ from
text."""
# Half of axe-core's time would go to contrast, which `Watched.check` measures on each page.
_RUN: Final = """async () => {
  const rules = {"color-contrast": {enabled: false}};
  const found = await axe.run(document, {resultTypes: ["violations"], rules});
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


def test_each_page_fits_and_axe_finds_no_violation(
    filled: World, windows: Browser, axe: str
) -> None:
    filled.leave_traces()
    pin = f"/v1/repositories/{filled.frontend}/images/{filled.index}/pins/production"
    filled.pusher.call("PUT", pin, {"expires_at": None})
    with watched(windows, filled, **PHONE) as window:
        looks = Looks(window, axe)
        for path in ("/console/sign-in?to=/console", "/v1/reference"):
            looks.look(path)
        window.sign_in()
        for path in pages_of(filled):
            looks.look(path)
        for question in questions_of(filled):
            window.expected = (question.status,)
            send(window, question)
            looks.look()
        window.expected = (404,)
        for path in ("/console/nothing-here", f"/console/policies/{uuid4()}"):
            looks.look(path)
    assert looks.found == [], "\n".join(looks.found)


class Looks:
    """A window that shows each page on a dark phone and on a light desktop, without a reload."""

    def __init__(self, window: Watched, axe: str) -> None:
        self.window = window
        self.found: list[str] = []
        """What axe-core found wrong."""
        self._axe = axe
        self._known = set[str]()
        self._present = "phone"
        self._devices = window.page.context.new_cdp_session(window.page)

    def look(self, path: str = "") -> None:
        """Look at a page, or at the present one, with its folds open.

        It must fit in both looks, and break nothing. If it has something new, ask axe-core.
        """
        page = self.window.page
        if path:
            self.window.open(path)
        assert page.evaluate(_OPEN, _MOST_OPEN), page.url
        self.window.check()
        self._present = "desktop" if self._present == "phone" else "phone"
        look = _LOOKS[self._present]
        page.set_viewport_size(look["viewport"])
        page.emulate_media(color_scheme=look["color_scheme"], reduced_motion="reduce")
        touch = {"enabled": "has_touch" in look}
        self._devices.send("Emulation.setTouchEmulationEnabled", touch)
        self.window.check()
        kinds = set(page.evaluate(_KINDS, _MOST_ALIKE))
        if not kinds <= self._known:
            self._known |= kinds
            page.evaluate(self._axe)  # no script tag, which the pages' policy forbids
            for each in page.evaluate(_RUN):
                self.found.append(f"{page.url} {self._present}: {' | '.join(each)}")
