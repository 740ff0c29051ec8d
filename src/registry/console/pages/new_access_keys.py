"""The page that shows a new access key, the only one that ever has its secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from registry.console.page_request import PageRequest, PageResponse


def end_of_form(form: Mapping[str, str]) -> dict[str, str]:
    """Return the body of a new key: with its end, the midnight (UTC) in which its day begins."""
    day = form.get("expires", "").strip()
    return {"expires_at": f"{day}T00:00:00Z"} if day else {}


def show_new_key(page: PageRequest, key: Mapping[str, Any], back: str) -> PageResponse:
    """Show a key and its secret, with lines that use it; like every page, not to be stored."""
    settings = page.console.settings
    return page.show("new_access_key.html", key=key, back=back, registry_url=settings.url)
