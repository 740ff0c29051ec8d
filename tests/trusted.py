"""What httpx trusts by default, read once: each of its clients would read all authorities anew."""

from __future__ import annotations

import ssl
from functools import cache
from typing import Final

import httpx
from httpx._transports import default

_default_context: Final = cache(httpx.create_ssl_context)


def _context_of(
    verify: ssl.SSLContext | str | bool = True,
    cert: str | tuple[str, str] | None = None,
    trust_env: bool = True,
) -> ssl.SSLContext:
    if verify is True and cert is None:
        return _default_context(trust_env=trust_env)
    return httpx.create_ssl_context(verify, cert, trust_env)


vars(default)["create_ssl_context"] = _context_of
