"""Queries of the authority of the install: its certificates, their keys and revocation lists."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from sqlalchemy import bindparam, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert

from cloudcore.certificate.authority import Revoked
from cloudcore.certificate.tables import certificate_authorities, certificate_revocations
from cloudcore.db.base import Connection, Row
from cloudcore.db.rows import bound, columns
from cloudcore.db.statement import Statement

Role = Literal["root", "issuing"]
_a = certificate_authorities.c
_r = certificate_revocations.c


class Authority(NamedTuple):
    """A certificate that signs others."""

    id: str
    role: Role
    generation: int
    certificate: bytes
    """DER."""
    private_key: bytes
    """Sealed."""
    revocation_list: bytes
    """DER."""
    list_number: int
    listed_at: int
    expires_at: int

    def __repr__(self) -> str:
        """Show no key."""
        return f"Authority({self.role} {self.generation})"


_rows: Final = columns(certificate_authorities, Authority._fields)
_ADD: Final = Statement(
    insert(certificate_authorities)
    .values(bound(Authority._fields))
    .on_conflict_do_nothing(index_elements=["role", "generation"])
)
_NEWEST: Final = Statement(
    _rows.where(_a.role == bindparam("role"))
    .order_by(_a.generation.desc())
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)
_LIST: Final = Statement(_rows.order_by(_a.role, _a.generation))
_FIND: Final = Statement(_rows.where(_a.id == bindparam("id")))
_LOCK: Final = Statement(_rows.where(_a.id == bindparam("id")).with_for_update())
_SAVE_LIST: Final = Statement(
    update(certificate_authorities)
    .where(_a.id == bindparam("id"))
    .values(bound(("revocation_list", "list_number", "listed_at")))
)
_REVOKE: Final = Statement(
    insert(certificate_revocations)
    .values(bound(("serial", "authority_id", "revoked_at", "expires_at")))
    .on_conflict_do_nothing()
)
_REVOKED: Final = Statement(
    select(_r.serial, _r.revoked_at)
    .where(_r.authority_id == bindparam("authority_id"), _r.expires_at > bindparam("now"))
    .order_by(_r.revoked_at, _r.serial)
)
_FORGET: Final = Statement(
    certificate_revocations.delete().where(
        _r.authority_id == bindparam("authority_id"), _r.expires_at <= bindparam("now")
    )
)


def add_authority(tx: Connection, authority: Authority) -> bool:
    """Insert an authority; return False if its role has one of this generation."""
    return tx.execute(_ADD, **authority._asdict()) == 1


def newest_authority(tx: Connection, role: Role) -> Authority | None:
    """Return the authority that signs now, or None if there is none yet."""
    return _authority(tx.row(_NEWEST, role=role))


def list_authorities(tx: Connection) -> list[Authority]:
    """Return all, by role and age."""
    return [found for row in tx.rows(_LIST) if (found := _authority(row))]


def find_authority(tx: Connection, authority_id: str) -> Authority | None:
    """Return an authority, or None."""
    return _authority(tx.row(_FIND, id=authority_id))


def lock_authority(tx: Connection, authority_id: str) -> Authority | None:
    """Return an authority, or None; no other list of it is made until `tx` ends."""
    return _authority(tx.row(_LOCK, id=authority_id))


def save_list(tx: Connection, authority: Authority) -> None:
    """Store the revocation list of an authority."""
    tx.execute(
        _SAVE_LIST,
        id=authority.id,
        revocation_list=authority.revocation_list,
        list_number=authority.list_number,
        listed_at=authority.listed_at,
    )


def add_revocation(
    tx: Connection, authority_id: str, serial: int, revoked_at: int, expires_at: int
) -> bool:
    """Note that a certificate is revoked; return False if it was before."""
    added = tx.execute(
        _REVOKE,
        serial=f"{serial:x}",
        authority_id=authority_id,
        revoked_at=revoked_at,
        expires_at=expires_at,
    )
    return added == 1


def list_revoked(tx: Connection, authority_id: str, now: int) -> list[Revoked]:
    """Return what an authority revoked and has not expired, in the order of their revocations."""
    rows = tx.rows(_REVOKED, authority_id=authority_id, now=now)
    return [Revoked(int(row[0], 16), row[1]) for row in rows]


def forget_revoked(tx: Connection, authority_id: str, now: int) -> None:
    """Forget what an authority revoked and has expired."""
    tx.execute(_FORGET, authority_id=authority_id, now=now)


def _authority(row: Row | None) -> Authority | None:
    return None if row is None else Authority(*row)
