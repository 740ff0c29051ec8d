"""Quotas: how much the account has, and may have, of each thing."""

from __future__ import annotations

from typing import Final

from litestar import get

from registry.console.addresses import SETTINGS
from registry.console.page_request import InjectedPage, PageResponse
from registry.quotas import UNLIMITED

_PAGE: Final = 100


@get(f"{SETTINGS}/quotas")
async def list_quotas(page: InjectedPage) -> PageResponse:
    """Show the quotas by name."""
    found = await page.api.get("/v1/quotas", marker=page.query.get("marker"), limit=_PAGE)
    shown = {"quotas": found["quotas"], "meta": found["meta"]}
    return page.show("quotas.html", **shown, unlimited=UNLIMITED)
