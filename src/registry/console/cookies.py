"""Sealed cookies: a browser can send them back, but not read or change them."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TypeVar

import msgspec

from cloudcore.keyring import Keyring, KeyringError

T = TypeVar("T")


class CookieJar:
    """Seals cookies whose path is that of the console."""

    def __init__(self, keyring: Keyring, url: str) -> None:
        self._keyring = keyring
        self._flags = "; Path=/console; HttpOnly; SameSite=Lax"
        if url.startswith("https:"):
            self._flags += "; Secure"

    def seal(self, name: str, value: msgspec.Struct, seconds: int = 0) -> str:
        """Return the ``Set-Cookie`` value of a cookie for `seconds`, or for a session."""
        sealed = self._keyring.seal(msgspec.msgpack.encode(value), _context(name))
        age = f"; Max-Age={seconds}" if seconds else ""
        return f"{name}={urlsafe_b64encode(sealed).decode()}{self._flags}{age}"

    def drop(self, name: str) -> str:
        """Return the ``Set-Cookie`` value that deletes a cookie."""
        return f"{name}={self._flags}; Max-Age=0"

    def open(self, name: str, cookie: str | None, shape: type[T]) -> T | None:
        """Return the value of a cookie, or None if this console did not seal it."""
        try:
            opened = self._keyring.open(urlsafe_b64decode(cookie or ""), _context(name))
            return msgspec.msgpack.decode(opened, type=shape)
        except (ValueError, KeyringError):
            return None


def _context(name: str) -> str:
    return f"cookie:{name}"
