"""``GET /v1/regions`` and ``GET /v1/prices``: public, with a rate limit.

The content changes only with a restart, so it is encoded once and has an entity tag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
from litestar import Request, Response, get

from cloudcore.catalog.documents import CatalogFile, Price, Region
from cloudcore.web.app import Needs
from cloudcore.web.revisions import tags_named
from cloudcore.wire import ResponseBody

_OPT: Final = {"action": None, "public": True, "rate_limited": True, "entity_tag": True}


class ManyRegions(ResponseBody):
    """All regions."""

    regions: Sequence[Region]


class ManyPrices(ResponseBody):
    """All prices."""

    prices: Sequence[Price]


class Document:
    """A constant response body with its entity tag (RFC 9110 §8.8.3)."""

    def __init__(self, content: ResponseBody) -> None:
        self._body = msgspec.json.encode(content)
        self._digest = hashlib.sha256(self._body).hexdigest()
        self.etag = f'"{self._digest}"'

    def answer(self, request: Request[Any, Any, Any]) -> Response[Any]:
        """Return the document, or 304 if ``If-None-Match`` matches its entity tag."""
        headers = {"ETag": self.etag, "Cache-Control": "no-cache"}
        conditions = ",".join(request.headers.getall("if-none-match", []))
        if not tags_named(conditions).isdisjoint({self._digest, "*"}):
            return Response(b"", status_code=304, headers=headers)
        return Response(self._body, headers=headers)


class Catalogues:
    """The documents of both catalogues."""

    def __init__(self, catalog: CatalogFile) -> None:
        self.regions = Document(ManyRegions(regions=catalog.regions))
        self.prices = Document(ManyPrices(prices=catalog.prices))


@get("/v1/regions", opt=_OPT)
async def list_regions(
    request: Request[Any, Any, Any], needs: Needs[Catalogues]
) -> Response[ManyRegions]:
    """List the regions of the platform, with the URLs of their services."""
    return cast("Response[ManyRegions]", needs.regions.answer(request))


@get("/v1/prices", opt=_OPT)
async def list_prices(
    request: Request[Any, Any, Any], needs: Needs[Catalogues]
) -> Response[ManyPrices]:
    """List the prices of the services."""
    return cast("Response[ManyPrices]", needs.prices.answer(request))
