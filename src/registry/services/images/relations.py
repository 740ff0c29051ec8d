"""What stands around images: attached artifacts, pins, and the indexes that list them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from registry.metadata.images.details import ImageRow, pins_of
from registry.metadata.images.relations import attached_types, existing_tags, indexes_listing
from registry.metadata.repositories.visible import VisibleRepository

MAX_REFERRERS: Final = 20
"""The newest referrers of an image whose types are told."""
MAX_INDEXES: Final = 20
"""The most indexes that an image's details list."""

SUFFIXES: Final = ("", ".sig", ".att", ".sbom")
"""What older clients append to the digest for the tag of an artifact that they attach."""


class Relations(NamedTuple):
    """What stands around one image."""

    attached_types: Sequence[str]
    """Artifact types of its newest referrers."""
    attached_tags: Sequence[str]
    """Tags made of its digest, by which older clients attach artifacts."""
    is_pinned: bool
    listed_by: Sequence[str]
    """Digests of the indexes that list it."""


def read_relations(
    tx: Connection, found: VisibleRepository, rows: Sequence[ImageRow], now: int
) -> dict[str, Relations]:
    """Return what stands around each of these images, by its id."""
    repository = found.repository
    digests = [row.digest for row in rows]
    types = attached_types(tx, repository.id, repository.account_id, digests, MAX_REFERRERS)
    pins = pins_of(tx, repository.id, [row.id for row in rows], now)
    names = [f"{_spelled(digest)}{suffix}" for digest in digests for suffix in SUFFIXES]
    tags = existing_tags(tx, repository.id, names)
    return {
        row.id: Relations(
            types.get(row.digest, ()),
            [name for suffix in SUFFIXES if (name := f"{_spelled(row.digest)}{suffix}") in tags],
            row.id in pins,
            indexes_listing(tx, repository.id, row.id, MAX_INDEXES),
        )
        for row in rows
    }


def _spelled(digest: str) -> str:
    return digest.replace(":", "-")
