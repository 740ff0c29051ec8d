"""``Idempotency-Key``: answer a repeated request with the outcome of the first.

A record is inserted as *in progress*, in its own transaction and with a lease, and becomes
*completed* in the transaction of the effect. So there is no effect without a record. A crash leaves
a record in progress; after the lease ends, a retry takes the record over. If the first attempt is
still running then, its commit fails because of the lease token. Outcomes can contain secrets, so
they are stored sealed.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS, Clock
from cloudcore.db.base import Connection, Database
from cloudcore.db.rows import bound, deletion, given
from cloudcore.db.schema import ByteOrdered, Id, Moment, one_of
from cloudcore.db.statement import Statement
from cloudcore.db.tables import columns, indexes, table
from cloudcore.errors import Conflict, IdempotencyKeyReused, InvalidInput
from cloudcore.keyring import Keyring

LEASE_SECONDS: Final = 60
KEPT_SECONDS: Final = 24 * 3600
RECORDED_STATUSES: Final = frozenset({400, 402, 404, 409})
"""Error statuses recorded as outcomes; others are transient or not about the request itself."""

_KEY: Final = re.compile(r"[ -~]{1,255}")

idempotency_records = table(
    "idempotency_records",
    columns(Id, "principal KEY, lease_token"),
    columns(ByteOrdered, "operation KEY, key KEY"),  # method and route template
    columns(sa.String(64), "fingerprint"),
    columns(sa.String(16), "state"),
    columns(Moment, "lease_until, created_at"),
    columns(sa.Integer, "status NULL"),
    columns(sa.LargeBinary, "outcome_sealed NULL"),
    one_of("state", "in_progress", "completed"),
    sa.CheckConstraint("(state = 'completed') = (status IS NOT NULL)", name="completed_status"),
    sa.CheckConstraint(
        "(state = 'completed') = (outcome_sealed IS NOT NULL)", name="completed_outcome"
    ),
    indexes("created_at"),
)


class InProgress(Conflict):
    """Another attempt with the same key is running, or has taken over the record of this one."""

    retry_after = 1

    def __init__(self) -> None:
        super().__init__("a request with this Idempotency-Key is being processed")


class KeyScope(NamedTuple):
    """A key, with the principal and operation within which it is unique."""

    principal: str
    operation: str
    key: str

    @property
    def sealing_context(self) -> str:
        """Return the sealing context, which binds an outcome to its record."""
        return f"idempotency:{self.principal}:{self.operation}:{self.key}"


class Claim(NamedTuple):
    """One attempt's claim to a record."""

    scope: KeyScope
    fingerprint: str
    lease_token: str


class RecordedOutcome(msgspec.Struct, frozen=True):
    """A recorded response, with the permissions that its caller needed."""

    status: int
    content_type: str
    location: str | None
    body: bytes
    authorized: Sequence[tuple[str, str]]
    """Pairs of action and resource, checked again before a replay."""

    def seal(self, keyring: Keyring, scope: KeyScope) -> bytes:
        """Seal the outcome for storage."""
        return keyring.seal(msgspec.msgpack.encode(self), scope.sealing_context)

    @classmethod
    def open(cls, sealed: bytes, keyring: Keyring, scope: KeyScope) -> RecordedOutcome:
        """Unseal a stored outcome."""
        return msgspec.msgpack.decode(keyring.open(sealed, scope.sealing_context), type=cls)


def parse_key(values: Sequence[bytes]) -> str | None:
    """Return the key in the header's `values`, or None if the header is absent.

    Raise `InvalidInput` if it is not one value of 1 to 255 printable ASCII characters. Quotes count
    as part of the key.
    """
    if not values:
        return None
    key = values[0].decode("latin-1")
    if len(values) > 1 or not _KEY.fullmatch(key):
        raise InvalidInput(
            "an Idempotency-Key is one value of 1 to 255 printable ASCII characters",
            field="Idempotency-Key",
            reason="malformed",
        )
    return key


