"""The signing keys of this install: generate, seal, store and rotate them, for every process.

A key signs for ninety days. Its successor is generated a day before the end, so that every process
has loaded the successor before it begins to sign. A key is deleted when its last token has expired.
Processes that generate a successor at the same time give it the same id, so only one is inserted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import columns_of, find_all, insert_new
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.errors import Unavailable
from cloudcore.identity.tables import signing_keys
from cloudcore.identity.tokens.access_tokens import API, MAX_SECONDS
from cloudcore.identity.tokens.jws import EDDSA, SigningKey, load_key, new_material, public_jwk
from cloudcore.keyring import Keyring, KeyringError

_k = signing_keys.c


class SigningKeyRow(NamedTuple):
    """A signing key's row."""

    kid: str
    audience: str
    algorithm: str
    material_sealed: bytes
    created_at: int
    not_after: int


_ADD_SIGNING_KEY: Final = Statement(insert_new(signing_keys, SigningKeyRow._fields))
_LIST_SIGNING_KEYS: Final = Statement(
    columns_of(signing_keys, SigningKeyRow._fields).order_by(_k.not_after, _k.kid)
)
_FORGET: Final = Statement(signing_keys.delete().where(_k.kid.in_(listed("kids"))))


SIGNING_DAYS: Final = 90
_DAY: Final = 24 * 3600 * MICROSECONDS


class KeyKind(NamedTuple):
    """The algorithm and token lifetime of a key set."""

    algorithm: str
    longest_token: int
    """Maximum lifetime of a token, in microseconds."""


API_KEYS: Final[Mapping[str, KeyKind]] = {API: KeyKind(EDDSA, MAX_SECONDS * MICROSECONDS)}
"""The key set of access tokens; other families that sign tokens add their own key sets."""


class SigningKeys:
    """The keys that this process has loaded; call `refresh` before use, then every few minutes."""

    def __init__(
        self, database: Database, keyring: Keyring, clock: Clock, kinds: Mapping[str, KeyKind]
    ) -> None:
        """Manage the key sets in `kinds`, which maps their names (audiences) to their kinds."""
        self._kinds = kinds
        self._database = database
        self._keyring = keyring
        self._clock = clock
        self._keys: dict[tuple[str, str], SigningKey] = {}

    async def refresh(self) -> None:
        """Load the keys of other processes, generate keys that are due, and delete expired ones.

        Raise `KeyringError` if the keys were sealed under another root key.
        """
        now = self._clock()
        kept = await self._database.read(list_signing_keys)
        due = [row for audience in self._kinds if (row := self._successor(audience, kept, now))]
        ended = [row.kid for row in kept if self._has_ended(row, now)]
        if due or ended:
            kept = await self._database.write(_replace, due, ended)
        self._keys = {
            (row.audience, row.kid): self._keys.get((row.audience, row.kid)) or self._load(row)
            for row in kept
        }

    def current(self, audience: str) -> SigningKey:
        """Return the key to sign with: the oldest key whose signing period has not ended.

        Raise `Unavailable` if there is none, since `refresh` has failed for more than a day.
        """
        now = self._clock()
        able = [key for key in self._keys_of(audience) if now < key.not_after]
        if not able:
            raise Unavailable("there is no signing key")
        return min(able, key=lambda key: key.not_after)

    def find(self, audience: str, kid: str) -> SigningKey | None:
        """Return the key of an audience with this id, or None if this process has not loaded it."""
        return self._keys.get((audience, kid))

    def public_set(self) -> list[dict[str, Any]]:
        """Return the public keys that verify access tokens, including the next signing key."""
        return [public_jwk(key) for key in self._keys_of(API)]

    def _keys_of(self, audience: str) -> list[SigningKey]:
        return [key for (found, _), key in self._keys.items() if found == audience]

    def _successor(
        self, audience: str, kept: list[SigningKeyRow], now: int
    ) -> SigningKeyRow | None:
        """Return a new key for an audience, or None if a stored key will still sign in a day."""
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


def opens_all(keyring: Keyring, kept: list[SigningKeyRow]) -> bool:
    """Return True if all keys in `kept` were sealed under the root key of `keyring`."""
    try:
        for row in kept:
            keyring.open(row.material_sealed, _context(row.kid))
    except KeyringError:
        return False
    return True


def _replace(tx: Connection, due: list[SigningKeyRow], ended: list[str]) -> list[SigningKeyRow]:
    for row in due:
        # Does nothing if another process has added a key with this id.
        tx.execute(_ADD_SIGNING_KEY, **row._asdict())
    tx.execute(_FORGET, kids=text_list(ended))
    return list_signing_keys(tx)


def _context(kid: str) -> str:
    return f"signing-key:{kid}"


def list_signing_keys(tx: Connection) -> list[SigningKeyRow]:
    """List the keys of all audiences, sorted by `not_after`."""
    return find_all(tx, SigningKeyRow, _LIST_SIGNING_KEYS)
