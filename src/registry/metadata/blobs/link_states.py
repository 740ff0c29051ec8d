"""The state of a link: the columns on which a response about its blob depends.

The state is read after each commit to check that a cached response is still correct. Columns that
only change together with others are left out: for example, an object with new bytes always has a
new `stored_id`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import and_, select, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, text_list
from cloudcore.kms.key import KeyState
from cloudcore.kms.rows import kms_keys
from registry.metadata.blobs.objects import Link
from registry.metadata.repositories.repository import ID_OF_NAMED
from registry.metadata.tables import blob_object_keys, blob_objects, repository_blobs


class LinkState(NamedTuple):
    """The columns that `find_link_states` reads; they mean the same as in `Link`."""

    digest: str
    repository_id: str
    touched_at: int
    is_referenced: bool
    """True if a manifest references the link. Then a HEAD does not touch it (`Link.touched_at`)."""
    stored_id: str
    damage: str | None
    kms_key_id: str | None
    wrapped_data_key: bytes | None
    key_state: KeyState | None


_l = repository_blobs.c
_w = blob_object_keys.c
_SEE: Final = Statement(
    select(
        _l.digest,
        _l.repository_id,
        _l.touched_at,
        _l.manifest_refs > text("0"),
        blob_objects.c.stored_id,
        blob_objects.c.damage,
        _l.kms_key_id,
        _w.wrapped_data_key,
        kms_keys.c.state,
    )
    .select_from(repository_blobs)
    .join(blob_objects, blob_objects.c.id == _l.object_id)
    .outerjoin(blob_object_keys, and_(_w.object_id == _l.object_id, _w.kms_key_id == _l.kms_key_id))
    .outerjoin(kms_keys, kms_keys.c.id == _l.kms_key_id)
    .where(_l.repository_id == ID_OF_NAMED, _l.digest.in_(listed("digests")))
)


def find_link_states(
    tx: Connection, handle: str, name: str, digests: Sequence[str]
) -> Mapping[Hashable, Hashable]:
    """Map sha256 digests to the states of their links in a live repository.

    Digests without a link are left out.
    """
    rows = tx.rows(_SEE, handle=handle, name=name, digests=text_list(digests))
    return {row[0]: row for row in rows}


def link_state_of(link: Link) -> LinkState:
    """Return the state of a link, equal to what `find_link_states` returns for it."""
    return LinkState(
        link.digest,
        link.repository_id,
        link.touched_at,
        link.manifest_refs > 0,
        link.stored_id,
        link.damage,
        link.kms_key_id,
        link.wrapped_data_key,
        link.key_state,
    )
