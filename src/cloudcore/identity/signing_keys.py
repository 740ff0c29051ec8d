"""The signing keys of this install: made, sealed, rotated, and given to every process.

A key signs for ninety days. Its successor is made a day before, so when the day comes each
process has it; until then the older one signs. It goes when the last token under it has ended.
Processes that make a successor at once make it under one name, so that one of them does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unavailable
from cloudcore.identity.jws import EDDSA, SigningKey, load_key, new_material, public_jwk
from cloudcore.identity.rows import signing_keys as rows
from cloudcore.identity.rows.signing_keys import SigningKeyRow
from cloudcore.identity.tokens import API, MAX_SECONDS
from cloudcore.keyring import Keyring

SIGNING_DAYS: Final = 90
_DAY: Final = 24 * 3600 * MICROSECONDS


class KeyKind(NamedTuple):
    """What the keys of a set are for."""

    algorithm: str
    longest_token: int
    """Microseconds that a token lives at most."""


API_KEYS: Final[Mapping[str, KeyKind]] = {API: KeyKind(EDDSA, MAX_SECONDS * MICROSECONDS)}
"""The key set of access tokens; families that sign tokens add theirs."""


class SigningKeys:
    """The keys as this process knows them; `refresh` once before use and then every few minutes."""

    def __init__(
        self, database: Database, keyring: Keyring, clock: Clock, kinds: Mapping[str, KeyKind]
    ) -> None:
        """Keep the key sets named in `kinds`."""
        self._kinds = kinds
        self._database = database
        self._keyring = keyring
        self._clock = clock
        self._keys: dict[tuple[str, str], SigningKey] = {}

    async def refresh(self) -> None:
        """Learn what other processes made, make what is due, forget what has ended.

        Raises:
            KeyringError: the keys were sealed under another root key.

        """
        now = self._clock()
        kept = await self._database.read(rows.list_signing_keys)
        due = [row for audience in self._kinds if (row := self._successor(audience, kept, now))]
        ended = [row.kid for row in kept if self._has_ended(row, now)]
        if due or ended:
            kept = await self._database.write(_replace, due, ended)
        self._keys = {
            (row.audience, row.kid): self._keys.get((row.audience, row.kid)) or self._load(row)
            for row in kept
        }

    def current(self, audience: str) -> SigningKey:
        """Return the key that signs now: the oldest whose time is not over.

        Raises:
            Unavailable: there is none, because `refresh` failed for a day.

        """
        now = self._clock()
        able = [key for key in self._of(audience) if now < key.not_after]
        if not able:
            raise Unavailable("there is no signing key")
        return min(able, key=lambda key: key.not_after)

    def find(self, audience: str, kid: str) -> SigningKey | None:
        """Return a key of an audience by its id."""
        return self._keys.get((audience, kid))

    def public_set(self) -> list[dict[str, Any]]:
        """Return what others verify access tokens with, the next key included."""
        return [public_jwk(key) for key in self._of(API)]

    def _of(self, audience: str) -> list[SigningKey]:
        return [key for (found, _), key in self._keys.items() if found == audience]

    def _successor(
        self, audience: str, kept: list[SigningKeyRow], now: int
    ) -> SigningKeyRow | None:
        """Return the key to make, unless there is one that will sign tomorrow."""
        of_audience = [row for row in kept if row.audience == audience]
        begins = max([now, *(row.not_after for row in of_audience)])
        if begins > now + _DAY:
            return None
        number = 1 + max([0, *(int(row.kid.rpartition("-")[2]) for row in of_audience)])
        kid = f"{audience}-{number}"
        algorithm = self._kinds[audience].algorithm
        sealed = self._keyring.seal(new_material(algorithm), _context(kid))
        return SigningKeyRow(kid, audience, algorithm, sealed, now, begins + SIGNING_DAYS * _DAY)

    def _load(self, row: SigningKeyRow) -> SigningKey:
        material = self._keyring.open(row.material_sealed, _context(row.kid))
        return load_key(row.kid, row.algorithm, row.not_after, material)

    def _has_ended(self, row: SigningKeyRow, now: int) -> bool:
        kind = self._kinds.get(row.audience)
        return kind is not None and row.not_after + kind.longest_token < now


def _replace(tx: Connection, due: list[SigningKeyRow], ended: list[str]) -> list[SigningKeyRow]:
    for row in due:
        rows.add_signing_key(tx, row)
    rows.forget_signing_keys(tx, ended)
    return rows.list_signing_keys(tx)


def _context(kid: str) -> str:
    return f"signing-key:{kid}"
