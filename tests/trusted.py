"""What httpx trusts by default, read once.

Each of its clients would read all authorities anew, which takes 50 ms of a processor; thousands are
made. httpx has no setting for it.
"""

from __future__ import annotations

import os
import ssl
from functools import cache

import httpx
from httpx._transports import default


@cache
def _default_context(_file: str | None, _folder: str | None, trust_env: bool) -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=trust_env)


def _context_of(
    verify: ssl.SSLContext | str | bool = True,
    cert: str | tuple[str, str] | None = None,
    trust_env: bool = True,
) -> ssl.SSLContext:
    if verify is True and cert is None:
        file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
        return _default_context(file, folder, trust_env)
    return httpx.create_ssl_context(verify, cert, trust_env)


vars(default)["create_ssl_context"] = _context_of