def fingerprint(path: bytes, query: bytes, body: bytes) -> str:
    """Return the SHA-256 of a request's path, query and body, which a repetition must match."""
    digest = hashlib.sha256()
    for part in (path, query, body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


_r = idempotency_records.c
_IS_RECORD: Final = given(_r.principal, _r.operation, _r.key)
_IS_OURS: Final = (
    _IS_RECORD,
    _r.lease_token == sa.bindparam("lease_token_held"),
    _r.state == sa.text("'in_progress'"),
)

_BEGIN: Final = Statement(
    insert(idempotency_records)
    .values(
        **bound(("principal", "operation", "key", "fingerprint", "lease_token", "lease_until")),
        state=sa.text("'in_progress'"),
        created_at=sa.bindparam("now"),
    )
    .on_conflict_do_nothing()
)
_LOCK: Final = Statement(
    sa.select(_r.fingerprint, _r.lease_until, _r.outcome_sealed, _r.created_at)
    .where(_IS_RECORD)
    .with_for_update()
)
_TAKE_OVER: Final = Statement(
    sa.update(idempotency_records)
    .where(_IS_RECORD)
    .values(lease_token=sa.bindparam("lease_token"), lease_until=sa.bindparam("lease_until"))
)
_FORGET: Final = Statement(sa.delete(idempotency_records).where(_IS_RECORD))
_COMPLETE: Final = Statement(
    sa.update(idempotency_records)
    .where(*_IS_OURS)
    .values(
        state=sa.text("'completed'"),
        status=sa.bindparam("status"),
        outcome_sealed=sa.bindparam("outcome_sealed"),
    )
)
_RELEASE: Final = Statement(sa.delete(idempotency_records).where(*_IS_OURS))
forget_expired: Final = deletion(_r.created_at, kept_seconds=KEPT_SECONDS)
"""Deletes a batch of the records older than `KEPT_SECONDS`."""


def begin(connection: Connection, claim: Claim, now: int) -> bytes | None:
    """Claim the record and return None, or return the sealed outcome if it is completed.

    Raise `IdempotencyKeyReused` if the key was used with another request, `InProgress` if another
    attempt holds the record.
    """
    lease = {
        "lease_token": claim.lease_token,
        "lease_until": now + LEASE_SECONDS * MICROSECONDS,
    }
    fresh = {**claim.scope._asdict(), **lease, "fingerprint": claim.fingerprint, "now": now}
    if connection.execute(_BEGIN, **fresh):
        return None
    found = connection.row(_LOCK, **claim.scope._asdict())
    if found is None:  # released meanwhile
        raise InProgress
    used_with, lease_until, outcome, created_at = found
    if created_at + KEPT_SECONDS * MICROSECONDS <= now:
        connection.execute(_FORGET, **claim.scope._asdict())
        connection.execute(_BEGIN, **fresh)
        return None
    if used_with != claim.fingerprint:
        raise IdempotencyKeyReused("the Idempotency-Key was used with another request")
    if outcome is not None:
        return bytes(outcome)
    if lease_until > now:
        raise InProgress
    connection.execute(_TAKE_OVER, **claim.scope._asdict(), **lease)
    return None


def complete(connection: Connection, claim: Claim, status: int, sealed: bytes) -> None:
    """Record the outcome, in the transaction of the effect.

    Raise `InProgress` if another attempt has taken over the record; the effect must be rolled back.
    """
    kept = connection.execute(
        _COMPLETE,
        **claim.scope._asdict(),
        lease_token_held=claim.lease_token,
        status=status,
        outcome_sealed=sealed,
    )
    if not kept:
        raise InProgress


def release(connection: Connection, claim: Claim) -> None:
    """Delete the claim's record, unless it is completed or taken over."""
    connection.execute(_RELEASE, **claim.scope._asdict(), lease_token_held=claim.lease_token)


_LOOKS: Final = 100
_PAUSE_SECONDS: Final = 0.05


class RunOnce:
    """Runs each action once and stores its outcome in the database."""

    def __init__(
        self, database: Database, keyring: Keyring, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._database = database
        self._keyring = keyring
        self._clock = clock
        self._new_id = new_id

    async def __call__(
        self, principal: str, operation: str, key: str, action: Callable[[], Awaitable[bytes]]
    ) -> bytes | None:
        """Run `action`, unless it was run before with this key, and return its outcome.

        If another worker is running it, wait up to 5 s for its outcome, then return None. If
        `action` raises, there is no outcome, and the next call runs it again.
        """
        scope = KeyScope(principal, operation, key)
        claim = Claim(scope, key, self._new_id())
        for _ in range(_LOOKS):
            try:
                sealed = await self._database.write_relaxed(begin, claim, self._clock())
                break
            except InProgress:
                await asyncio.sleep(_PAUSE_SECONDS)
        else:
            return None
        if sealed is not None:
            return RecordedOutcome.open(sealed, self._keyring, scope).body
        try:
            body = await action()
        except BaseException:
            await self._database.write_relaxed(release, claim)
            raise
        outcome = RecordedOutcome(200, "", None, body, ())
        sealed = outcome.seal(self._keyring, scope)
        await self._database.write(complete, claim, 200, sealed)
        return body
