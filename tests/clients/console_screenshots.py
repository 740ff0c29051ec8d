"""The pictures of the console in ``docs/console``, taken anew from a filled install.

``make pictures``, or: python -m tests.clients.console_screenshots docs/console
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser

from tests.clients.console_pages import DESKTOP, PHONE, Watched, chromium, sbom_of, watched
from tests.clients.console_world import World, serve_world

MIB: Final = 1 << 20
MOST_BYTES: Final = 150_000
_TALL: Final[dict[str, Any]] = {**DESKTOP, "viewport": {"width": 1280, "height": 960}}


def take(browser: Browser, world: World, folder: Path) -> None:
    """Take all pictures."""
    base = f"/console/repositories/{world.frontend}"
    with watched(browser, world, **_TALL) as window:
        window.open_signed_in()
        gone = world.pusher.image("shop/worker", [("unused", 52.5, "COPY . /app")])
        found = world.pusher.call("GET", "/v1/repositories?name=shop/worker")
        worker = found["repositories"][0]["id"]
        world.pusher.call("DELETE", f"/v1/repositories/{worker}/images/{gone['digest']}")
        shoot(window, f"{base}/images/{world.index}", folder / "image-light.png")
        window.page.locator("section", has=window.page.locator("#platforms")).get_by_role(
            "link"
        ).first.click()
        window.page.locator("#configuration").evaluate(
            "each => each.closest('section').scrollIntoView()"
        )
        shoot(window, "", folder / "layers-light.png")
        sbom = f"{base}/images/{sbom_of(world)}/attachment"
        shoot(window, sbom, folder / "sbom-light.png")
        shoot(window, "/console/storage", folder / "storage-light.png")
        world.pusher.fill_stages("shop/api")
        shoot(window, "/console/storage/collection", folder / "collection-light.png")
        window.open(f"{base}/lifecycle")
        window.page.fill("#number-1", "1")
        window.page.fill("#number-2", "2")
        window.page.get_by_role("button", name="Preview", exact=True).click()
        window.page.wait_for_url("**/preview#result")
        window.page.evaluate("scrollTo(0, 0)")
        shoot(window, "", folder / "lifecycle-light.png")
        shoot(window, "/console/policies/new", folder / "policy-light.png")
        program = {
            "name": "ci",
            "description": "Builds and pushes the shop.",
            "grants": [{"template": "pusher", "names": ["shop/*"]}],
            "access_key": {},
        }
        world.pusher.call("POST", "/v1/service-accounts", program)
        shoot(window, "/console/service-accounts", folder / "programs-light.png")
    with watched(browser, world, **PHONE, device_scale_factor=2) as window:
        window.open_signed_in()
        shoot(window, base, folder / "repository-dark.png")
        shoot(window, "/console/storage", folder / "storage-dark.png")


def shoot(window: Watched, path: str, file: Path) -> None:
    """Take a picture of what a visitor sees first of a page; without a path, of the present one."""
    if path:
        window.open(path)
    window.check()
    picture = window.page.screenshot(animations="disabled")
    if len(picture) > MOST_BYTES:
        raise SystemExit(f"{file} would have {len(picture)} bytes")
    file.write_bytes(picture)


def main() -> None:
    """Fill an install and take the pictures."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        serve_world(Path(data) / "data", MIB) as world,
        chromium() as browser,
    ):
        take(browser, world, folder)


if __name__ == "__main__":
    main()
