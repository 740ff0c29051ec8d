"""Objects, the links that make them visible in a repository, and digest aliases.

Reads go repository, link, object: nothing answers from an object alone, so knowing a digest
never grants its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import bindparam, select, text, union_all
from sqlalchemy.dialects.postgresql import insert

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, page, text_list
from cloudcore.identity.tables import accounts
from registry.metadata.tables import (
    blob_objects,
    digest_aliases,
    repositories,
    repository_blobs,
)

_o = blob_objects.c
_l = repository_blobs.c
_a = digest_aliases.c
_CURRENT: Final = text("blob_objects.is_current")


class Link(NamedTuple):
    """What makes a blob visible in a repository."""

    repository_id: str
    account_id: str
    digest: str
    object_id: str
    size: int
    manifest_refs: int
    touched_at: int
    """When someone relied on it last, or its last manifest went."""
    verified_at: int
    """When the bytes last hashed to their digest; 0: unknown."""
    damage: str | None
    """The mark of their damage, if any (`registry.metadata.blobs.damage`)."""


class ReferencedLink(NamedTuple):
    """A link as a manifest's bookkeeping needs it."""

    digest: str
    size: int
    manifest_refs: int


class NewObject(NamedTuple):
    """An object the store has just made, to be recorded."""

    id: str
    digest: str
    size: int
    stored_size: int
    encoding: str


class KeptObject(NamedTuple):
    """The object an account keeps of some bytes."""

    id: str
    verified_at: int
    """When the bytes last hashed to their digest."""
    damage: str | None


