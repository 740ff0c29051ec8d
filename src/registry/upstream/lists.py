"""Follow the pages of an upstream's lists; join pages of referrers to one index (end-12)."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urljoin

import msgspec

from cloudcore.outbound.destinations import NotAllowed, origin_of
from cloudcore.outbound.http_connection import AnswerHead
from registry.oci.manifest import MAX_BYTES
from registry.oci.reference import is_tag
from registry.upstream.base import ListedTags

_NEXT: Final = re.compile(r"\s*<([!-;=?-~]{1,4000})>\s*;\s*rel=\"?next\"?\s*", re.IGNORECASE)

_NAMES_NEXT: Final = re.compile(r";\s*rel\s*=(?:\s*\")?[^\",;]*\bnext\b", re.IGNORECASE)


class RefusedPage(Exception):
    """A page is not an index, or all pages together are too large; the message says which."""


class RefusedLink(Exception):
    """The ``Link`` to the next page must not be followed."""


def next_page(head: AnswerHead, origin: str, first: str) -> str | None:
    """Return the path of the next page (RFC 8288), or None after the last one.

    Raise `RefusedLink` if the next page has another origin or path than the first, or its ``Link``
    cannot be read.
    """
    links = head.all("link")
    found = next(filter(None, map(_NEXT.fullmatch, links)), None)
    if found is None:
        if any(map(_NAMES_NEXT.search, links)):
            raise RefusedLink
        return None
    try:
        url: str = urljoin(origin + first, found[1])
        is_here = origin_of(url) == origin
    except (ValueError, NotAllowed):
        raise RefusedLink from None
    path = url.removeprefix(origin)
    if not is_here or path.partition("?")[0] != first.partition("?")[0]:
        raise RefusedLink
    return path


def join_pages(pages: Sequence[bytes]) -> bytes:
    """Join pages to one index; return a single page as it came. Raise RefusedPage if invalid."""
    if len(pages) == 1:
        return pages[0]
    if sum(map(len, pages)) > MAX_BYTES:
        raise RefusedPage(f"has more than {MAX_BYTES} bytes of referrers")
    try:
        read = [msgspec.json.decode(page, type=dict[str, Any]) for page in pages]
    except (ValueError, RecursionError):
        raise RefusedPage("sent a page of referrers that is no index") from None
    lists = [[] if page.get("manifests") is None else page["manifests"] for page in read]
    if not all(isinstance(each, list) for each in lists):
        raise RefusedPage("sent a page of referrers that is no index")
    manifests = [each for found in lists if isinstance(found, list) for each in found]
    return msgspec.json.encode({**read[0], "manifests": manifests})


PAGE_SIZE: Final = 1000
"""Page size of tags in requests; many upstreams send fewer."""
MAX_PAGES: Final = 200
MAX_NAMES_BYTES: Final = 1024 * 1024
"""Maximum bytes of names that are read: tens of thousands of tags."""
MAX_SECONDS: Final = 30
"""Seconds after which no further page is requested; the tags so far are returned."""


class BadTagPage(Exception):
    """A page is not a list of tags."""


class _Page(msgspec.Struct):
    tags: list[str] | None = None
    """None, which some registries send, is an empty list."""


class TagPages:
    """The tags collected from the pages of a list so far."""

    def __init__(self) -> None:
        self.count = 0
        """Number of pages added."""
        self._names: dict[str, None] = {}
        self._bytes = 0
        self._is_cut = False
        self._began = time.monotonic()

    @property
    def is_full(self) -> bool:
        """Return True if a limit is reached, so that no more pages are read."""
        is_late = time.monotonic() - self._began > MAX_SECONDS
        return self._is_cut or self.count >= MAX_PAGES or (self.count > 0 and is_late)

    def add(self, body: bytes) -> None:
        """Add the valid tags of a page; raise BadTagPage if it is not a list of tags."""
        try:
            found = msgspec.json.decode(body, type=_Page).tags or []
        except (ValueError, RecursionError):
            raise BadTagPage("sent a page of tags that is no list") from None
        self.count += 1
        for name in found:
            if name in self._names or not is_tag(name):
                continue
            self._bytes += len(name) + 1
            if self._bytes > MAX_NAMES_BYTES:
                self._is_cut = True
                return
            self._names[name] = None

    def cut(self) -> None:
        """Record that there are more pages than will be read."""
        self._is_cut = True

    def listed(self, *, is_whole: bool) -> ListedTags:
        """Return all collected tags; pass `is_whole` False if some pages were not read."""
        return ListedTags(list(self._names), is_whole and not self._is_cut)
