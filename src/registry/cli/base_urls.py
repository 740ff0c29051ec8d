"""Where a registry has each family: the base URLs that its ``GET /v1/regions`` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from registry.families import FAMILIES

PLACE: Final = "/v1/regions"
PULL: Final = "pull"
_MAIN: Final = "api"
_PARTS: Final[Mapping[str, str]] = {
    "/v2": PULL,
    **{path: each.host for each in FAMILIES if each.host for path in each.paths},
}
"""What serves a path, by its first segments."""


def url_for(path: str, url: str, own_urls: Mapping[str, str]) -> str:
    """Return the base URL of a path with its query, of those at `url` or elsewhere."""
    segments = path.partition("?")[0].split("/")
    part = _PARTS.get("/".join(segments[:2])) or _PARTS.get("/".join(segments[:3]), _MAIN)
    return own_urls.get(part) or own_urls.get(_MAIN) or url


def own_urls_in(document: Mapping[str, Any], url: str) -> Mapping[str, str]:
    """Return where families are, by the regions of the registry at `url`; empty: all are there.

    A registry that is reached by a name which it does not tell serves all there. Nothing is sent by
    plain HTTP that would not be at `url`.
    """
    scheme = url.partition("://")[0]
    for region in document.get("regions", ()):
        endpoints: Mapping[str, str] = region.get("endpoints", {})
        if url in endpoints.values():
            known = {
                part: found
                for part, found in endpoints.items()
                if part in (_MAIN, *_PARTS.values()) and found.partition("://")[0] == scheme
            }
            return known if {*known.values()} != {url} else {}
    return {}
