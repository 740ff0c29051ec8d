"""Recognize browsers in which a person has signed in before, by a sealed cookie.

An attacker who guesses a person's password uses up the attacker's budgets, not those of the
person's browsers. The cookie proves nothing else: the password is still required.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.keyring import KeyringError
from cloudcore.web.context import RequestContext

COOKIE: Final = "entrepot_known_browser"
LIFETIME_SECONDS: Final = 90 * 24 * 3600
"""Lifetime of the cookie since the last sign-in."""
_CONTEXT: Final = "known browser"


class KnownBrowser(msgspec.Struct, array_like=True, frozen=True):
    """The cookie's content, sealed."""

    user_id: str
    browser_id: str
    """Random; unchanged while the same person signs in."""
    expires_at: int


def read_known_browser(ctx: RequestContext, cookie: str | None) -> KnownBrowser | None:
    """Return the content of a browser's cookie, or None if it is invalid or expired."""
    try:
        opened = ctx.keyring.open(urlsafe_b64decode(cookie or ""), _CONTEXT)
        known = msgspec.json.decode(opened, type=KnownBrowser)
    except (KeyringError, ValueError):
        return None
    return known if ctx.clock() < known.expires_at else None


def known_browser_cookie(ctx: RequestContext, user_id: str, before: KnownBrowser | None) -> str:
    """Return the cookie for a browser in which this person has just signed in."""
    same = before is not None and before.user_id == user_id
    browser_id = before.browser_id if before and same else secrets.token_urlsafe(16)
    known = KnownBrowser(user_id, browser_id, ctx.clock() + LIFETIME_SECONDS * MICROSECONDS)
    sealed = ctx.keyring.seal(msgspec.json.encode(known), _CONTEXT)
    return urlsafe_b64encode(sealed).decode()