_LINK_COLUMNS: Final = (*(_l[name] for name in Link._fields[:-2]), _o.verified_at, _o.damage)
_FIND: Final = Statement(
    select(*_LINK_COLUMNS)
    .select_from(repository_blobs)
    .join(blob_objects, _o.id == _l.object_id)
    .join(repositories, repositories.c.id == _l.repository_id)
    .join(accounts, accounts.c.id == repositories.c.account_id)
    .where(
        accounts.c.handle == bindparam("handle"),
        repositories.c.name == bindparam("name"),
        repositories.c.deleted_at.is_(None),
        _l.digest == bindparam("digest"),
    )
)
_LINKED: Final = Statement(
    select(_l.digest, _l.size, _l.manifest_refs)
    .where(_l.repository_id == bindparam("repository_id"), _l.digest.in_(listed("digests")))
    .order_by(_l.digest)
    .with_for_update()
)
_WHOLE: Final = Statement(
    select(_l.digest, _l.size, _l.manifest_refs)
    .join(blob_objects, _o.id == _l.object_id)
    .where(
        _l.repository_id == bindparam("repository_id"),
        _l.digest.in_(listed("digests")),
        _o.damage.is_(None),
    )
    .order_by(_l.digest)
    .with_for_update(of=repository_blobs)
)
_REFERENCE: Final = Statement(
    repository_blobs.update()
    .where(_l.repository_id == bindparam("repository_id"), _l.digest.in_(listed("digests")))
    .values(manifest_refs=_l.manifest_refs + text("1"))
)
_RELEASE: Final = Statement(
    repository_blobs.update()
    .where(_l.repository_id == bindparam("repository_id"), _l.digest.in_(listed("digests")))
    .values(manifest_refs=_l.manifest_refs - bindparam("count"), touched_at=bindparam("now"))
)
_TOUCH: Final = Statement(
    repository_blobs.update()
    .where(_l.repository_id == bindparam("repository_id"), _l.digest == bindparam("digest"))
    .values(touched_at=bindparam("now"))
)
_KEEP_OBJECT: Final = Statement(
    insert(blob_objects)
    .values(
        id=bindparam("id"),
        account_id=bindparam("account_id"),
        digest=bindparam("digest"),
        size=bindparam("size"),
        stored_size=bindparam("stored_size"),
        encoding=bindparam("encoding"),
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
    .returning(_o.id, _o.verified_at, _o.damage)
)
_REVIVE_OBJECT: Final = Statement(
    blob_objects.update()
    .where(_o.id == bindparam("id"), _o.damage.is_(None))
    .values(state=text("'live'"), condemned_at=text("NULL"))
)
_LINK: Final = Statement(
    (
        _inserted := insert(repository_blobs).values(
            repository_id=bindparam("repository_id"),
            digest=bindparam("digest"),
            account_id=bindparam("account_id"),
            object_id=bindparam("object_id"),
            size=bindparam("size"),
            manifest_refs=text("0"),
            touched_at=bindparam("now"),
        )
    ).on_conflict_do_update(
        index_elements=["repository_id", "digest"],
        set_={
            "touched_at": _inserted.excluded.touched_at,
            "object_id": _inserted.excluded.object_id,
        },
    )
)
_LINKED_OBJECT: Final = Statement(
    select(_o.id, _o.verified_at, _o.damage)
    .select_from(repository_blobs)
    .join(blob_objects, _o.id == _l.object_id)
    .where(_l.repository_id == bindparam("repository_id"), _l.digest == bindparam("digest"))
)
_UNLINK: Final = Statement(
    repository_blobs.delete().where(
        _l.repository_id == bindparam("repository_id"),
        _l.digest == bindparam("digest"),
        _l.manifest_refs == text("0"),
    )
)
_HOLDERS: Final = Statement(
    page(
        select(
            repositories.c.name,
            *_LINK_COLUMNS,
        )
        .select_from(blob_objects)
        .join(repository_blobs, _l.object_id == _o.id)
        .join(repositories, repositories.c.id == _l.repository_id)
        .where(
            _o.account_id == bindparam("account_id"),
            _o.digest == bindparam("digest"),
            _CURRENT,
            repositories.c.deleted_at.is_(None),
        )
    )
)
_ADD_ALIAS: Final = Statement(
    insert(digest_aliases)
    .values(
        account_id=bindparam("account_id"), alias=bindparam("alias"), digest=bindparam("digest")
    )
    .on_conflict_do_nothing()
)
_CANONICAL: Final = Statement(
    select(_a.digest)
    .join(accounts, accounts.c.id == _a.account_id)
    .where(accounts.c.handle == bindparam("handle"), _a.alias == bindparam("alias"))
)
_CANONICAL_OF: Final = Statement(
    select(_a.alias, _a.digest).where(
        _a.account_id == bindparam("account_id"), _a.alias.in_(listed("digests"))
    )
)
_SAME = select(_a.digest).where(
    _a.account_id == bindparam("account_id"), _a.alias == bindparam("digest")
)
_EQUIVALENT: Final = Statement(
    union_all(
        _SAME,
        select(_a.alias).where(
            _a.account_id == bindparam("account_id"), _a.digest == bindparam("digest")
        ),
        select(_a.alias).where(_a.account_id == bindparam("account_id"), _a.digest.in_(_SAME)),
    )
)


def find_link(tx: Connection, handle: str, name: str, digest: str) -> Link | None:
    """Return the link of a blob, by its sha256, in the repository of this name."""
    row = tx.row(_FIND, handle=handle, name=name, digest=digest)
    return Link(*row) if row else None


def canonical_digest(tx: Connection, handle: str, digest: str) -> str | None:
    """Return the sha256 that an account's content has beside `digest`; itself when it is one."""
    if digest.startswith("sha256:"):
        return digest
    row = tx.row(_CANONICAL, handle=handle, alias=digest)
    return row[0] if row else None


def equivalent_digests(tx: Connection, account_id: str, digest: str) -> list[str]:
    """Return every verified name an account knows for the content named `digest`, itself first."""
    rows = tx.rows(_EQUIVALENT, account_id=account_id, digest=digest)
    return list(dict.fromkeys([digest, *(row[0] for row in rows)]))


def canonical_digests(tx: Connection, account_id: str, digests: Sequence[str]) -> dict[str, str]:
    """Return the sha256 the account has for each digest; those it never verified are left out."""
    found = {digest: digest for digest in digests if digest.startswith("sha256:")}
    others = [digest for digest in digests if digest not in found]
    if others:
        rows = tx.rows(_CANONICAL_OF, account_id=account_id, digests=text_list(others))
        found |= {row[0]: row[1] for row in rows}
    return found


def add_alias(tx: Connection, account_id: str, alias: str, digest: str) -> None:
    """Record that `alias`, verified, names the content stored as `digest`."""
    tx.execute(_ADD_ALIAS, account_id=account_id, alias=alias, digest=digest)


def linked_blobs(
    tx: Connection, repository_id: str, digests: Sequence[str]
) -> dict[str, ReferencedLink]:
    """Return those of `digests` that the repository links, locked until the change ends."""
    rows = tx.rows(_LINKED, repository_id=repository_id, digests=text_list(digests))
    return {row[0]: ReferencedLink(*row) for row in rows}


def whole_blobs(
    tx: Connection, repository_id: str, digests: Sequence[str]
) -> dict[str, ReferencedLink]:
    """Return those of `linked_blobs` that are not known to be damaged."""
    rows = tx.rows(_WHOLE, repository_id=repository_id, digests=text_list(digests))
    return {row[0]: ReferencedLink(*row) for row in rows}


def add_references(tx: Connection, repository_id: str, digests: Sequence[str]) -> None:
    """Count one more manifest that references each of these links."""
    tx.execute(_REFERENCE, repository_id=repository_id, digests=text_list(digests))


def release_references(
    tx: Connection, repository_id: str, digests: Sequence[str], count: int, now: int
) -> None:
    """Count `count` manifests fewer that reference each of these links.

    They are touched: who was told of one while it was referenced has its grace from now.
    """
    of = {"repository_id": repository_id, "digests": text_list(digests)}
    tx.execute(_RELEASE, **of, count=count, now=now)


def touch_link(tx: Connection, repository_id: str, digest: str, now: int) -> bool:
    """Note that a client relies on the blob now, so that no sweep takes its link.

    False when the link has gone meanwhile.
    """
    return tx.execute(_TOUCH, repository_id=repository_id, digest=digest, now=now) == 1


def keep_object(tx: Connection, account_id: str, new: NewObject, now: int) -> KeptObject:
    """Record a new object, unless the account holds the same bytes; return what is kept.

    It is locked until the change ends. An object that was condemned but not yet swept lives
    again.
    """
    row = tx.row(
        _KEEP_OBJECT,
        id=new.id,
        account_id=account_id,
        digest=new.digest,
        size=new.size,
        stored_size=new.stored_size,
        encoding=new.encoding,
        now=now,
    )
    assert row is not None
    return KeptObject(*row)


def link_object(
    tx: Connection,
    repository_id: str,
    account_id: str,
    digest: str,
    object_id: str,
    size: int,
    now: int,
) -> None:
    """Make an object visible in a repository of its account, or touch the link that is there."""
    tx.execute(
        _LINK,
        repository_id=repository_id,
        digest=digest,
        account_id=account_id,
        object_id=object_id,
        size=size,
        now=now,
    )


def linked_object(tx: Connection, repository_id: str, digest: str) -> KeptObject | None:
    """Return the object a repository's link leads to."""
    row = tx.row(_LINKED_OBJECT, repository_id=repository_id, digest=digest)
    return KeptObject(*row) if row else None


def undelete_object(tx: Connection, object_id: str) -> bool:
    """Take an object back from the collector and lock it; return False if it is gone or damaged."""
    return tx.execute(_REVIVE_OBJECT, id=object_id) == 1


def unlink(tx: Connection, repository_id: str, digest: str) -> bool:
    """Remove a link no manifest references; False when there is none such."""
    return tx.execute(_UNLINK, repository_id=repository_id, digest=digest) == 1


def holders(tx: Connection, account_id: str, digest: str, limit: int) -> list[tuple[str, Link]]:
    """Return repositories of the account that link a blob, by name, at most `limit`."""
    rows = tx.rows(_HOLDERS, account_id=account_id, digest=digest, limit=limit)
    return [(row[0], Link(*row[1:])) for row in rows]
