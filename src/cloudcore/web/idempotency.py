"""``Idempotency-Key``: a request that is sent again has the outcome of its first time (api F).

A record goes from nothing to *in progress*, in a transaction of its own and with a lease, and on
to *completed* in the transaction of the effect itself. So there is never an effect without a
record of it. A crash leaves a record in progress; once its lease is over a retry takes it over,
and should the first attempt still live, its commit fails on the lease token.

Outcomes can hold secrets ("shown once" and "verbatim" both hold), so they are sealed at rest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import (
    CheckConstraint,
    Column,
    Integer,
    LargeBinary,
    String,
    Table,
    bindparam,
    delete,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.db.schema import ByteOrdered, Id, Moment, metadata
from cloudcore.db.statement import Statement
from cloudcore.errors import Conflict, IdempotencyKeyReused, InvalidInput
from cloudcore.keyring import Keyring

LEASE_SECONDS: Final = 60
KEPT_SECONDS: Final = 24 * 3600
RECORDED_STATUSES: Final = frozenset({400, 404, 409})
"""Refusals that are outcomes; the others are transient or say nothing of the request itself."""

_KEY: Final = re.compile(r"[ -~]{1,255}")

idempotency_records = Table(
    "idempotency_records",
    metadata,
    Column("principal", Id, primary_key=True),
    Column("operation", ByteOrdered, primary_key=True),  # method and route template
    Column("key", ByteOrdered, primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("lease_token", Id, nullable=False),
    Column("lease_until", Moment, nullable=False),
    Column("status", Integer),
    Column("outcome_sealed", LargeBinary),
    Column("created_at", Moment, nullable=False, index=True),
    CheckConstraint("state IN ('in_progress', 'completed')", name="state"),
    CheckConstraint("(state = 'completed') = (status IS NOT NULL)", name="completed_status"),
    CheckConstraint(
        "(state = 'completed') = (outcome_sealed IS NOT NULL)", name="completed_outcome"
    ),
)


class InProgress(Conflict):
    """An attempt under the same key has not ended, or another attempt has taken this one over."""

    retry_after = 1

    def __init__(self) -> None:
        super().__init__("a request with this Idempotency-Key is being processed")


class Scope(NamedTuple):
    """What a key is unique in."""

    principal: str
    operation: str
    key: str

    @property
    def sealing_context(self) -> str:
        """Bind a sealed outcome to its record."""
        return f"idempotency:{self.principal}:{self.operation}:{self.key}"


class Claim(NamedTuple):
    """One attempt's hold on a record."""

    scope: Scope
    fingerprint: str
    lease_token: str


class Outcome(msgspec.Struct, frozen=True):
    """An answer as it is recorded, and what its caller had to be allowed to get it."""

    status: int
    content_type: str
    location: str | None
    body: bytes
    authorized: Sequence[tuple[str, str]]
    """Pairs of action and resource, checked anew before a replay."""

    def seal(self, keyring: Keyring, scope: Scope) -> bytes:
        """Return the form that is kept."""
        return keyring.seal(msgspec.msgpack.encode(self), scope.sealing_context)

    @classmethod
    def open(cls, sealed: bytes, keyring: Keyring, scope: Scope) -> Outcome:
        """Return what `seal` sealed."""
        return msgspec.msgpack.decode(keyring.open(sealed, scope.sealing_context), type=cls)


def parse_key(values: Sequence[bytes]) -> str | None:
    """Return the key that the header's `values` hold; None when the header is absent.

    Raises:
        InvalidInput: it is not one value of 1 to 255 printable ASCII characters. Quotes are part
            of a key like any other character.

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
    """Return the SHA-256 of what must be equal for a request to be the same one."""
    digest = hashlib.sha256()
    for part in (path, query, body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


_r = idempotency_records.c
_IS_RECORD: Final = (
    _r.principal == bindparam("principal"),
    _r.operation == bindparam("operation"),
    _r.key == bindparam("key"),
)
_IS_OURS: Final = (
    *_IS_RECORD,
    _r.lease_token == bindparam("lease_token_held"),
    _r.state == text("'in_progress'"),
)

_BEGIN: Final = Statement(
    insert(idempotency_records)
    .values(
        principal=bindparam("principal"),
        operation=bindparam("operation"),
        key=bindparam("key"),
        fingerprint=bindparam("fingerprint"),
        state=text("'in_progress'"),
        lease_token=bindparam("lease_token"),
        lease_until=bindparam("lease_until"),
        created_at=bindparam("now"),
    )
    .on_conflict_do_nothing()
)
_LOCK: Final = Statement(
    select(_r.fingerprint, _r.lease_until, _r.outcome_sealed, _r.created_at)
    .where(*_IS_RECORD)
    .with_for_update()
)
_TAKE_OVER: Final = Statement(
    update(idempotency_records)
    .where(*_IS_RECORD)
    .values(lease_token=bindparam("lease_token"), lease_until=bindparam("lease_until"))
)
_FORGET: Final = Statement(delete(idempotency_records).where(*_IS_RECORD))
_COMPLETE: Final = Statement(
    update(idempotency_records)
    .where(*_IS_OURS)
    .values(
        state=text("'completed'"),
        status=bindparam("status"),
        outcome_sealed=bindparam("outcome_sealed"),
    )
)
_RELEASE: Final = Statement(delete(idempotency_records).where(*_IS_OURS))
_FORGET_EXPIRED: Final = Statement(
    delete(idempotency_records).where(_r.created_at <= bindparam("before"))
)


def begin(connection: Connection, claim: Claim, now: int) -> bytes | None:
    """Make the record the claim's and return None, or return the sealed outcome it has.

    Raises:
        IdempotencyKeyReused: the key came with another request.
        InProgress: an attempt holds the record.

    """
    lease = {
        "lease_token": claim.lease_token,
        "lease_until": now + LEASE_SECONDS * MICROSECONDS,
    }
    fresh = {**claim.scope._asdict(), **lease, "fingerprint": claim.fingerprint, "now": now}
    if connection.execute(_BEGIN, **fresh):
        return None
    found = connection.row(_LOCK, **claim.scope._asdict())
    if found is None:  # released this very moment
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

    Raises:
        InProgress: another attempt has taken the record over, so this effect must not be.

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
    """Drop the record of an attempt that had no outcome, unless it has one or is another's."""
    connection.execute(_RELEASE, **claim.scope._asdict(), lease_token_held=claim.lease_token)


def forget_expired(connection: Connection, now: int) -> int:
    """Delete the records that are no longer honoured; return how many there were."""
    return connection.execute(_FORGET_EXPIRED, before=now - KEPT_SECONDS * MICROSECONDS)
