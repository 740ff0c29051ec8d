"""The links of the documentation lead somewhere, and its index has every page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.databases import ROOT

DOCS: Final = ROOT / "docs"
_OTHERS: Final = ("README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY", "benchmarks/README")
"""Pages elsewhere. The changelog is not one: it names pages of its time."""
_LINK: Final = re.compile(r"\]\((?![a-z]+:)([^)\s#]*)(?:#([^)\s]+))?\)")
_CODE: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_NAMED: Final = re.compile(r"\bdocs/[a-z0-9/-]+\.md")


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the file and the heading of each link to another part of the project."""
    for target, anchor in _LINK.findall(_CODE.sub("", page.read_text())):
        yield (page.parent / target).resolve() if target else page, anchor


@cache
def headings(page: Path) -> frozenset[str]:
    """Return the names by which the headings of a page are linked."""
    found = _HEADING.findall(_CODE.sub("", page.read_text()))
    return frozenset(re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in found)


def test_each_link_leads_to_a_file_and_a_heading() -> None:
    pages = [*(ROOT / f"{name}.md" for name in _OTHERS), *DOCS.rglob("*.md")]
    assert [
        f"{page.relative_to(ROOT)}: {target} {anchor}"
        for page in pages
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in headings(target))
    ] == []


def test_the_index_has_every_page() -> None:
    linked = {target for target, _ in links(DOCS / "README.md")}
    folders = {each for each in linked if each.is_dir()}
    pages = {*DOCS.rglob("*.md")} - {DOCS / "README.md"}
    assert {each for each in pages - linked if each.parent not in folders} == set()


def test_each_page_that_messages_and_examples_name_is_there() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "deploy").rglob("*")]
    named = {
        (name, str(file.relative_to(ROOT)))
        for file in files
        if file.is_file()
        for name in _NAMED.findall(file.read_text())
    }
    assert named
    assert [each for each in named if not (ROOT / each[0]).exists()] == []
