"""Pinning images: "this is deployed there", so that no lifecycle rule expires them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.wire import LAST_MOMENT
from registry.metadata.images import pins
from registry.metadata.images.pins import Pin
from registry.metadata.repositories.visible import ImageRepository
from registry.services.changes import Change
from registry.services.images.details import find_manifest, lock

MAX_PINS: Final = 50
"""How many pins an image can have at once."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")


class Pinned(NamedTuple):
    """A pin, and the sha256 of the image it holds."""

    pin: Pin
    digest: str
    is_new: bool


def check_pin(name: str, expires_at: int | None, now: int) -> None:
    """Refuse what cannot be a pin.

    Raises:
        InvalidInput: with ``field`` and ``reason``.

    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            "a pin's name is 1 to 128 of a-z 0-9 . _ -, and begins with a letter or digit",
            field="name",
            reason="malformed",
        )
    if expires_at is not None and not now < expires_at <= LAST_MOMENT:
        raise InvalidInput(
            "a pin ends in the future, by the year 9999, or never",
            field="expires_at",
            reason="out_of_range",
        )


def put_pin(
    tx: Connection,
    found: ImageRepository,
    reference: str,
    name: str,
    expires_at: int | None,
    act: Change,
) -> Pinned:
    """Pin an image, or let a pin that holds it end at another time.

    Who pinned it first, and when, stays with the pin while it holds. The repository's lock makes
    a lifecycle run see the pin or come before it.

    Raises:
        Conflict: the image has as many pins as it can have.
        ManifestUnknown: there is no such image.

    """
    lock(tx, found)
    manifest = find_manifest(tx, found, reference)
    held = {each.name: each for each in list_held(tx, found, manifest.id, act.now)}
    if name not in held and len(held) >= MAX_PINS:
        raise Conflict(f"an image has at most {MAX_PINS} pins", limit=MAX_PINS)
    fresh = Pin(manifest.id, name, found.repository.id, expires_at, act.principal, act.now)
    pin = held.get(name, fresh)._replace(expires_at=expires_at)
    pins.put_pin(tx, pin)
    return Pinned(pin, manifest.digest, is_new=name not in held)


def list_pins(tx: Connection, found: ImageRepository, reference: str, now: int) -> list[Pinned]:
    """Return the pins that hold an image now, by name.

    Raises:
        ManifestUnknown: there is no such image.

    """
    manifest = find_manifest(tx, found, reference)
    held = list_held(tx, found, manifest.id, now)
    return [Pinned(pin, manifest.digest, is_new=False) for pin in held]


def delete_pin(tx: Connection, found: ImageRepository, reference: str, name: str, now: int) -> None:
    """Take a pin away.

    Raises:
        NotFound: the image has none of this name, or it was over.
        ManifestUnknown: there is no such image.

    """
    lock(tx, found)
    manifest = find_manifest(tx, found, reference)
    if name not in {each.name for each in list_held(tx, found, manifest.id, now)}:
        raise NotFound("the image has no such pin")
    pins.remove_pin(tx, found.repository.id, manifest.id, name)


def list_held(tx: Connection, found: ImageRepository, manifest_id: str, now: int) -> list[Pin]:
    """Return the pins of a manifest of this repository that are not over."""
    return pins.list_pins(tx, found.repository.id, manifest_id, now)
