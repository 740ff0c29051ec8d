"""The pages of an upstream's tags, joined to one list of bounded length (end-8)."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from registry.oci.reference import is_tag
from registry.upstream.base import ListedTags

PAGE_SIZE: Final = 1000
"""How many tags are asked for at once; many upstreams give fewer."""
MAX_PAGES: Final = 200
MAX_NAMES_BYTES: Final = 1024 * 1024
"""The most bytes of names that are read: tens of thousands of tags."""
MAX_SECONDS: Final = 30
"""No page is asked for after that; what has come is told."""


class BadTagPage(Exception):
    """A page is no list of tags; the message says so."""


class _Page(msgspec.Struct):
    tags: list[str] | None = None
    """None, which some registries send, is an empty list."""


class TagPages:
    """What has come of a list."""

    def __init__(self) -> None:
        self.count = 0
        """Of pages."""
        self._names: dict[str, None] = {}
        self._bytes = 0
        self._is_cut = False
        self._began = time.monotonic()

    @property
    def is_full(self) -> bool:
        """Return True if no more is to be read."""
        is_late = time.monotonic() - self._began > MAX_SECONDS
        return self._is_cut or self.count >= MAX_PAGES or (self.count > 0 and is_late)

    def add(self, body: bytes) -> None:
        """Add the tags of a page; what no tag can be is left out.

        Raises:
            BadTagPage.

        """
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
        """Note that there is more than is read."""
        self._is_cut = True

    def listed(self, *, is_whole: bool) -> ListedTags:
        """Return all tags; not `is_whole` if pages are left that were not asked for."""
        return ListedTags(list(self._names), is_whole and not self._is_cut)
