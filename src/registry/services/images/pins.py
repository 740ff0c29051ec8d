"""Pin images, such as those that are deployed, so that no lifecycle rule expires them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.errors import Conflict, InvalidInput, NotFound
from cloudcore.wire import LAST_MOMENT
from registry.metadata.images import relations
from registry.metadata.images.manifests import ManifestRow
from registry.metadata.images.relations import Pin
from registry.metadata.repositories.repository import VisibleRepository
from registry.services.changes import Change
from registry.services.images.details import get_manifest_row
from registry.services.repositories.names import lock_visible_repository

MAX_PINS: Final = 50
"""The maximum number of pins of one image."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")


class Pinned(NamedTuple):
    """A pin and the sha256 digest of its image; `is_new` is True if `put_pin` created the pin."""

    pin: Pin
    digest: str
    is_new: bool


def check_pin(name: str, expires_at: int | None, now: int) -> None:
    """Check a pin's name and end; raise `InvalidInput` with ``field`` and ``reason``."""
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
    found: VisibleRepository,
    reference: str,
    name: str,
    expires_at: int | None,
    change: Change,
) -> Pinned:
    """Pin an image, or change the end of an existing pin.

    An existing pin keeps its creator and creation time. The repository is locked, so a lifecycle
    run either sees the pin or has deleted the image before.

    Raise `Conflict` if the image has `MAX_PINS` pins; `ManifestUnknown` if there is no such image.
    """
    lock_visible_repository(tx, found)
    manifest, held = _held(tx, found, reference, change.now)
    if name not in held and len(held) >= MAX_PINS:
        raise Conflict(f"an image has at most {MAX_PINS} pins", limit=MAX_PINS)
    fresh = Pin(
        manifest_id=manifest.id,
        name=name,
        repository_id=found.repository.id,
        expires_at=expires_at,
        created_by=change.principal,
        created_at=change.now,
        created_by_source=change.stored_source,
    )
    pin = held.get(name, fresh)._replace(expires_at=expires_at)
    relations.upsert_pin(tx, pin)
    return Pinned(pin, manifest.digest, is_new=name not in held)


def list_pins(tx: Connection, found: VisibleRepository, reference: str, now: int) -> list[Pinned]:
    """Return an image's unexpired pins by name; raise `ManifestUnknown` if there is no image."""
    manifest, held = _held(tx, found, reference, now)
    return [Pinned(pin, manifest.digest, is_new=False) for pin in held.values()]


def delete_pin(
    tx: Connection, found: VisibleRepository, reference: str, name: str, now: int
) -> None:
    """Delete a pin.

    Raise `NotFound` if the image has no pin of this name, or it has expired; `ManifestUnknown` if
    there is no such image.
    """
    lock_visible_repository(tx, found)
    manifest, held = _held(tx, found, reference, now)
    if name not in held:
        raise NotFound("the image has no such pin")
    relations.remove_pin(tx, found.repository.id, manifest.id, name)


def _held(
    tx: Connection, found: VisibleRepository, reference: str, now: int
) -> tuple[ManifestRow, dict[str, Pin]]:
    """Return the manifest row of an image, and its unexpired pins by name."""
    manifest = get_manifest_row(tx, found, reference)
    held = relations.list_unexpired_pins(tx, found.repository.id, manifest.id, now)
    return manifest, {each.name: each for each in held}
