"""The invariants that the database itself keeps: each refuses the write that would break it."""

from __future__ import annotations

from typing import Any, Final

import pytest
from sqlalchemy import ClauseElement, bindparam, select

from cloudcore.db.base import Connection, ConstraintViolated, Database, Row
from cloudcore.db.statement import Statement
from cloudcore.identity.tables import accounts
from cloudcore.kms.rows import kms_keys
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    manifest_blobs,
    manifest_bodies,
    manifest_children,
    manifests,
    repositories,
    repository_blobs,
    tags,
    uploads,
)
from tests.contract.content_rows import (
    ACCOUNT,
    BLOB_EDGE,
    BODY,
    CHILD_EDGE,
    KEY,
    LINK,
    MANIFEST,
    OBJECT,
    REPOSITORY,
    TAG,
    UPLOAD,
    WRAP,
    Write,
    insert,
)
from tests.databases import on_both_databases

pytestmark = on_both_databases

# An index with one child that has one layer, and a tag; beside them a stranger's empty repository.
CONTENT: Final[list[tuple[Any, dict[str, Any]]]] = [
    (accounts, ACCOUNT),
    (accounts, {**ACCOUNT, "id": "stranger", "handle": "stranger"}),
    (repositories, REPOSITORY),
    (repositories, {**REPOSITORY, "id": "sibling", "name": "sibling"}),
    (repositories, {**REPOSITORY, "id": "deleted", "deleted_at": 1}),
    (repositories, {**REPOSITORY, "id": "foreign", "account_id": "stranger"}),
    (kms_keys, KEY),
    (kms_keys, {**KEY, "id": "foreign", "account_id": "stranger"}),
    (blob_objects, OBJECT),
    (blob_object_keys, WRAP),
    (repository_blobs, LINK),
    (manifest_bodies, BODY),
    (manifest_bodies, {**BODY, "digest": "sha256:index"}),
    (manifests, MANIFEST),
    (manifests, {**MANIFEST, "id": "index", "digest": "sha256:index", "is_index": True}),
    (manifest_blobs, BLOB_EDGE),
    (manifest_children, CHILD_EDGE),
    (tags, TAG),
    (uploads, UPLOAD),
]


def update(table: Any, identity: str, **changed: Any) -> Write:  # noqa: ANN401
    """Change columns of the row whose first key column is `identity`."""
    key = next(iter(table.primary_key.columns))
    assigned = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in changed}
    return Write(
        table.update().where(key == bindparam("identity")).values(assigned),
        {"identity": identity, **{f"new_{name}": value for name, value in changed.items()}},
    )


def delete(table: Any, identity: str) -> Write:  # noqa: ANN401
    """Delete the rows whose first key column is `identity`."""
    key = next(iter(table.primary_key.columns))
    return Write(table.delete().where(key == bindparam("identity")), {"identity": identity})


