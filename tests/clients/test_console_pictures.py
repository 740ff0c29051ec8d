"""The pictures of the console in the documentation can be taken anew, and none is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.clients.console_pages import chromium
from tests.clients.console_screenshots import take
from tests.clients.console_world import serve_world

ROOT: Final = Path(__file__).parents[2]
_PICTURE: Final = re.compile(r"console/([a-z-]+\.png)")

pytestmark = pytest.mark.client("chromium")


def test_each_picture_of_the_docs_can_be_taken(tmp_path: Path) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in _PICTURE.findall(page.read_text())}
    kept = {each.name for each in (ROOT / "docs/console").iterdir()}
    folder = tmp_path / "pictures"
    folder.mkdir()
    with serve_world(tmp_path / "data") as world, chromium() as browser:
        take(browser, world, folder)
    taken = {each.name for each in folder.iterdir()}
    assert named
    assert named <= taken
    assert kept == taken
