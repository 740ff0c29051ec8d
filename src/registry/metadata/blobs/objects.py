"""Objects, the links that make them visible in a repository, and digest aliases.

A blob is read through the link of a repository, never from its object alone, so knowing a digest
does not give access to its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, literal_column, or_, select, text, union_all
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.rows import bound, find_one, given, insert_new, value
from cloudcore.db.statement import Statement, listed, paged, text_list
from cloudcore.identity.tables import accounts
from cloudcore.kms.key import KeyState
from cloudcore.kms.rows import kms_keys
from cloudcore.objects.stored_rows import ObjectRow, StoredRows
from registry.metadata.quotas import ALLOWANCE, StorageAllowance
from registry.metadata.repositories.repository import IS_NAMED
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    digest_aliases,
    inline_bytes,
    repositories,
    repository_blobs,
)

_o = blob_objects.c
_l = repository_blobs.c
_a = digest_aliases.c
_w = blob_object_keys.c
_CURRENT: Final = text("blob_objects.is_current")
HAS_BYTES: Final[ColumnElement[bool]] = literal_column("blob_objects.state <> 'shredded'")
"""True of all objects but shredded ones, which have no bytes and are not damaged."""

BLOB_ROWS: Final = StoredRows(
    blob_objects,
    select(*(_o[name] for name in ObjectRow._fields[:-1]), inline_bytes.c.body)
    .select_from(blob_objects)
    .outerjoin(inline_bytes, and_(_o.is_inline, inline_bytes.c.stored_id == _o.stored_id)),
    stored_id=_o.stored_id,
    digest=_o.digest,
    checksum=_o.checksum,
    has_bytes=HAS_BYTES,
    is_stored=and_(~_o.is_inline, HAS_BYTES),
)
"""The rows of objects for code that verifies stored bytes and marks damage."""


class Link(NamedTuple):
    """A link: a blob of a repository, with its object."""

    repository_id: str
    account_id: str
    digest: str
    object_id: str
    size: int
    manifest_refs: int
    touched_at: int
    """When a client last relied on the link, or the last manifest that referenced it was deleted.
    """
    kms_key_id: str | None
    """The KMS key that opens the object for this link, or None if the object is plain."""
    stored_id: str
    """The id of the object's bytes, in the store or in a row."""
    stored_size: int
    is_inline: bool
    """True if the bytes are in a row."""
    verified_at: int
    """When the object's bytes were last verified; 0: unknown."""
    damage: str | None
    """The object's mark of damage (`registry.metadata.blobs.damage`), or None."""
    encoding: str
    wrapped_data_key: bytes | None
    """None if the object is plain, or the wrap was erased with its KMS key."""
    key_state: KeyState | None
    """The state of the KMS key; None if the object is plain."""
    body: bytes | None = None
    """The stored bytes of an inline object, if `find_link` read the link; else None."""


class LinkTarget(NamedTuple):
    """The object and the KMS key that a link names; None for each if there is no link."""

    object_id: str | None
    kms_key_id: str | None


class ReferencedLink(NamedTuple):
    """A link with its size and its number of references."""

    digest: str
    size: int
    manifest_refs: int


class NewObject(NamedTuple):
    """An object whose bytes are stored, before its row is inserted."""

    id: str
    digest: str
    size: int
    stored_size: int
    encoding: str
    stored_id: str
    """The id of its bytes, in the store or in `inline_bytes`."""
    is_inline: bool = False
    checksum: str | None = None
    """BLAKE3 of the stored bytes, in hex; None if their sha256 is the digest."""


class KeptObject(NamedTuple):
    """The account's current object with a digest."""

    id: str
    stored_id: str
    stored_size: int
    is_inline: bool
    verified_at: int
    """When its bytes were last verified; 0: unknown."""
    damage: str | None
    encoding: str
    allowed: StorageAllowance = StorageAllowance(None, None)
    """The account's limit and counted bytes; only `keep_object` reads them."""


