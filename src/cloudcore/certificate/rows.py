"""Queries of certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import bindparam, func, select, update
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert

from cloudcore.certificate.challenges import Challenge
from cloudcore.certificate.keys import KeyAlgorithm
from cloudcore.certificate.rules import KeySource, Source, Status
from cloudcore.certificate.tables import IS_ACTIVE, certificates
from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, columns, count
from cloudcore.db.statement import Statement, page
from cloudcore.jobs.faults import Fault

_c = certificates.c


class Certificate(NamedTuple):
    """A certificate, as it is stored."""

    id: str
    account_id: str
    region: str
    name: str
    domains: Sequence[str]
    status: Status
    source: Source
    issuer: str
    """The name of the authority; empty if it was uploaded."""
    key_algorithm: KeyAlgorithm
    challenges: Sequence[Challenge]
    certificate_pem: str | None
    chain_pem: str | None
    fingerprint: str | None
    private_key: bytes | None
    """Sealed; None if nothing was issued yet, or its owner made the key."""
    csr: bytes | None
    """The signing request of its owner, in DER, or None if the key is made here or was uploaded."""
    private_key_exported_at: int | None
    """When a copy of the key was given to the owner; None after each renewal, since it has
    another key."""
    kms_key_id: str | None
    """Of the KMS key that seals it, or None if the root key does."""
    issued_at: int | None
    expires_at: int | None
    renew_at: int | None
    """None if it is not renewed."""
    warned_days: int | None
    """How many days before its end its owner was told last, or None if that was not yet."""
    revocation_asked_at: int | None
    is_recheck_asked: bool
    tags: Mapping[str, str]
    faults: Sequence[Fault]
    """Those of a challenge have its domain as their subject."""
    created_at: int
    updated_at: int

    @property
    def crn(self) -> str:
        """Return its CRN."""
        return certificate_crn(self.region, self.account_id, self.name)

    @property
    def is_uploaded(self) -> bool:
        """Return True if no authority here issued it."""
        return self.source == "uploaded"

    @property
    def key_source(self) -> KeySource:
        """Return who made its key."""
        if self.is_uploaded:
            return "uploaded"
        return "platform" if self.csr is None else "owner"

    def status_at(self, now: int) -> Status:
        """Return its status now: the chore that notes its end may come later."""
        is_over = self.status == "active" and (self.expires_at or 0) <= now
        return "expired" if is_over else self.status


def certificate_crn(region: str, account_id: str, name: str) -> str:
    """Return the CRN of a certificate; `name` may be a pattern."""
    return f"crn:certificate:{region}:{account_id}:certificate/{name}"


_JSON: Final[Mapping[str, msgspec.json.Decoder[Any]]] = {
    "domains": msgspec.json.Decoder(tuple[str, ...]),
    "challenges": msgspec.json.Decoder(tuple[Challenge, ...]),
    "tags": msgspec.json.Decoder(dict[str, str]),
    "faults": msgspec.json.Decoder(tuple[Fault, ...]),
}
_FIXED: Final = ("id", "account_id", "region", "name", "source", "csr", "created_at")
_OF_ACCOUNT: Final = _c.account_id == bindparam("account_id")
_IS_OURS: Final = (_c.id == bindparam("id"), _OF_ACCOUNT)
_IN_LIST: Final = (
    _OF_ACCOUNT,
    _c.region == bindparam("region"),
    (bindparam("name") == sql("''")) | (_c.name == bindparam("name")),
)


_rows: Final = columns(certificates, Certificate._fields)
_ADD: Final = Statement(
    insert(certificates)
    .values(bound(Certificate._fields))
    .on_conflict_do_nothing(index_elements=["account_id", "region", "name"])
)
_FIND: Final = Statement(_rows.where(*_IS_OURS))
_LOCK: Final = Statement(_rows.where(*_IS_OURS).with_for_update())
_FIND_NAMED: Final = Statement(
    _rows.where(_OF_ACCOUNT, _c.region == bindparam("region"), _c.name == bindparam("name"))
)
_LIST: Final = Statement(page(_rows.where(*_IN_LIST, _c.id > bindparam("after")).order_by(_c.id)))
_COUNT: Final = Statement(select(func.count()).select_from(certificates).where(*_IN_LIST))
_SAVE: Final = Statement(
    update(certificates)
    .where(*_IS_OURS)
    .values(bound(name for name in Certificate._fields if name not in _FIXED))
)
_REMOVE: Final = Statement(certificates.delete().where(*_IS_OURS))
_LIST_RENEWED: Final = Statement(
    page(
        select(_c.account_id, _c.id, _c.renew_at)
        .where(_c.renew_at <= bindparam("now"), _c.renew_at > bindparam("after"))
        .order_by(_c.renew_at)
    )
)
_LIST_OVER: Final = Statement(
    page(
        select(_c.account_id, _c.id)
        .where(IS_ACTIVE, _c.expires_at <= bindparam("now"))
        .order_by(_c.expires_at)
    )
)
_LIST_ENDING: Final = Statement(
    page(
        select(_c.account_id, _c.id)
        .where(
            IS_ACTIVE,
            _c.source == sql("'uploaded'"),
            _c.expires_at <= bindparam("until"),
            _c.expires_at > bindparam("now"),
            _c.warned_days.is_(None) | (_c.warned_days > bindparam("days")),
        )
        .order_by(_c.expires_at)
    )
)


def add_certificate(tx: Connection, certificate: Certificate) -> bool:
    """Insert a certificate; return False if its name is taken."""
    return tx.execute(_ADD, **_values(certificate)) == 1


def find_certificate(tx: Connection, account_id: str, certificate_id: str) -> Certificate | None:
    """Return a certificate of an account, or None."""
    return _certificate(tx.row(_FIND, account_id=account_id, id=certificate_id))


def find_certificate_named(
    tx: Connection, account_id: str, region: str, name: str
) -> Certificate | None:
    """Return the certificate of a name, or None."""
    return _certificate(tx.row(_FIND_NAMED, account_id=account_id, region=region, name=name))


def lock_certificate(tx: Connection, account_id: str, certificate_id: str) -> Certificate | None:
    """Return a certificate of an account, or None; block changes of it until `tx` ends."""
    return _certificate(tx.row(_LOCK, account_id=account_id, id=certificate_id))


def list_certificates(
    tx: Connection, account_id: str, region: str, name: str, after: str, limit: int
) -> list[Certificate]:
    """Return certificates of an account, oldest first; if `name` is not empty, only that one."""
    rows = tx.rows(_LIST, account_id=account_id, region=region, name=name, after=after, limit=limit)
    return [found for row in rows if (found := _certificate(row))]


def count_certificates(tx: Connection, account_id: str, region: str, name: str) -> int:
    """Count the certificates that `list_certificates` lists."""
    return count(tx, _COUNT, account_id=account_id, region=region, name=name)


def save_certificate(tx: Connection, certificate: Certificate) -> None:
    """Store what of a certificate can change."""
    values = _values(certificate)
    for name in _FIXED[2:]:
        del values[name]
    tx.execute(_SAVE, **values)


def remove_certificate(tx: Connection, certificate: Certificate) -> None:
    """Delete a certificate with what was issued for it."""
    tx.execute(_REMOVE, account_id=certificate.account_id, id=certificate.id)


def list_due_renewals(
    tx: Connection, now: int, after: int, limit: int
) -> list[tuple[str, str, int]]:
    """Return account, id and time of certificates that are to be renewed, earliest first."""
    return [(*row,) for row in tx.rows(_LIST_RENEWED, now=now, after=after, limit=limit)]


def list_over(tx: Connection, now: int, limit: int) -> list[tuple[str, str]]:
    """Return account and id of active certificates whose time is over."""
    return [(row[0], row[1]) for row in tx.rows(_LIST_OVER, now=now, limit=limit)]


def list_ending(
    tx: Connection, now: int, days: int, until: int, limit: int
) -> list[tuple[str, str]]:
    """Return account and id of active uploads that end by `until`, and were not told so.

    What counts was told when no more than `days` were left.
    """
    rows = tx.rows(_LIST_ENDING, now=now, days=days, until=until, limit=limit)
    return [(row[0], row[1]) for row in rows]


def _values(certificate: Certificate) -> dict[str, Any]:
    values = certificate._asdict()
    encoded = {name: msgspec.json.encode(values[name]).decode() for name in _JSON}
    return values | encoded


def _certificate(row: Row | None) -> Certificate | None:
    if row is None:
        return None
    found = dict(zip(Certificate._fields, row, strict=True))
    decoded = {name: decoder.decode(found[name]) for name, decoder in _JSON.items()}
    decoded["is_recheck_asked"] = bool(found["is_recheck_asked"])
    return Certificate(**{**found, **decoded})
