"""How often passwords may be tried: by a client address, at a person, from a known browser.

A success is given back, so budgets count failures. A refused attempt costs no hash, and retrying it
does not lengthen the wait: otherwise anyone could keep others out for ever.
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
"""Failed attempts of one client address at one person; also of one known browser at its person,
and of a signed-in person at the person's own password."""
_ENDPOINT: Final = "sign-in"


class _Charge(NamedTuple):
    """One budget that an attempt counts against."""

    subject: str
    budget: Budget


class Attempt(NamedTuple):
    """An attempt at a password: who makes it, and what it counts against."""

    asker: Asker
    charges: tuple[_Charge, ...]

    async def verify(self, ctx: RequestContext, password: str, kept: str | None) -> bool:
        """Return True if `kept` is the password's hash; False, after the same work, if it is None.

        Raises:
            RateLimited: a budget is exhausted.
            Unavailable: too many passwords wait to be hashed.

        """
        refused = await ctx.database.write_relaxed(_count, self.charges, ctx.clock())
        if refused is not None:
            raise RateLimited("too many attempts", retry_after=refused.reset)
        try:
            is_right = await ctx.passwords.verify(password, kept, self.asker)
        except Unavailable:
            await self.forgive(ctx)
            raise
        return is_right

    async def forgive(self, ctx: RequestContext) -> None:
        """Take this attempt back: it succeeded, or nothing was hashed."""
        await ctx.database.write_relaxed(_give_back, self.charges, ctx.clock())


def attempt_at(
    ctx: RequestContext, email: str, user: User | None, browser: KnownBrowser | None
) -> Attempt:
    """Return an attempt to sign in as the person of an address, whether or not there is one.

    It counts against the browser's own budget where this person has signed in before, else against
    those of the client address, in the same way whether or not there is such a person.
    """
    if user is not None and browser is not None and browser.user_id == user.id:
        charge = _Charge(f"browser {browser.browser_id}", PERSON_BUDGET)
        return Attempt(Asker(user.id, is_known=True), (charge,))
    source = rate_subject(ctx.source_ip)
    person = sha256(email.encode("utf-8", "surrogatepass")).hexdigest()
    return Attempt(
        Asker(source, is_known=False),
        (
            _Charge(f"address {source}", ADDRESS_BUDGET),
            _Charge(f"{person} {source}", PERSON_BUDGET),
        ),
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
