"""Passwords of persons, kept as scrypt strings that carry their own parameters (RFC 7914).

``scrypt$<log2 N>$<r>$<p>$<salt>$<hash>``: raising the cost later leaves old passwords readable.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from cloudcore.errors import InvalidInput

MIN_CHARACTERS: Final = 12
MAX_BYTES: Final = 1024
"""Of UTF-8; more would only cost time."""

_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_CHECKS_AT_ONCE: Final = 2


class Cost(NamedTuple):
    """What one check costs: ``128 * r * 2**log_n`` bytes, and time in proportion to ``p``."""

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


COST: Final = Cost(log_n=15, r=8, p=3)  # 32 MiB and some 250 ms

_NOBODY: Final = base64.b64encode(bytes(_SALT_BYTES)).decode()


def hash_password(password: str, cost: Cost = COST) -> str:
    """Return what is kept of a password; takes some 250 ms of a thread."""
    salt = os.urandom(_SALT_BYTES)
    parts = (salt, cost.derive(password, salt))
    return "$".join(["scrypt", *map(str, cost), *(base64.b64encode(p).decode() for p in parts)])


def verify_password(password: str, kept: str | None) -> bool:
    """Say whether a password is the one kept; without one, after the same work, it is not."""
    kept_or_dummy = kept or f"scrypt${COST.log_n}${COST.r}${COST.p}${_NOBODY}${_NOBODY}"
    _, log_n, r, p, salt, expected = kept_or_dummy.split("$")
    cost = Cost(int(log_n), int(r), int(p))
    if len(password) > MAX_BYTES:
        return False
    found = cost.derive(password, base64.b64decode(salt))
    return hmac.compare_digest(found, base64.b64decode(expected)) and kept is not None


class PasswordChecks:
    """The threads in which passwords are hashed: few, since each check takes 32 MiB and a core.

    There is one of these in a process; whoever else must wait, waits without the memory.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_CHECKS_AT_ONCE, "scrypt")

    async def verify(self, password: str, kept: str | None) -> bool:
        """Say whether a password is the one kept; see `verify_password`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, verify_password, password, kept)

    async def hash(self, password: str) -> str:
        """Return what is kept of a password."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, hash_password, password)


def check_new_password(password: str) -> None:
    """Refuse a password that is too short to withstand guessing, or too long to be one.

    Raises:
        InvalidInput: with ``field`` and ``reason``.

    """
    reason = None
    if len(password) < MIN_CHARACTERS:
        reason = "too_short"
    elif len(password.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        reason = "too_long"
    if reason is not None:
        raise InvalidInput(
            f"a password has at least {MIN_CHARACTERS} characters and at most {MAX_BYTES} bytes",
            field="password",
            reason=reason,
        )
