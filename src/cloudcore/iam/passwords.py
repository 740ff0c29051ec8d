"""Hash and check passwords of persons, with scrypt (RFC 7914).

Stored as ``scrypt$<log2 N>$<r>$<p>$<salt>$<hash>``. All persons with the same e-mail address share
a salt, so one derivation checks a password against all of them. A check for an unknown address
takes just as long.

To raise `COST`, move the old value to `PREVIOUS_COSTS`. Passwords stored with the old cost stay
valid until they are changed. For each previous cost, every check takes one more derivation,
whatever the address.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar, TypeVarTuple

from cloudcore.errors import InvalidInput, Unavailable
from cloudcore.threads import FairQueue

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MIN_CHARACTERS: Final = 12
MAX_BYTES: Final = 1024
"""Maximum length in bytes of UTF-8; longer passwords would only cost time."""

MAX_WAITING: Final = 32
"""Places in each of the two queues, including running checks: 4 s of work for 2 threads."""
MAX_WAITING_EACH: Final = 8
"""Maximum places of one client in a queue."""

SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_CHECKS_AT_ONCE: Final = 2
_RETRY_SECONDS: Final = 5


class ScryptCost(NamedTuple):
    """Cost of one check: ``128 * r * 2**log_n`` bytes, and time proportional to ``p``."""

    log_n: int
    r: int
    p: int

    def derive(self, password: str, salt: bytes) -> bytes:
        """Return the hash of a password."""
        return hashlib.scrypt(
            password.encode("utf-8", "surrogatepass"),
            salt=salt,
            n=1 << self.log_n,
            r=self.r,
            p=self.p,
            maxmem=2 * 128 * self.r * (1 << self.log_n),
            dklen=_HASH_BYTES,
        )


COST: Final = ScryptCost(log_n=15, r=8, p=3)  # 32 MiB and some 250 ms
PREVIOUS_COSTS: Final[tuple[ScryptCost, ...]] = ()
"""Lower costs of stored passwords that are still valid."""

_UNUSED_SALT: Final = bytes(SALT_BYTES)
"""The salt for derivations whose result is not used."""


class _Parameters(NamedTuple):
    cost: ScryptCost
    salt: bytes


class _StoredPassword(NamedTuple):
    parameters: _Parameters
    expected: bytes


def hash_password(password: str, cost: ScryptCost | None = None, salt: bytes | None = None) -> str:
    """Return the scrypt string of a password; takes some 250 ms of a thread at `COST`, the default.

    `salt` is the salt of the person's e-mail address; None for a random salt.
    """
    cost, salt = cost or COST, salt or os.urandom(SALT_BYTES)
    return _stored(cost, salt, cost.derive(password, salt))


def unusable_password(salt: bytes) -> str:
    """Return a scrypt string that no password matches, for a person without a password.

    The string contains `salt`, the salt of the person's e-mail address, so that a sign-in takes as
    long as with a password.
    """
    return _stored(COST, salt, os.urandom(_HASH_BYTES))


def _stored(cost: ScryptCost, *parts: bytes) -> str:
    return "$".join(["scrypt", *map(str, cost), *(base64.b64encode(p).decode() for p in parts)])


def salt_of(kept: str) -> bytes:
    """Return the salt of a stored password."""
    return _parse(kept).parameters.salt


def match_passwords(password: str, kept: Sequence[str]) -> list[bool]:
    """Return, for each stored password in `kept`, True if it matches.

    Stored passwords with the same salt and cost share one derivation; an empty `kept` costs one
    derivation too. All stored passwords are compared, each in constant time.
    """
    if len(password) > MAX_BYTES:
        return [False] * len(kept)
    parsed = [_parse(each) for each in kept]
    derived = {each: each.cost.derive(password, each.salt) for each in _derivations(parsed)}
    return [hmac.compare_digest(derived[each.parameters], each.expected) for each in parsed]


def _derivations(kept: Sequence[_StoredPassword]) -> Iterator[_Parameters]:
    """Yield the needed derivations, and enough dummy ones that every attempt costs the same."""
    needed = dict.fromkeys(each.parameters for each in kept)
    yield from needed
    padding = 1 + len(PREVIOUS_COSTS) - len(needed)
    costs = {each.cost for each in needed}
    unused = [cost for cost in (COST, *PREVIOUS_COSTS) if cost not in costs]
    yield from (_Parameters(cost, _UNUSED_SALT) for cost in unused[: max(0, padding)])


def _parse(kept: str) -> _StoredPassword:
    _, log_n, r, p, salt, expected = kept.split("$")
    cost = ScryptCost(int(log_n), int(r), int(p))
    return _StoredPassword(_Parameters(cost, base64.b64decode(salt)), base64.b64decode(expected))


class PasswordClient(NamedTuple):
    """A client that waits for a password hash."""

    subject: str
    """Id of the signed-in user or of a known browser's user, or else the client's address."""
    is_known: bool
    """True for signed-in users and for browsers in which the user has signed in before."""


class PasswordChecks:
    """The threads that hash passwords; two, because each check takes 32 MiB and a core.

    A process has one instance. Known and unknown clients wait in two queues that are served in
    turn; the clients of a queue are served in turn as well, so one check does not wait for all
    checks of another client. Each queue has `MAX_WAITING` places, at most `MAX_WAITING_EACH` per
    client. If a queue is full, a client without a check in it displaces the last check of the
    client with the most waiting checks, if that client has several.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_CHECKS_AT_ONCE, "scrypt")
        self._running = 0
        self._lines = {is_known: FairQueue[asyncio.Future[None]]() for is_known in (True, False)}
        self._places: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        self._was_known = False

    async def match(self, password: str, kept: Sequence[str], client: PasswordClient) -> list[bool]:
        """Return, for each stored password in `kept`, True if it matches; see `match_passwords`.

        Raise `Unavailable` if too many passwords wait to be hashed, of this client or in total.
        """
        return await self._run(client, match_passwords, password, kept)

    async def hash(self, password: str, client: PasswordClient, salt: bytes) -> str:
        """Return the scrypt string to store, with the salt of the person's e-mail address.

        Raises:
            Unavailable: as in `match`.

        """
        return await self._run(client, hash_password, password, COST, salt)

    async def _run(self, client: PasswordClient, work: Callable[[*Ts], T], *args: *Ts) -> T:
        places = self._places[client.is_known]
        if places[client.subject] >= MAX_WAITING_EACH:
            raise _too_many()
        if places.total() >= MAX_WAITING and (places[client.subject] or not self._displace(client)):
            raise _too_many()
        places[client.subject] += 1
        try:
            await self._turn(client)
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, work, *args)
            finally:
                self._give_turn()
        finally:
            places[client.subject] -= 1
            if not places[client.subject]:
                del places[client.subject]

    async def _turn(self, client: PasswordClient) -> None:
        """Wait until a thread is free, and reserve it."""
        if self._running < _CHECKS_AT_ONCE:
            self._running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines[client.is_known].put(client.subject, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give_turn()
            raise

    def _give_turn(self) -> None:
        """Hand the thread to a waiting check, first from the queue not served last, or free it."""
        for is_known in (not self._was_known, self._was_known):
            while self._lines[is_known]:
                turn = self._lines[is_known].take()
                if not turn.done():
                    self._was_known = is_known
                    turn.set_result(None)
                    return
        self._running -= 1

    def _displace(self, client: PasswordClient) -> bool:
        """Fail the last check of the client with the most waiting checks in the queue of `client`.

        The check fails with `Unavailable`. Return False, and fail none, if no client has several.
        """
        longest = self._lines[client.is_known].longest()
        if len(longest) <= 1:
            return False
        last = longest.pop()
        if not last.done():
            last.set_exception(_too_many())
        return True


def _too_many() -> Unavailable:
    return Unavailable("too many passwords are being checked", retry_after=_RETRY_SECONDS)


def check_new_password(password: str) -> None:
    """Check the length of a new password.

    Raise `InvalidInput`, with ``field`` and ``reason``, if it is too short or too long.
    """
    is_short = len(password) < MIN_CHARACTERS
    if is_short or len(password.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise InvalidInput(
            f"a password has at least {MIN_CHARACTERS} characters and at most {MAX_BYTES} bytes",
            field="password",
            reason="too_short" if is_short else "too_long",
        )
