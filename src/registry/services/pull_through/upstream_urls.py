"""The URLs of upstreams that a rule may name."""

from __future__ import annotations

from typing import Final

from cloudcore.errors import InvalidInput
from cloudcore.outbound.destinations import Allowed, NotAllowed, check_url

_DOCKER_HUB: Final = "https://registry-1.docker.io"
_OTHER_NAMES: Final = {
    "https://docker.io": _DOCKER_HUB,
    "https://index.docker.io": _DOCKER_HUB,
    "https://hub.docker.com": _DOCKER_HUB,
    "https://registry.hub.docker.com": _DOCKER_HUB,
}
"""Names of a registry under which no registry answers."""


def upstream_origin(url: str, allowed: Allowed) -> str:
    """Return the origin of an upstream's URL, if this install may ask it.

    Nothing is asked: the addresses of the name are checked at each connection.

    Raises:
        InvalidInput: the URL is not an origin, or this install may not ask it.

    """
    try:
        found = check_url(url, allowed)
    except NotAllowed as error:
        raise InvalidInput(
            f"upstream_url: {error}", field="upstream_url", reason="not_allowed"
        ) from None
    if found.target not in ("", "/"):
        raise InvalidInput(
            "upstream_url: write it as https://HOST; what comes after it belongs into"
            " upstream_prefix",
            field="upstream_url",
            reason="malformed",
        )
    return _OTHER_NAMES.get(found.origin, found.origin)