REFUSED: Final = {
    "a referenced link cannot go": delete(repository_blobs, "repository"),
    "an object with a link cannot go": delete(blob_objects, "object"),
    "a link's size is its object's": update(repository_blobs, "repository", size=8),
    "a link's digest is its object's": insert(
        repository_blobs, LINK, repository_id="sibling", digest="sha256:other"
    ),
    "a link's account is its object's": insert(
        repository_blobs, LINK, repository_id="foreign", account_id="stranger"
    ),
    "a link's account is its repository's": insert(repository_blobs, LINK, repository_id="foreign"),
    "an object keeps the size its links have": update(blob_objects, "object", size=8),
    "a manifest has its bytes": insert(manifests, MANIFEST, id="other", digest="sha256:nowhere"),
    "a manifest's bytes cannot go": delete(manifest_bodies, "account"),
    "a manifest's account is its repository's": insert(
        manifests, MANIFEST, id="other", repository_id="foreign"
    ),
    "a repository holds a digest once": insert(manifests, MANIFEST, id="other"),
    "a blob edge needs a link": insert(manifest_blobs, BLOB_EDGE, digest="sha256:other"),
    "a blob edge stays inside its repository": insert(
        manifest_blobs, BLOB_EDGE, manifest_id="index", repository_id="sibling"
    ),
    "a child edge stays inside its parent's repository": insert(
        manifest_children, CHILD_EDGE, child_digest="sha256:other", repository_id="sibling"
    ),
    "a child edge needs its child": insert(
        manifest_children, CHILD_EDGE, child_digest="sha256:other", child_id="nobody"
    ),
    "a child of an index cannot go": delete(manifests, "manifest"),
    "a tag stays inside its repository": insert(tags, TAG, repository_id="sibling"),
    "a tag has a manifest": insert(tags, TAG, name="other", manifest_id="nobody"),
    "a tag is there once": insert(tags, TAG, manifest_id="manifest"),
    "a repository with content cannot go": delete(repositories, "repository"),
    "an account with repositories cannot go": delete(accounts, "account"),
    "a handle is taken once": insert(accounts, ACCOUNT, id="other"),
    "a live name is taken once": insert(repositories, REPOSITORY, id="other"),
    "an account has one current object for a digest": insert(
        blob_objects, OBJECT, id="other", stored_id="other"
    ),
    "stored bytes are of one object": insert(
        blob_objects, OBJECT, id="other", digest="sha256:other"
    ),
    "a link is read through a wrap of its object": insert(
        repository_blobs, LINK, repository_id="sibling", kms_key_id="foreign"
    ),
    "a wrap that a link is read through cannot go": delete(blob_object_keys, "object"),
    "a data key is wrapped under a key of its account": insert(
        blob_object_keys, WRAP, kms_key_id="foreign"
    ),
    "an upload has a repository": insert(uploads, UPLOAD, id="other", repository_id="nowhere"),
    "an upload is of its repository's account": insert(
        uploads, UPLOAD, id="other", account_id="stranger"
    ),
    "no image count below zero": update(repositories, "repository", image_count=-1),
    "no tag count below zero": update(repositories, "repository", tag_count=-1),
    "no size below zero": update(repositories, "repository", size_bytes=-1),
    "no count of an image's tags below zero": update(manifests, "manifest", tag_count=-1),
    "no count of references below zero": update(repository_blobs, "repository", manifest_refs=-1),
    "no object of less than no bytes": insert(
        blob_objects, OBJECT, id="other", digest="sha256:other", stored_id="other", size=-1
    ),
    "no upload of less than no bytes": update(uploads, "upload", received_bytes=-1),
    "no lease without an end": update(uploads, "upload", lease_holder="worker"),
    "no end of a lease that nobody holds": update(uploads, "upload", leased_until=1),
    "no unknown account status": update(accounts, "account", status="asleep"),
    "no unknown tag mutability": update(repositories, "repository", tag_mutability="often"),
    "no unknown repository source": update(repositories, "repository", source="rumour"),
    "no unknown encoding": update(blob_objects, "object", encoding="folded"),
    "no unknown object state": update(blob_objects, "object", state="lost"),
}
ACCEPTED: Final = {
    "another repository links the object": insert(
        repository_blobs, LINK, repository_id="sibling", manifest_refs=0
    ),
    "a deleted repository's name is free": insert(
        repositories, REPOSITORY, id="other", deleted_at=1, updated_at=1
    ),
    "a superseded object stays": insert(
        blob_objects, OBJECT, id="other", stored_id="other", is_current=False
    ),
    "a link of a plain object has no key": insert(
        repository_blobs, LINK, repository_id="deleted", kms_key_id=None
    ),
    "a sparse index names what is absent": insert(
        manifest_children, CHILD_EDGE, child_digest="sha256:absent", child_id=None
    ),
}


@pytest.fixture
async def database(database: Database) -> Database:
    """Return a database that holds the content."""

    def store(connection: Connection) -> None:
        for table, row in CONTENT:
            insert(table, row).run(connection)

    await database.write(store)
    return database


async def test_bad_writes_are_refused(database: Database) -> None:
    accepted = []
    for invariant, write in REFUSED.items():
        try:
            await database.write(write.run)
        except ConstraintViolated:
            continue
        accepted.append(invariant)
    assert accepted == []


async def test_their_good_neighbours_are_accepted(database: Database) -> None:
    for write in ACCEPTED.values():
        assert await database.write(write.run) == 1


async def test_an_index_takes_its_edges_and_tags_with_it(database: Database) -> None:
    assert await database.write(delete(manifests, "index").run) == 1
    assert await rows(database, select(tags.c.name)) == []
    assert await rows(database, select(manifest_children.c.parent_id)) == []
    assert await rows(database, select(manifest_blobs.c.manifest_id)) == [("manifest",)]
    assert await database.write(delete(manifests, "manifest").run) == 1
    assert await rows(database, select(manifest_blobs.c.manifest_id)) == []
    assert await database.write(delete(repository_blobs, "repository").run) == 1
    assert await database.write(delete(blob_objects, "object").run) == 1
    assert await rows(database, select(blob_object_keys.c.object_id)) == []


async def test_names_and_tags_sort_by_byte(database: Database) -> None:
    names = ["latest", "Latest", "a", "B", "_x", "a-b", "a.b", "ab", "a_b", "Zz", "10", "9", "a10"]

    for name in names[1:]:
        await database.write(insert(tags, TAG, name=name).run)
        await database.write(insert(repositories, REPOSITORY, id=name, name=name).run)
    await database.write(insert(repositories, REPOSITORY, id="latest", name="latest").run)
    in_order = sorted(names, key=str.encode)
    listed = await rows(database, select(tags.c.name).order_by(tags.c.name))
    assert [name for (name,) in listed] == in_order
    after = select(tags.c.name).where(tags.c.name > bindparam("after")).order_by(tags.c.name)
    following = await rows(database, after, after="a")
    assert [name for (name,) in following] == in_order[in_order.index("a") + 1 :]
    live = select(repositories.c.name).where(repositories.c.id == repositories.c.name)
    found = await rows(database, live.order_by(repositories.c.name))
    assert [name for (name,) in found if name in names] == in_order


async def rows(database: Database, query: ClauseElement, **parameters: object) -> list[Row]:
    """Return the rows of a query."""

    def find(connection: Connection) -> list[Row]:
        return list(connection.rows(Statement(query), **parameters))

    return await database.read(find)
