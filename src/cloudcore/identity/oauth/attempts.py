"""Limit password attempts per client address, per person and per known browser.

Budgets count failures: a success is credited back. Only `SIGN_IN_BUDGET` counts successes too: an
attacker who adds a person with the victim's e-mail address and the guessed password never fails.

A refused attempt computes no hash, and does not extend the wait; otherwise anyone could lock others
out forever.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.errors import TooManyAttempts, Unavailable
from cloudcore.iam.passwords import PasswordClient
from cloudcore.identity.credentials import opened_text, sealed_text
from cloudcore.identity.rows.users import User
from cloudcore.serving.clients import rate_subject
from cloudcore.web.context import RequestContext
from cloudcore.web.rate_limits import Budget, RateLimitStatus, count_request, give_back

COOKIE: Final = "entrepot_known_browser"
LIFETIME_SECONDS: Final = 90 * 24 * 3600
"""Lifetime of the cookie; it begins anew at each sign-in."""
_CONTEXT: Final = "known browser"


class KnownBrowser(msgspec.Struct, array_like=True, frozen=True):
    """The content of the sealed cookie of a browser in which a person has signed in before.

    Known browsers have their own budgets, so an attacker who guesses passwords does not use up the
    attempts of the person's browsers. The password is still required.
    """

    user_id: str
    browser_id: str
    """A random id, unchanged as long as the same person signs in."""
    expires_at: int


def read_known_browser(ctx: RequestContext, cookie: str | None) -> KnownBrowser | None:
    """Return the content of a browser's cookie, or None if it is invalid or expired."""
    known = opened_text(ctx.keyring, cookie, _CONTEXT, KnownBrowser)
    return known if known is not None and ctx.clock() < known.expires_at else None


def known_browser_cookie(ctx: RequestContext, user_id: str, before: KnownBrowser | None) -> str:
    """Return the cookie for a browser in which a person has just signed in.

    `before` is the content of the browser's previous cookie, or None.
    """
    same = before is not None and before.user_id == user_id
    browser_id = before.browser_id if before and same else secrets.token_urlsafe(16)
    known = KnownBrowser(user_id, browser_id, ctx.clock() + LIFETIME_SECONDS * MICROSECONDS)
    return sealed_text(ctx.keyring, known, _CONTEXT)


_SECONDS: Final = 300
ADDRESS_BUDGET: Final = Budget(limit=30, window_seconds=_SECONDS, is_extended=False)
"""Failed attempts per client address (IPv6: /64), over all persons."""
PERSON_BUDGET: Final = Budget(limit=10, window_seconds=_SECONDS, is_extended=False)
"""Failed attempts per client address and e-mail address, per known browser, and per signed-in
person who changes the password."""
SIGN_IN_BUDGET: Final = Budget(limit=30, window_seconds=_SECONDS, is_extended=False)
"""All attempts, failed or not, per client address and e-mail address, except in known browsers."""
_ENDPOINT: Final = "sign-in"


class _Charge(NamedTuple):
    subject: str
    budget: Budget


class Attempt(NamedTuple):
    """A password attempt: its client, and the budgets to which it is charged."""

    client: PasswordClient
    charges: tuple[_Charge, ...]
    lasting: tuple[_Charge, ...] = ()
    """Further charges, which a success does not credit back."""

    async def verify(self, ctx: RequestContext, password: str, kept: str) -> bool:
        """Return True if `kept` is a hash of the password.

        Raise `TooManyAttempts` if a budget is exhausted, `Unavailable` if too many passwords wait
        to be hashed.
        """
        (is_right,) = await self._match(ctx, password, [kept])
        return is_right

    async def find_matching(
        self, ctx: RequestContext, password: str, persons: Sequence[User]
    ) -> list[User]:
        """Return the active persons among `persons` to whom the password belongs.

        All `persons` must have the same e-mail address: then the work is one hash, however many
        they are; see `cloudcore.iam.passwords`.

        Raise `TooManyAttempts` if a budget is exhausted, `Unavailable` if too many passwords wait
        to be hashed.
        """
        matches = await self._match(ctx, password, [user.password for user in persons])
        return [
            user
            for user, is_right in zip(persons, matches, strict=True)
            if is_right and user.status == "active"
        ]

    async def _match(self, ctx: RequestContext, password: str, kept: Sequence[str]) -> list[bool]:
        every = (*self.charges, *self.lasting)
        refused = await ctx.database.write_relaxed(_count, every, ctx.clock())
        if refused is not None:
            raise TooManyAttempts("too many attempts", retry_after=refused.reset)
        try:
            return await ctx.passwords.match(password, kept, self.client)
        except Unavailable:
            await ctx.database.write_relaxed(_give_back, every, ctx.clock())
            raise

    async def is_admitted(self, ctx: RequestContext) -> bool:
        """Count the attempt without hashing anything; return False if a budget is exhausted."""
        every = (*self.charges, *self.lasting)
        return await ctx.database.write_relaxed(_count, every, ctx.clock()) is None

    async def credit_back(self, ctx: RequestContext) -> None:
        """Credit `charges` back after a success."""
        await ctx.database.write_relaxed(_give_back, self.charges, ctx.clock())


def attempt_in(browser: KnownBrowser) -> Attempt:
    """Return a sign-in attempt from a known browser, charged to that browser."""
    charge = _Charge(f"browser {browser.browser_id}", PERSON_BUDGET)
    return Attempt(PasswordClient(browser.user_id, is_known=True), (charge,))


def attempt_at(ctx: RequestContext, email: str) -> Attempt:
    """Return a sign-in attempt at an e-mail address from an unknown browser.

    It is charged to the client address, and to the pair of client address and e-mail address,
    whether or not anyone has the e-mail address.
    """
    source = rate_subject(ctx.source_ip)
    person = sha256(email.encode("utf-8", "surrogatepass")).hexdigest()
    return Attempt(
        PasswordClient(source, is_known=False),
        (
            _Charge(f"address {source}", ADDRESS_BUDGET),
            _Charge(f"{person} {source}", PERSON_BUDGET),
        ),
        (_Charge(f"every {person} {source}", SIGN_IN_BUDGET),),
    )


def attempt_of(user: User) -> Attempt:
    """Return an attempt of a person who is signed in or has entered a one-time password."""
    return Attempt(
        PasswordClient(user.id, is_known=True), (_Charge(f"person {user.id}", PERSON_BUDGET),)
    )


def _count(tx: Connection, charges: Sequence[_Charge], now: int) -> RateLimitStatus | None:
    """Charge an attempt; if a budget is exhausted, charge nothing and return its status."""
    for number, charge in enumerate(charges):
        status = count_request(tx, _ENDPOINT, charge.subject, charge.budget, now)
        if status.is_refused:
            _give_back(tx, charges[:number], now)
            return status
    return None


def _give_back(tx: Connection, charges: Sequence[_Charge], now: int) -> None:
    for charge in charges:
        give_back(tx, _ENDPOINT, charge.subject, now)