_KEPT_COLUMNS: Final = tuple(_o[name] for name in KeptObject._fields[:-1])
_LINK_COLUMNS: Final = (
    *(_l[name] for name in Link._fields[:8]),  # to `kms_key_id`; the object's follow
    *(_o[name] for name in Link._fields[8:14]),
    _w.wrapped_data_key,
    kms_keys.c.state,
)
_WRAP_OF_LINK: Final = and_(_w.object_id == _l.object_id, _w.kms_key_id == _l.kms_key_id)
_OF_REPOSITORY: Final = (
    select(*_LINK_COLUMNS)
    .select_from(repository_blobs)
    .join(blob_objects, _o.id == _l.object_id)
    .join(repositories, repositories.c.id == _l.repository_id)
    .join(accounts, accounts.c.id == repositories.c.account_id)
    .outerjoin(blob_object_keys, _WRAP_OF_LINK)
    .outerjoin(kms_keys, kms_keys.c.id == _l.kms_key_id)
    .where(IS_NAMED, given(_l.digest))
)
_FIND_ALONE: Final = Statement(_OF_REPOSITORY)
_FIND: Final = Statement(
    _OF_REPOSITORY.add_columns(inline_bytes.c.body).outerjoin(
        inline_bytes, and_(_o.is_inline, inline_bytes.c.stored_id == _o.stored_id)
    )
)
_LINKED: Final = Statement(
    select(_l.digest, _l.size, _l.manifest_refs)
    .where(given(_l.repository_id), _l.digest.in_(listed("digests")))
    .order_by(_l.digest)
    .with_for_update()
)
_WHOLE: Final = Statement(
    select(_l.digest, _l.size, _l.manifest_refs)
    .join(blob_objects, _o.id == _l.object_id)
    .outerjoin(blob_object_keys, _WRAP_OF_LINK)
    .outerjoin(kms_keys, kms_keys.c.id == _l.kms_key_id)
    .where(
        given(_l.repository_id),
        _l.digest.in_(listed("digests")),
        _o.damage.is_(None),
        _o.state != text("'shredded'"),
        or_(
            _l.kms_key_id.is_(None),
            and_(_w.wrapped_data_key.is_not(None), kms_keys.c.state != text("'deleted'")),
        ),
    )
    .order_by(_l.digest)
    .with_for_update(of=repository_blobs)
)
_REFERENCE: Final = Statement(
    repository_blobs.update()
    .where(given(_l.repository_id), _l.digest.in_(listed("digests")))
    .values(manifest_refs=_l.manifest_refs + text("1"))
)
_RELEASE: Final = Statement(
    repository_blobs.update()
    .where(given(_l.repository_id), _l.digest.in_(listed("digests")))
    .values(manifest_refs=_l.manifest_refs - bindparam("count"), touched_at=bindparam("now"))
)
_TOUCH: Final = Statement(
    repository_blobs.update()
    .where(given(_l.repository_id, _l.digest))
    .values(touched_at=bindparam("now"))
)
_KEEP_OBJECT: Final = Statement(
    insert(blob_objects)
    .values(
        **bound(("account_id", *NewObject._fields)),
        is_current=text("true"),
        state=text("'live'"),
        created_at=bindparam("now"),
        verified_at=bindparam("now"),
    )
    .on_conflict_do_update(
        index_elements=["account_id", "digest"],
        index_where=text("is_current"),
        set_={"state": text("'live'"), "condemned_at": text("NULL")},
    )
    .returning(*_KEPT_COLUMNS, *ALLOWANCE)
)
_REVIVE_OBJECT: Final = Statement(
    blob_objects.update()
    .where(given(_o.id, _o.stored_id), _o.damage.is_(None), _o.state != text("'shredded'"))
    .values(state=text("'live'"), condemned_at=text("NULL"))
)
_RETIRE: Final = Statement(
    blob_objects.update().where(given(_o.id, _o.account_id)).values(is_current=text("false"))
)
_TARGET: Final = Statement(
    select(_l.object_id, _l.kms_key_id)
    .select_from(repositories)
    .outerjoin(repository_blobs, and_(_l.repository_id == repositories.c.id, given(_l.digest)))
    .where(repositories.c.id == bindparam("repository_id"), repositories.c.deleted_at.is_(None))
)
_ADD_LINK: Final = Statement(
    insert(repository_blobs)
    .values(
        **bound(("repository_id", "digest", "account_id", "object_id", "size", "kms_key_id")),
        manifest_refs=text("0"),
        touched_at=bindparam("now"),
    )
    .on_conflict_do_nothing()
)
_MOVE_LINK: Final = Statement(
    repository_blobs.update()
    .where(
        _l.repository_id == bindparam("of_repository"),
        _l.digest == bindparam("of_digest"),
        _l.object_id == bindparam("old_object"),
        _l.kms_key_id.is_not_distinct_from(value("old_key", _l.kms_key_id)),
    )
    .values(
        object_id=bindparam("new_object"),
        kms_key_id=bindparam("new_key"),
        touched_at=bindparam("now"),
    )
)
_FIND_KEPT: Final = Statement(
    select(*_KEPT_COLUMNS).where(given(_o.account_id, _o.digest), _CURRENT)
)
_LINKED_OBJECT: Final = Statement(
    select(*_KEPT_COLUMNS)
    .select_from(repository_blobs)
    .join(blob_objects, _o.id == _l.object_id)
    .where(given(_l.repository_id, _l.digest))
)
_UNLINK: Final = Statement(
    repository_blobs.delete().where(
        given(_l.repository_id, _l.digest), _l.manifest_refs == text("0")
    )
)
LINKS_OF_DIGEST: Final = (
    select(repositories.c.name, *_LINK_COLUMNS)
    .select_from(blob_objects)
    .join(repository_blobs, _l.object_id == _o.id)
    .join(repositories, repositories.c.id == _l.repository_id)
    .outerjoin(blob_object_keys, _WRAP_OF_LINK)
    .outerjoin(kms_keys, kms_keys.c.id == _l.kms_key_id)
    .where(given(_o.account_id, _o.digest), _CURRENT, repositories.c.deleted_at.is_(None))
)
"""The links of an account's current object with a digest, each after its repository's name."""
_HOLDERS: Final = paged(LINKS_OF_DIGEST)
_ADD_ALIAS: Final = Statement(insert_new(digest_aliases, ("account_id", "alias", "digest")))
_CANONICAL: Final = Statement(
    select(_a.digest)
    .join(accounts, accounts.c.id == _a.account_id)
    .where(given(accounts.c.handle, _a.alias))
)
_CANONICAL_OF: Final = Statement(
    select(_a.alias, _a.digest).where(given(_a.account_id), _a.alias.in_(listed("digests")))
)
_SAME = select(_a.digest).where(given(_a.account_id), _a.alias == bindparam("digest"))
_EQUIVALENT: Final = Statement(
    union_all(
        _SAME,
        select(_a.alias).where(given(_a.account_id, _a.digest)),
        select(_a.alias).where(given(_a.account_id), _a.digest.in_(_SAME)),
    )
)


