"""How often passwords may be tried: by a client address, at a person, from a known browser.

A success is given back, so budgets count failures. One counts all: whoever adds a person of
another's e-mail address could give it the password to guess, and so never fail.

A refused attempt costs no hash, and retrying it does not lengthen the wait: otherwise anyone could
keep others out for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import RateLimited, Unavailable
from cloudcore.iam.passwords import Asker
from cloudcore.identity.known_browser import KnownBrowser
from cloudcore.identity.rows.users import User
from cloudcore.serving.source_address import rate_subject
from cloudcore.web.context import RequestContext
from cloudcore.web.ratelimit import Budget, RateLimitStatus, count_request, give_back

_SECONDS: Final = 300
ADDRESS_BUDGET: Final = Budget(limit=30, window_seconds=_SECONDS, is_extended=False)
"""Failed attempts of one client address (IPv6: /64) at all persons together."""
PERSON_BUDGET: Final = Budget(limit=10, window_seconds=_SECONDS, is_extended=False)
"""Failed attempts of one client address at one e-mail address; also of one known browser at its
person, and of a signed-in person at the person's own password."""
SIGN_IN_BUDGET: Final = Budget(limit=30, window_seconds=_SECONDS, is_extended=False)
"""Attempts of one client address at one e-mail address, failed or not, but in known browsers."""
_ENDPOINT: Final = "sign-in"


class _Charge(NamedTuple):
    """One budget that an attempt counts against."""

    subject: str
    budget: Budget


class Attempt(NamedTuple):
    """An attempt at a password: who makes it, and what it counts against."""

    asker: Asker
    charges: tuple[_Charge, ...]
    lasting: tuple[_Charge, ...] = ()
    """Those that are not given back on success."""

    async def verify(self, ctx: RequestContext, password: str, kept: str) -> bool:
        """Return True if `kept` is the password's hash.

        Raises:
            RateLimited: a budget is exhausted.
            Unavailable: too many passwords wait to be hashed.

        """
        (is_right,) = await self._match(ctx, password, [kept])
        return is_right

    async def find_matching(
        self, ctx: RequestContext, password: str, persons: Sequence[User]
    ) -> list[User]:
        """Return the persons, of those of one address, whom this password lets in.

        However many there are, the work is that for one; see `cloudcore.iam.passwords`.

        Raises:
            RateLimited: a budget is exhausted.
            Unavailable: too many passwords wait to be hashed.

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
            raise RateLimited("too many attempts", retry_after=refused.reset)
        try:
            return await ctx.passwords.match(password, kept, self.asker)
        except Unavailable:
            await ctx.database.write_relaxed(_give_back, every, ctx.clock())
            raise

    async def is_admitted(self, ctx: RequestContext) -> bool:
        """Count the attempt without hashing anything; return False if a budget is exhausted."""
        every = (*self.charges, *self.lasting)
        return await ctx.database.write_relaxed(_count, every, ctx.clock()) is None

    async def forgive(self, ctx: RequestContext) -> None:
        """Take this attempt back: it succeeded."""
        await ctx.database.write_relaxed(_give_back, self.charges, ctx.clock())


def attempt_in(browser: KnownBrowser) -> Attempt:
    """Return an attempt to sign in as the person of a known browser, at the budget of both."""
    charge = _Charge(f"browser {browser.browser_id}", PERSON_BUDGET)
    return Attempt(Asker(browser.user_id, is_known=True), (charge,))


def attempt_at(ctx: RequestContext, email: str) -> Attempt:
    """Return a stranger's attempt to sign in as a person of an address.

    It counts against the budgets of the client address, in the same way whether or not there is
    such a person.
    """
    source = rate_subject(ctx.source_ip)
    person = sha256(email.encode("utf-8", "surrogatepass")).hexdigest()
    return Attempt(
        Asker(source, is_known=False),
        (
            _Charge(f"address {source}", ADDRESS_BUDGET),
            _Charge(f"{person} {source}", PERSON_BUDGET),
        ),
        (_Charge(f"every {person} {source}", SIGN_IN_BUDGET),),
    )


def attempt_of(user: User) -> Attempt:
    """Return an attempt of a person, who is signed in or has shown a one-time password."""
    return Attempt(Asker(user.id, is_known=True), (_Charge(f"person {user.id}", PERSON_BUDGET),))


def _count(tx: Connection, charges: Sequence[_Charge], now: int) -> RateLimitStatus | None:
    """Count an attempt; return None, or the state of the budget that refuses it."""
    for number, charge in enumerate(charges):
        standing = count_request(tx, _ENDPOINT, charge.subject, charge.budget, now)
        if standing.is_refused:
            _give_back(tx, charges[:number], now)
            return standing
    return None


def _give_back(tx: Connection, charges: Sequence[_Charge], now: int) -> None:
    for charge in charges:
        give_back(tx, _ENDPOINT, charge.subject, now)
