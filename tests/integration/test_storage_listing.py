"""Pages of objects: in the order of bytes, with common prefixes, in hops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Row
from cloudcore.db.statement import Statement
from cloudcore.storage.bucket import Bucket
from cloudcore.storage.object_rows import (
    Listing,
    ObjectAttributes,
    StoredObject,
    add_object,
    list_page,
)
from tests.databases import on_both_databases
from tests.dying import PassingConnection
from tests.storage_world import StorageWorld


async def fill(storage: StorageWorld, bucket: Bucket, keys: Iterable[str]) -> None:
    def add(tx: Connection) -> None:
        for key in keys:
            made = StoredObject(
                uuid7(), bucket.id, bucket.account_id, key, 1, "0" * 32, ObjectAttributes(), None, 1
            )
            add_object(tx, made)

    await storage.database.write(add)


def expected(keys: Iterable[str], prefix: str, delimiter: str) -> list[str]:
    """Return the rows of a listing, by its definition."""
    rows: list[str] = []
    for key in sorted(keys, key=str.encode):
        if not key.startswith(prefix):
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        row = key if at < 0 else key[: at + len(delimiter)]
        if row not in rows[-1:]:
            rows.append(row)
    return rows


def rows_of(page: Listing) -> list[str]:
    return sorted([each.key for each in page.entries] + page.prefixes, key=str.encode)


async def pages(
    storage: StorageWorld, bucket: Bucket, prefix: str, delimiter: str, limit: int
) -> list[list[str]]:
    found, after = [], ""
    while True:
        page = await storage.page(bucket, prefix, delimiter, after, limit)
        found.append(rows_of(page))
        if page.next_after is None:
            return found
        assert len(found[-1]) == limit
        after = page.next_after


@on_both_databases
async def test_pages_have_every_row_once_whatever_the_keys(storage: StorageWorld) -> None:
    bucket, random = await storage.make(), Random(7)
    letters = ["a", "b", "/", "//", "é", "\U0001f600", "\uffff", "z", "."]
    keys = {"".join(random.choices(letters, k=random.randint(1, 6))) for _ in range(300)}
    await fill(storage, bucket, keys)
    for prefix in ("", "a", "a/", "é", "/", "zz", "\uffff"):
        for delimiter in ("", "/", "//", "b", "é"):
            wanted = expected(keys, prefix, delimiter)
            for limit in (1, 7, 1000):
                got = await pages(storage, bucket, prefix, delimiter, limit)
                assert [row for page in got for row in page] == wanted, (prefix, delimiter, limit)


@on_both_databases
async def test_groups_count_and_a_marker_is_not_listed(storage: StorageWorld) -> None:
    bucket = await storage.make()
    await fill(storage, bucket, ["a", "b/1", "b/2", "c", "d/1"])
    page = await storage.page(bucket, "", "/", limit=2)
    assert ([each.key for each in page.entries], page.prefixes) == (["a"], ["b/"])
    assert page.next_after == "b/"
    page = await storage.page(bucket, "", "/", after="b/", limit=2)
    assert (rows_of(page), page.next_after) == (["c", "d/"], None)
    assert rows_of(await storage.page(bucket, "", "/", after="a")) == ["b/", "c", "d/"]
    assert rows_of(await storage.page(bucket, "", "/", after="b/1")) == ["b/", "c", "d/"]
    assert rows_of(await storage.page(bucket, after="b/1")) == ["b/2", "c", "d/1"]
    assert await storage.page(bucket, limit=0) == ([], [], None)
    other = await storage.make("other")
    assert await storage.page(other) == ([], [], None)


@on_both_databases
async def test_a_page_costs_what_it_shows_not_what_its_prefixes_hold(
    storage: StorageWorld,
) -> None:
    bucket = await storage.make()
    await fill(storage, bucket, [f"{folder}/{n}" for folder in "abcd" for n in range(500)])

    def count(tx: Connection) -> tuple[Listing, int]:
        counted = _Counting(tx)
        return list_page(counted, bucket, "", "/", "", 1000), counted.read

    page, read = await storage.database.read(count)
    assert page.prefixes == ["a/", "b/", "c/", "d/"]
    assert read <= 100


class _Counting(PassingConnection):
    """Counts the rows that are read."""

    read = 0

    def rows(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        found = super().rows(statement, **parameters)
        self.read += len(found)
        return found