def find_link(tx: Connection, handle: str, name: str, digest: str) -> Link | None:
    """Return the link of a blob, by sha256 digest, in the live repository `name`, or None."""
    return find_one(tx, Link, _FIND, handle=handle, name=name, digest=digest)


def find_link_alone(tx: Connection, handle: str, name: str, digest: str) -> Link | None:
    """Return a link like `find_link`, without the bytes of an inline object."""
    return find_one(tx, Link, _FIND_ALONE, handle=handle, name=name, digest=digest)


def canonical_digest(tx: Connection, handle: str, digest: str) -> str | None:
    """Return the sha256 digest of the content that has `digest` in an account.

    A sha256 digest is returned unchecked. Return None for a digest of another algorithm that the
    account has not verified.
    """
    if digest.startswith("sha256:"):
        return digest
    row = tx.row(_CANONICAL, handle=handle, alias=digest)
    return row[0] if row else None


def equivalent_digests(tx: Connection, account_id: str, digest: str) -> list[str]:
    """Return `digest`, then every other verified digest of the same content in the account."""
    rows = tx.rows(_EQUIVALENT, account_id=account_id, digest=digest)
    return list(dict.fromkeys([digest, *(row[0] for row in rows)]))


def canonical_digests(tx: Connection, account_id: str, digests: Sequence[str]) -> dict[str, str]:
    """Map each digest to the same content's sha256; omit digests that the account never verified.

    A sha256 digest is mapped to itself unchecked.
    """
    found = {digest: digest for digest in digests if digest.startswith("sha256:")}
    others = [digest for digest in digests if digest not in found]
    if others:
        rows = tx.rows(_CANONICAL_OF, account_id=account_id, digests=text_list(others))
        found |= {row[0]: row[1] for row in rows}
    return found


def add_alias(tx: Connection, account_id: str, alias: str, digest: str) -> None:
    """Insert `alias`, a verified digest that is not sha256, for the sha256 `digest`."""
    tx.execute(_ADD_ALIAS, account_id=account_id, alias=alias, digest=digest)


def linked_blobs(
    tx: Connection, repository_id: str, digests: Sequence[str]
) -> dict[str, ReferencedLink]:
    """Lock a repository's links of these digests, and map each digest to its link.

    Digests without a link are left out.
    """
    rows = tx.rows(_LINKED, repository_id=repository_id, digests=text_list(digests))
    return {row[0]: ReferencedLink(*row) for row in rows}


def whole_blobs(
    tx: Connection, repository_id: str, digests: Sequence[str]
) -> dict[str, ReferencedLink]:
    """Like `linked_blobs`, but only for links that can be read.

    Links of damaged or shredded objects, and links whose KMS key was deleted, are left out. A link
    whose key is only disabled is included, as the key can be enabled again.
    """
    of = {"repository_id": repository_id, "digests": text_list(digests)}
    rows = tx.rows(_WHOLE, **of)
    if len(rows) < len(set(digests)):
        # If a link was moved while this waited for its row, PostgreSQL has compared the new link
        # with the former object and wrap. The row is locked now: read it again.
        rows = tx.rows(_WHOLE, **of)
    return {row[0]: ReferencedLink(*row) for row in rows}


