"""Pins: named reasons to keep an image, with or without an expiry."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, or_, select

from cloudcore.db.base import Connection
from cloudcore.db.deletion import deletion
from cloudcore.db.rows import given, insert_or_change
from cloudcore.db.statement import Statement
from registry.metadata.control_tables import image_pins

_p = image_pins.c


class Pin(NamedTuple):
    """A pin of an image."""

    manifest_id: str
    name: str
    repository_id: str
    expires_at: int | None
    """None if it never expires."""
    created_by: str
    """CRN."""
    created_at: int
    created_by_source: str | None = None
    """A stored `Source`."""


_of_image = given(_p.repository_id, _p.manifest_id)
_LIST: Final = Statement(
    select(*(_p[name] for name in Pin._fields))
    .where(_of_image, or_(_p.expires_at.is_(None), _p.expires_at > bindparam("now")))
    .order_by(_p.name)
)
_PUT: Final = Statement(
    insert_or_change(
        image_pins,
        Pin._fields,
        changed=("expires_at", "created_by", "created_by_source", "created_at"),
    )
)
_REMOVE: Final = Statement(image_pins.delete().where(_of_image, given(_p.name)))
_FORGET: Final = deletion(_p.expires_at, _p.expires_at.is_not(None))  # for the partial index


def list_unexpired_pins(
    tx: Connection, repository_id: str, manifest_id: str, now: int
) -> list[Pin]:
    """Return the pins of an image that are in force, by name; their number is small."""
    rows = tx.rows(_LIST, repository_id=repository_id, manifest_id=manifest_id, now=now)
    return [Pin(*row) for row in rows]


def upsert_pin(tx: Connection, pin: Pin) -> None:
    """Insert a pin, or replace the image's pin of the same name."""
    tx.execute(_PUT, **pin._asdict())


def remove_pin(tx: Connection, repository_id: str, manifest_id: str, name: str) -> None:
    """Remove a pin, expired or not."""
    tx.execute(_REMOVE, repository_id=repository_id, manifest_id=manifest_id, name=name)


def forget_expired(tx: Connection, now: int) -> int:
    """Delete a batch of the expired pins; return how many."""
    return tx.execute(_FORGET, before=now)
