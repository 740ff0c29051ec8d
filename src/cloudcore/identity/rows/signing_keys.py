"""Queries of signing keys, stored sealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import select

from cloudcore.db.base import Connection
from cloudcore.db.rows import insert_new
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.identity.tables import signing_keys

_k = signing_keys.c


class SigningKeyRow(NamedTuple):
    """A signing key's row."""

    kid: str
    audience: str
    algorithm: str
    material_sealed: bytes
    created_at: int
    not_after: int


_ADD: Final = Statement(insert_new(signing_keys, SigningKeyRow._fields))
_LIST: Final = Statement(
    select(*(_k[name] for name in SigningKeyRow._fields)).order_by(_k.not_after, _k.kid)
)
_FORGET: Final = Statement(signing_keys.delete().where(_k.kid.in_(listed("kids"))))


def add_signing_key(tx: Connection, key: SigningKeyRow) -> None:
    """Insert a key, unless another process has inserted one with this id."""
    tx.execute(_ADD, **key._asdict())


def list_signing_keys(tx: Connection) -> list[SigningKeyRow]:
    """Return all keys of all audiences, by `not_after`."""
    return [SigningKeyRow(*row) for row in tx.rows(_LIST)]


def forget_signing_keys(tx: Connection, kids: Sequence[str]) -> None:
    """Delete keys whose tokens have all expired."""
    tx.execute(_FORGET, kids=text_list(kids))
