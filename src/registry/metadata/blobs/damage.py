"""List damaged objects and the images that need them; heal an object by switching its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import find_all, given
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.identity.tables import accounts
from registry.metadata.blobs.objects import NewObject
from registry.metadata.blobs.quarantine import (
    NOW,
    QUARANTINED_ID,
    quarantine_bytes,
    quarantine_wraps,
)
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    manifest_blobs,
    manifest_children,
    manifests,
    repositories,
    repository_blobs,
    tags,
)

_o = blob_objects.c
_l = repository_blobs.c
_e = manifest_blobs.c
_m = manifests.c
_r = repositories.c
_c = manifest_children.c
_MOST_TAGS: Final = 10_000
_SHOWN_TAGS: Final = 5
_DAMAGED: Final = paged(
    select(_o.id, _o.digest, _o.size, _o.damage, _o.damaged_at)
    .where(given(_o.account_id), _o.damage.is_not(None))
    .order_by(_o.digest)
)
_IMAGES: Final = paged(
    select(_l.object_id, _r.id, _r.name, _m.digest, accounts.c.handle, _m.id)
    .select_from(repository_blobs)
    .join(repositories, _r.id == _l.repository_id)
    .join(accounts, accounts.c.id == _r.account_id)
    .join(manifest_blobs, and_(_e.repository_id == _l.repository_id, _e.digest == _l.digest))
    .join(manifests, _m.id == _e.manifest_id)
    .where(given(_l.account_id), _l.object_id.in_(listed("ids")), _r.deleted_at.is_(None))
)
_TAGS: Final = paged(
    select(tags.c.manifest_id, tags.c.name).where(tags.c.manifest_id.in_(listed("ids")))
)
_TAGS_OF_INDEXES: Final = paged(
    select(_c.child_id, tags.c.name)
    .select_from(manifest_children)
    .join(tags, tags.c.manifest_id == _c.parent_id)
    .where(_c.child_id.in_(listed("ids")))
)
_IS_IT: Final = (
    given(_o.account_id),
    _o.id == bindparam("object_id"),
    _o.stored_id == bindparam("old_id"),
)
_LOCK: Final = Statement(select(_o.id).where(*_IS_IT).with_for_update())
_SWITCH: Final = Statement(
    blob_objects.update()
    .where(*_IS_IT)
    .values(
        stored_id=bindparam("new_id"),
        stored_size=bindparam("new_stored_size"),
        encoding=bindparam("new_encoding"),
        is_inline=bindparam("new_is_inline"),
        checksum=bindparam("new_checksum"),
        verified_at=bindparam("now"),
        damage=text("NULL"),
        damaged_at=text("NULL"),
    )
)


class DamagedObject(NamedTuple):
    """A stored object that is marked as damaged."""

    id: str
    digest: str
    size: int
    damage: str
    damaged_at: int


class DamagedImage(NamedTuple):
    """An image that needs a damaged object."""

    object_id: str
    repository_id: str
    repository: str
    digest: str
    handle: str
    """The handle of the repository's account."""
    manifest_id: str
    tags: Sequence[str] = ()
    """The image's tags and the tags of indexes that list the image; the first five, sorted."""

    def __str__(self) -> str:
        """Return the image's name, as in pull commands, and its tags."""
        return image_text(self.handle, self.repository, self.digest, self.tags)


def image_text(handle: str, repository: str, digest: str, tags: Sequence[str]) -> str:
    """Format an image as ``HANDLE/REPOSITORY@DIGEST (TAG, …)``."""
    shown = f" ({', '.join(tags)})" if tags else ""
    return f"{handle}/{repository}@{digest}{shown}"


def damaged_objects(tx: Connection, account_id: str, limit: int) -> list[DamagedObject]:
    """Return up to `limit` damaged objects of an account, sorted by digest."""
    return find_all(tx, DamagedObject, _DAMAGED, account_id=account_id, limit=limit)


def images_of(
    tx: Connection, account_id: str, object_ids: Sequence[str], limit: int
) -> list[DamagedImage]:
    """Return up to `limit` images that reference these objects, in live repositories."""
    rows = tx.rows(_IMAGES, account_id=account_id, ids=text_list(object_ids), limit=limit)
    names = tags_of(tx, [row[5] for row in rows])
    return sorted(DamagedImage(*row)._replace(tags=names[row[5]]) for row in rows)


def tags_of(tx: Connection, manifest_ids: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Map each image's id to the image's tags and the tags of the indexes that list the image.

    Each list is sorted and ends after five tags; it is empty for an image without tags.
    """
    found: dict[str, set[str]] = {each: set() for each in manifest_ids}
    for statement in (_TAGS, _TAGS_OF_INDEXES):
        for manifest_id, name in tx.rows(statement, ids=text_list(manifest_ids), limit=_MOST_TAGS):
            found[manifest_id].add(name)
    return {manifest_id: sorted(names)[:_SHOWN_TAGS] for manifest_id, names in found.items()}


_k = blob_object_keys.c
_QUARANTINE: Final = Statement(quarantine_bytes(QUARANTINED_ID, NOW, *_IS_IT))
_QUARANTINE_KEYS: Final = Statement(
    quarantine_wraps(QUARANTINED_ID, given(_k.account_id, _k.object_id))
)


def switch_bytes(
    tx: Connection, account_id: str, old_id: str, new: NewObject, quarantined_id: str, now: int
) -> bool:
    """Switch the object `new.id` to the bytes `new.stored_id`, which were verified at `now`.

    Quarantine the previous bytes, with their wrapped data keys, as `quarantined_id`. Return False,
    and change nothing, if the object is gone or its bytes are not `old_id`. The new bytes must be
    durable already. This locks the object; lock the object's links only afterwards.
    """
    of = {"account_id": account_id, "object_id": new.id}
    if tx.row(_LOCK, **of, old_id=old_id) is None:
        return False
    tx.execute(_QUARANTINE, **of, old_id=old_id, quarantined_id=quarantined_id, now=now)
    tx.execute(_QUARANTINE_KEYS, **of, quarantined_id=quarantined_id)
    tx.execute(
        _SWITCH,
        **of,
        old_id=old_id,
        new_id=new.stored_id,
        new_stored_size=new.stored_size,
        new_encoding=new.encoding,
        new_is_inline=new.is_inline,
        new_checksum=new.checksum,
        now=now,
    )
    return True
