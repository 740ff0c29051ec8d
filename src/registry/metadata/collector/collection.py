"""Delete unreferenced content: links, then objects, then their bytes.

There are four steps, each in its own transaction. Until the last, a push or `entrepot gc recover`
undoes them:

- a link that no manifest references is deleted when its grace period is over;
- an object without links and tombstones is *condemned*; an object that still has some loses the
  wraps that none of them needs;
- after a delay the row of a condemned object is *swept*: moved to the quarantine. Foreign keys
  prevent that while anything references the object. The bytes stay, and can be recovered;
- after another delay the bytes are *removed*, then the row in quarantine; for an inline object,
  both in one transaction.

A shredded object (`registry.metadata.blobs.wraps`) has no bytes; its row is deleted with its last
link or tombstone.

A transaction that changes a link locks its object first, so a check under that lock sees all links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import and_, bindparam, exists, func, or_, select, text

from cloudcore.db.base import Connection
from cloudcore.db.rows import ZERO, columns_of, find_all, first, given, total
from cloudcore.db.statement import Statement, listed, page, paged, text_list
from cloudcore.identity.tables import accounts
from cloudcore.kms.rows import kms_keys
from registry.metadata.blobs.inline import drop_bodies
from registry.metadata.blobs.quarantine import NOW, quarantine_bytes, quarantine_wraps
from registry.metadata.blobs.wraps import Wrap, drop_unused_wraps
from registry.metadata.control_tables import (
    deleted_manifest_blobs,
    quarantined_object_keys,
    quarantined_objects,
)
from registry.metadata.quotas import add_bytes
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    manifest_blobs,
    manifests,
    repository_blobs,
)

_o = blob_objects.c
_l = repository_blobs.c
_e = manifest_blobs.c
_m = manifests.c
_q = quarantined_objects.c
_k = blob_object_keys.c
_qk = quarantined_object_keys.c
_b = deleted_manifest_blobs.c


CollectionStage = Literal["unreferenced", "condemned", "quarantined"]


class UnreferencedLink(NamedTuple):
    """A link that no manifest references."""

    repository_id: str
    digest: str
    object_id: str


class Swept(NamedTuple):
    """The stored bytes of a condemned object, or bytes in quarantine."""

    id: str
    account_id: str
    digest: str
    size: int
    stored_size: int
    encoding: str
    stored_id: str
    is_inline: bool
    checksum: str | None


class Removable(NamedTuple):
    """Bytes in quarantine whose removal has begun."""

    stored_id: str
    is_inline: bool


class Amount(NamedTuple):
    """A number of blobs and their size."""

    blobs: int
    stored_bytes: int
    """Bytes on disk; for unreferenced links, the size of the blobs as pushed."""


_IS_UNREFERENCED: Final = _l.manifest_refs == ZERO
_IS_CONDEMNED: Final = _o.state == text("'condemned'")
IS_REFERRED: Final = or_(
    exists().where(_l.object_id == _o.id), exists().where(_b.object_id == _o.id)
)
"""The condition that a link or a tombstone references an object."""

_UNREFERENCED: Final = paged(
    select(_l.repository_id, _l.digest, _l.object_id)
    .where(given(_l.account_id), _IS_UNREFERENCED, _l.touched_at <= bindparam("before"))
    .order_by(_l.touched_at)
)
_LOCK_OBJECTS: Final = Statement(
    select(_o.id)
    .where(given(_o.account_id), _o.id.in_(listed("ids")))
    .order_by(_o.id)
    .with_for_update(key_share=True)
)
_UNLINK: Final = Statement(
    repository_blobs.delete().where(
        given(_l.repository_id),
        _l.digest.in_(listed("digests")),
        _IS_UNREFERENCED,
        _l.touched_at <= bindparam("before"),
    )
)
_CONDEMN: Final = Statement(
    blob_objects.update()
    .where(given(_o.account_id), _o.id.in_(listed("ids")), _o.state == text("'live'"), ~IS_REFERRED)
    .values(state=text("'condemned'"), condemned_at=bindparam("now"))
)
_CONDEMNED: Final = paged(
    columns_of(blob_objects, Swept._fields)
    .where(given(_o.account_id), _IS_CONDEMNED, _o.condemned_at <= bindparam("before"))
    .order_by(_o.condemned_at)
    .with_for_update(skip_locked=True)
)
_UNMARK_REFERRED: Final = Statement(
    blob_objects.update()
    .where(given(_o.account_id), _o.id.in_(listed("ids")), _IS_CONDEMNED, IS_REFERRED)
    .values(state=text("'live'"), condemned_at=text("NULL"))
    .returning(_o.id)
)
_UNLINKED_EDGES: Final = Statement(
    # No join: SQLite has no statistics and would begin with all manifests.
    first(
        select(_e.digest).where(
            _e.digest.in_(listed("digests")),
            ~exists().where(_l.repository_id == _e.repository_id, _l.digest == _e.digest),
            exists().where(_m.id == _e.manifest_id, given(_m.account_id)),
        )
    )
)
_QUARANTINE: Final = Statement(
    quarantine_bytes(_o.id, NOW, given(_o.account_id), _o.id.in_(listed("ids")))
)
_QUARANTINE_KEYS: Final = Statement(
    quarantine_wraps(_k.object_id, given(_k.account_id), _k.object_id.in_(listed("ids")))
)
_QUARANTINED_WRAPS: Final = Statement(
    select(_qk.kms_key_id, _qk.wrapped_data_key, kms_keys.c.state)
    .join(kms_keys, and_(kms_keys.c.id == _qk.kms_key_id, kms_keys.c.account_id == _qk.account_id))
    .where(given(_qk.account_id), _qk.quarantined_id == bindparam("id"))
    .order_by(_qk.kms_key_id)
)
_SWEEP: Final = Statement(
    blob_objects.delete()
    .where(given(_o.account_id), _o.id.in_(listed("ids")), _IS_CONDEMNED)
    .returning(_o.size)
)
_BEGIN_REMOVAL: Final = Statement(
    quarantined_objects.update()
    .where(
        # By id alone: with the account in the condition, SQLite would use the account's index.
        _q.id.in_(
            page(
                select(_q.id)
                .where(given(_q.account_id), _q.swept_at <= bindparam("before"))
                .order_by(_q.swept_at)
                .with_for_update(skip_locked=True)
            )
        )
    )
    .values(removal_began_at=func.coalesce(_q.removal_began_at, bindparam("now")))
    .returning(_q.stored_id, _q.is_inline)
)
_FINISH_REMOVAL: Final = Statement(
    quarantined_objects.delete()
    .where(_q.stored_id.in_(listed("ids")), _q.removal_began_at.is_not(None))
    .returning(_q.stored_size, _q.is_inline, _q.stored_id)
)
_RECOVERABLE: Final = Statement(
    columns_of(quarantined_objects, Swept._fields).where(
        given(_q.account_id, _q.digest),
        _q.removal_began_at.is_(None),
        or_(_q.encoding == text("'plain'"), exists().where(_qk.quarantined_id == _q.id)),
    )
)
_LOCK_RECOVERABLE: Final = Statement(
    select(_q.id)
    .where(given(_q.account_id, _q.id), _q.removal_began_at.is_(None))
    .with_for_update()
)
_RELEASE: Final = Statement(quarantined_objects.delete().where(given(_q.account_id, _q.id)))


_FORGET_SHREDDED: Final = Statement(
    blob_objects.delete().where(
        given(_o.account_id), _o.id.in_(listed("ids")), _o.state == text("'shredded'"), ~IS_REFERRED
    )
)


def _amount(table: Any, size: Any, *where: Any) -> Statement:  # noqa: ANN401 - SQLAlchemy
    return Statement(
        select(func.count(), total(size))
        .select_from(table)
        .where(given(table.c.account_id), *where)
    )


_AMOUNTS: Final[Mapping[CollectionStage, Statement]] = {
    "unreferenced": _amount(repository_blobs, _l.size, _IS_UNREFERENCED),
    "condemned": _amount(blob_objects, _o.stored_size, _IS_CONDEMNED),
    "quarantined": _amount(quarantined_objects, _q.stored_size),
}


_account_id = accounts.c.id
_DUE: Final = paged(
    select(_account_id)
    .where(
        _account_id > bindparam("after"),
        or_(
            exists().where(
                _l.account_id == _account_id,
                _IS_UNREFERENCED,
                _l.touched_at <= bindparam("touched_before"),
            ),
            exists().where(
                _o.account_id == _account_id,
                _IS_CONDEMNED,
                _o.condemned_at <= bindparam("condemned_before"),
            ),
            exists().where(_q.account_id == _account_id, _q.swept_at <= bindparam("swept_before")),
        ),
    )
    .order_by(_account_id)
)


def unreferenced_links(
    tx: Connection, account_id: str, before: int, limit: int
) -> list[UnreferencedLink]:
    """Return up to `limit` unreferenced links last touched at or before `before`, oldest first."""
    return find_all(
        tx, UnreferencedLink, _UNREFERENCED, account_id=account_id, before=before, limit=limit
    )


def unlink_unreferenced(
    tx: Connection, account_id: str, links: Sequence[UnreferencedLink], before: int
) -> int:
    """Delete those `links` that are unreferenced and untouched since `before`; return how many.

    Raise `ConstraintViolated` if a manifest references one of these links after all, because its
    `manifest_refs` is wrong.
    """
    lock_objects(tx, account_id, {link.object_id for link in links})
    gone = 0
    for repository_id, group in groupby(sorted(links), key=lambda link: link.repository_id):
        digests = text_list([link.digest for link in group])
        gone += tx.execute(_UNLINK, repository_id=repository_id, digests=digests, before=before)
    return gone


def lock_objects(tx: Connection, account_id: str, object_ids: Iterable[str]) -> None:
    """Lock these objects, so that no other transaction can link or unlink them."""
    tx.rows(_LOCK_OBJECTS, account_id=account_id, ids=text_list(sorted(object_ids)))


def condemn(tx: Connection, account_id: str, object_ids: Iterable[str], now: int) -> int:
    """Condemn those of these objects that no link or tombstone references; return how many.

    Of the other objects, delete the wraps that no link or tombstone needs. Delete the rows of
    unreferenced shredded objects. The caller must lock the objects before it deletes their links or
    tombstones.
    """
    found = sorted(object_ids)
    drop_unused_wraps(tx, account_id, found)
    forget_shredded(tx, account_id, found)
    ids = text_list(found)
    return tx.execute(_CONDEMN, account_id=account_id, ids=ids, now=now)


def forget_shredded(tx: Connection, account_id: str, object_ids: Sequence[str]) -> None:
    """Delete the rows of shredded objects that no link or tombstone references.

    The caller has locked the objects.
    """
    tx.execute(_FORGET_SHREDDED, account_id=account_id, ids=text_list(object_ids))


def lock_condemned(tx: Connection, account_id: str, before: int, limit: int) -> list[Swept]:
    """Lock and return up to `limit` objects that were condemned at `before` or earlier."""
    return find_all(tx, Swept, _CONDEMNED, account_id=account_id, before=before, limit=limit)


def unmark_referred(tx: Connection, account_id: str, object_ids: Sequence[str]) -> set[str]:
    """Make condemned objects live again if a link or tombstone references them; return the ids."""
    rows = tx.rows(_UNMARK_REFERRED, account_id=account_id, ids=text_list(object_ids))
    return {row[0] for row in rows}


def unlinked_edge(tx: Connection, account_id: str, digests: Sequence[str]) -> str | None:
    """Return one of `digests` that a manifest references without a link in its repository, or None.

    Foreign keys should prevent that: if a digest is returned, links were lost.
    """
    row = tx.row(_UNLINKED_EDGES, account_id=account_id, digests=text_list(digests))
    return row[0] if row else None


def sweep(tx: Connection, account_id: str, object_ids: Sequence[str], now: int) -> int:
    """Move condemned objects and their wrapped data keys to the quarantine; return how many.

    Wraps that were erased with their KMS key are not moved.

    Raise `ConstraintViolated` if one of the objects is referenced again; then nothing is moved.
    """
    ids = text_list(object_ids)
    tx.execute(_QUARANTINE, account_id=account_id, ids=ids, now=now)
    tx.execute(_QUARANTINE_KEYS, account_id=account_id, ids=ids)
    rows = tx.rows(_SWEEP, account_id=account_id, ids=ids)
    add_bytes(tx, account_id, -sum(int(row[0]) for row in rows))
    return len(rows)


def begin_removal(
    tx: Connection, account_id: str, before: int, now: int, limit: int
) -> list[Removable]:
    """Begin to remove up to `limit` quarantined objects swept at or before `before`; return them.

    Once this is committed, the objects cannot be recovered, and their bytes may be deleted.
    """
    return find_all(
        tx, Removable, _BEGIN_REMOVAL, account_id=account_id, before=before, now=now, limit=limit
    )


def finish_removal(tx: Connection, stored_ids: Sequence[str]) -> Amount:
    """Delete the quarantine's rows of objects whose removal has begun; return the amount deleted.

    The bytes of inline objects are deleted here; all other bytes are already gone from the store.
    """
    rows = tx.rows(_FINISH_REMOVAL, ids=text_list(stored_ids))
    inline = [row[2] for row in rows if row[1]]
    if inline:
        drop_bodies(tx, inline)
    return Amount(len(rows), sum(int(row[0]) for row in rows))


def list_recoverable(tx: Connection, account_id: str, digest: str) -> list[Swept]:
    """Return the quarantined objects with this sha256 digest that can be recovered.

    There are several if the same bytes were pushed and swept again, or were replaced by a push.
    Sealed objects without a wrap cannot be recovered.
    """
    return find_all(tx, Swept, _RECOVERABLE, account_id=account_id, digest=digest)


def lock_recoverable(tx: Connection, account_id: str, object_id: str) -> bool:
    """Lock an object in quarantine; return False if it is gone or its removal has begun."""
    return tx.row(_LOCK_RECOVERABLE, account_id=account_id, id=object_id) is not None


def quarantined_wraps(tx: Connection, account_id: str, object_id: str) -> list[Wrap]:
    """Return the wraps of an object in quarantine, sorted by KMS key."""
    rows = tx.rows(_QUARANTINED_WRAPS, account_id=account_id, id=object_id)
    return [Wrap(row[0], bytes(row[1]), row[2]) for row in rows]


def release(tx: Connection, account_id: str, object_id: str) -> None:
    """Delete an object from the quarantine, with its wraps; its bytes stay."""
    tx.execute(_RELEASE, account_id=account_id, id=object_id)


def measure_stage(tx: Connection, account_id: str, stage: CollectionStage) -> Amount:
    """Return the number and size of an account's blobs in a stage of collection."""
    row = tx.row(_AMOUNTS[stage], account_id=account_id)
    assert row is not None
    return Amount(int(row[0]), int(row[1]))


def accounts_due(
    tx: Connection,
    *,
    touched_before: int,
    condemned_before: int,
    swept_before: int,
    after: str,
    limit: int,
) -> list[str]:
    """Return up to `limit` ids after `after` of accounts with content due for collection."""
    rows = tx.rows(
        _DUE,
        touched_before=touched_before,
        condemned_before=condemned_before,
        swept_before=swept_before,
        after=after,
        limit=limit,
    )
    return [row[0] for row in rows]
