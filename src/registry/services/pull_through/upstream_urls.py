"""The URLs of upstreams that a rule may name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from cloudcore.errors import InvalidInput
from cloudcore.identity.oidc.destinations import check_url, origin_of

_DOCKER_HUB: Final = "https://registry-1.docker.io"
_OTHER_NAMES: Final = {
    "https://docker.io": _DOCKER_HUB,
    "https://index.docker.io": _DOCKER_HUB,
    "https://hub.docker.com": _DOCKER_HUB,
    "https://registry.hub.docker.com": _DOCKER_HUB,
}
"""Names of a registry under which no registry answers."""


def upstream_origin(url: str, allowed_origins: Sequence[str]) -> str:
    """Return the origin of an upstream's URL; `allowed_origins` are those that may be inside.

    Nothing is asked: the addresses of the name are checked at each connection.

    Raises:
        InvalidInput: it is no origin, or this install may not ask it.

    """
    try:
        check_url(url, allowed_origins)
    except ValueError as error:
        raise InvalidInput(
            f"upstream_url: {error}", field="upstream_url", reason="not_allowed"
        ) from None
    parts = urlsplit(url)
    if parts.path not in ("", "/") or parts.query or url.endswith("?"):
        raise InvalidInput(
            "upstream_url: write it as https://HOST; what comes after it belongs into"
            " upstream_prefix",
            field="upstream_url",
            reason="malformed",
        )
    origin = origin_of(url)
    return _OTHER_NAMES.get(origin, origin)