def add_references(tx: Connection, repository_id: str, digests: Sequence[str]) -> None:
    """Add 1 to the reference count of each of these links."""
    tx.execute(_REFERENCE, repository_id=repository_id, digests=text_list(digests))


def release_references(
    tx: Connection, repository_id: str, digests: Sequence[str], count: int, now: int
) -> None:
    """Subtract `count` from the reference count of each of these links, and touch the links.

    A client may have seen a blob while it was referenced, so the grace period starts now.
    """
    of = {"repository_id": repository_id, "digests": text_list(digests)}
    tx.execute(_RELEASE, **of, count=count, now=now)


def touch_link(tx: Connection, repository_id: str, digest: str, now: int) -> bool:
    """Restart the grace period of a link; return False if the link is gone."""
    return tx.execute(_TOUCH, repository_id=repository_id, digest=digest, now=now) == 1


def keep_object(tx: Connection, account_id: str, new: NewObject, now: int) -> KeptObject:
    """Insert an object unless the account has this digest; lock and return the account's object.

    A condemned object becomes live again. If the object is new, the caller adds its size to the
    account's `stored_bytes`.
    """
    row = tx.row(_KEEP_OBJECT, **new._asdict(), account_id=account_id, now=now)
    assert row is not None
    return KeptObject._make((*row[:-2], StorageAllowance(*row[-2:])))


def has_object(tx: Connection, account_id: str, digest: str) -> bool:
    """Return True if an account has undamaged bytes with this digest, of any algorithm."""
    if not digest.startswith("sha256:"):
        digest = canonical_digests(tx, account_id, [digest]).get(digest, "")
    found = find_object(tx, account_id, digest)
    return found is not None and found.damage is None


def find_object(tx: Connection, account_id: str, digest: str) -> KeptObject | None:
    """Return the account's current object with this sha256 digest, or None."""
    return find_one(tx, KeptObject, _FIND_KEPT, account_id=account_id, digest=digest)


def link_object(
    tx: Connection,
    repository_id: str,
    account_id: str,
    digest: str,
    object_id: str,
    size: int,
    now: int,
    kms_key_id: str | None = None,
    seen: LinkTarget | None = None,
) -> LinkTarget | None:
    """Insert a link to an object in a live repository, or point the existing link to it.

    `kms_key_id` is the key whose wrap opens a sealed object; None for a plain object. `seen` is the
    link's target, if the caller has just read it; this saves a query. Return the link's previous
    target, or None if the repository is not live.
    """
    of = {"repository_id": repository_id, "digest": digest}
    while (before := seen or find_one(tx, LinkTarget, _TARGET, **of)) is not None:
        if before.object_id is None:
            to = {"account_id": account_id, "object_id": object_id, "kms_key_id": kms_key_id}
            count = tx.execute(_ADD_LINK, **of, **to, size=size, now=now)
        else:
            count = tx.execute(
                _MOVE_LINK,
                of_repository=repository_id,
                of_digest=digest,
                old_object=before.object_id,
                old_key=before.kms_key_id,
                new_object=object_id,
                new_key=kms_key_id,
                now=now,
            )
        if count:
            return before
        seen = None  # another transaction has added, moved or removed the link since it was read
    return None


def linked_object(tx: Connection, repository_id: str, digest: str) -> KeptObject | None:
    """Return the object of a repository's link; None if there is no link."""
    return find_one(tx, KeptObject, _LINKED_OBJECT, repository_id=repository_id, digest=digest)


def undelete_object(tx: Connection, object_id: str, stored_id: str) -> bool:
    """Lock an object and make it live again.

    Return False if the object is gone, damaged or shredded, or has other bytes than `stored_id`.
    """
    return tx.execute(_REVIVE_OBJECT, id=object_id, stored_id=stored_id) == 1


def retire_object(tx: Connection, account_id: str, object_id: str) -> None:
    """Retire a locked object: it is no longer the account's current one with its digest.

    Links and tombstones still use it; the next push of the same bytes makes a new object.
    """
    tx.execute(_RETIRE, account_id=account_id, id=object_id)


def unlink(tx: Connection, repository_id: str, digest: str) -> bool:
    """Delete a link that no manifest references; return False if there is no such link."""
    return tx.execute(_UNLINK, repository_id=repository_id, digest=digest) == 1


def holders(tx: Connection, account_id: str, digest: str, limit: int) -> list[tuple[str, Link]]:
    """Return (repository name, link) of up to `limit` live repositories that link a blob.

    Only links to the account's current object with `digest` are returned.
    """
    rows = tx.rows(_HOLDERS, account_id=account_id, digest=digest, limit=limit)
    return [(row[0], Link(*row[1:])) for row in rows]
