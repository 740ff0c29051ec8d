"""Which URLs of identity providers are asked: owners of organizations name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloudcore.outbound import destinations
from cloudcore.outbound.destinations import Allowed

MAX_URL: Final = 1000


def allowed_providers(internal_origins: Sequence[str]) -> Allowed:
    """Return what may be asked besides the public internet: the origins that an operator lists."""
    return Allowed("ENTREPOT_OIDC_INTERNAL_ORIGINS", tuple(internal_origins))


def check_url(url: str, internal_origins: Sequence[str]) -> None:
    """Check a URL that is asked later, before its name is resolved.

    Raises:
        ValueError: with the reason as a sentence.

    """
    if len(url) > MAX_URL:
        raise ValueError(f"a URL has at most {MAX_URL} characters")
    destinations.check_url(url, allowed_providers(internal_origins))
