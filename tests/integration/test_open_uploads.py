"""How many upload sessions may be open: refused beyond, 429, until some end."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Final, cast

import pytest

from cloudcore.clock import uuid7
from registry.blobstore.store import BlobStore
from registry.errors import StoreUnavailable
from registry.gc.purge import discard_expired_uploads
from registry.metadata.blobs import upload_quota
from registry.metadata.repositories.repository import add_account, find_repository
from registry.oci.digest import digest_of
from registry.settings.groups import Limits
from tests.databases import on_both_databases
from tests.fault.seams import SteppingStore, Steps
from tests.inprocess import Answer, Registry, open_registry
from tests.memory_store import MemoryStore

LIMITS: Final = Limits(max_open_uploads=3, max_open_uploads_per_repository=2)
DATA: Final = b"a layer"
DIGEST: Final = digest_of(DATA)


@pytest.fixture
async def registry(metadata_url: str) -> AsyncIterator[Registry]:
    async with open_registry(metadata_url, MemoryStore(), limits=LIMITS) as registry:
        yield registry


async def post(registry: Registry, name: str, query: str = "", body: bytes = b"") -> Answer:
    return await registry.client.request("POST", f"/v2/{name}/blobs/uploads/{query}", body)


async def begin(registry: Registry, name: str) -> str:
    """Open a session that has a row, and return its location."""
    answer = await post(registry, name)
    assert answer.status == 202
    location = answer.headers["location"]
    assert (await registry.client.request("PATCH", location)).status == 202
    return location


async def refused(registry: Registry, name: str, whose: str) -> None:
    """Check that no more sessions are opened, be it by a mount that finds nothing."""
    for query in ("", f"?mount={digest_of(b'nowhere')}", "?digest-algorithm=sha512"):
        answer = await post(registry, name, query)
        assert (answer.status, answer.codes) == (429, ["TOOMANYREQUESTS"])
        assert int(answer.headers["retry-after"]) > 0
        assert f"the {whose} has" in answer.json()["errors"][0]["message"]


@on_both_databases
async def test_a_repository_has_so_many_uploads_open_and_no_more(registry: Registry) -> None:
    ask = registry.client.request
    first, second = [await begin(registry, "dev/a") for _ in range(2)]
    await refused(registry, "dev/a", "repository")
    # What is open goes on, and what needs no session is taken.
    assert (await ask("PATCH", first, DATA)).status == 202
    assert (await ask("GET", first)).status == 204
    assert (await post(registry, "dev/a", f"?digest={digest_of(b'x')}", b"x")).status == 201
    await refused(registry, "dev/a", "repository")
    # Finished or cancelled, each leaves its place to another.
    assert (await ask("PUT", f"{first}?digest={DIGEST}")).status == 201
    await begin(registry, "dev/a")
    await refused(registry, "dev/a", "repository")
    assert (await ask("DELETE", second)).status == 204
    await begin(registry, "dev/a")
    await refused(registry, "dev/a", "repository")


@on_both_databases
async def test_a_session_without_a_row_counts_when_it_gets_one(registry: Registry) -> None:
    ask = registry.client.request
    early = [(await post(registry, "dev/a")).headers["location"] for _ in range(3)]
    for _ in range(2):
        await begin(registry, "dev/a")
    for method, body in (("PATCH", DATA), ("PATCH", bytes(100_000)), ("PUT", bytes(100_000))):
        query = f"?digest={digest_of(body)}" if method == "PUT" else ""
        answer = await ask(method, early[0] + query, body)
        assert (answer.status, answer.codes) == (429, ["TOOMANYREQUESTS"])
    # What needs no row is taken, and a session without one can be cancelled.
    assert (await ask("PUT", f"{early[1]}?digest={DIGEST}", DATA)).status == 201
    assert (await ask("DELETE", early[2])).status == 204


@on_both_databases
async def test_an_account_has_so_many_uploads_open_and_no_more(registry: Registry) -> None:
    opened = [await begin(registry, f"dev/{name}") for name in "abc"]
    for name in ("a", "d", "e"):
        await refused(registry, f"dev/{name}", "account")
    await registry.ctx.database.write(add_account, uuid7(), "other", registry.clock())
    for name in ("a", "a", "b"):
        await begin(registry, f"other/{name}")
    await refused(registry, "other/b", "account")
    assert (await registry.client.request("DELETE", opened[0])).status == 204
    await begin(registry, "dev/d")


@on_both_databases
async def test_what_has_expired_does_not_count(registry: Registry) -> None:
    for name in "aab":
        await begin(registry, f"dev/{name}")
    registry.clock.advance(LIMITS.upload_idle_seconds - 1)
    await refused(registry, "dev/a", "repository")
    await refused(registry, "dev/b", "account")
    registry.clock.advance(1)
    for name in "aab":
        await begin(registry, f"dev/{name}")
    await refused(registry, "dev/b", "account")
    assert await discard_expired_uploads(registry.ctx) == 3
    await refused(registry, "dev/a", "repository")


@on_both_databases
async def test_a_bound_is_met_exactly_and_one_of_zero_allows_none(registry: Registry) -> None:
    await post(registry, "dev/a", f"?digest={DIGEST}", DATA)
    found = await registry.ctx.database.read(find_repository, "dev", "a")
    assert found is not None

    async def check(*rooms: tuple[int, int, str | None]) -> None:
        for of_repository, of_account, full in rooms:
            args = found.id, found.account_id, registry.clock(), of_repository, of_account
            room = await registry.ctx.database.read(upload_quota.find_room, *args)
            assert room.full == full, args

    none = (0, 9, "repository"), (9, 0, "account")
    await check(*none, (1, 1, None))
    for name in "aab":
        await begin(registry, f"dev/{name}")
    await check(*none, (2, 3, "repository"), (3, 3, "account"), (3, 4, None))


def test_a_refusal_looks_at_no_more_sessions_than_it_must(sqlite_database: str) -> None:
    """Steps of SQLite's machine, with a few sessions beyond the bound and with many."""

    def steps(raw: sqlite3.Connection, sessions: int) -> int:
        raw.executemany(
            "INSERT INTO uploads (id, repository_id, account_id, received_bytes, stage_shared,"
            " lease_token, created_at, expires_at) VALUES (?, 'r', 'a', 0, 0, 0, 0, 9)",
            [(f"{sessions}-{number}",) for number in range(sessions)],
        )
        taken = [0]

        def count() -> None:
            taken[0] += 1

        raw.set_progress_handler(count, 1)
        bounds = {"of_repository": 90, "of_account": 95}
        ids = {"repository_id": "none", "account_id": "a", "now": 1, "adding": 0}
        assert raw.execute(upload_quota._FIND_ROOM.sqlite, ids | bounds).fetchall() == [
            ("account", None, None)
        ]
        raw.set_progress_handler(None, 0)
        return taken[0]

    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as raw:
        assert steps(raw, 100) == steps(raw, 5000) < 1000


def test_open_uploads_are_looked_up_in_indexes_alone(sqlite_database: str) -> None:
    with closing(sqlite3.connect(sqlite_database.removeprefix("sqlite:///"))) as raw:
        names = ("repository_id", "account_id", "now", "of_repository", "of_account", "adding")
        plan = raw.execute(
            f"EXPLAIN QUERY PLAN {upload_quota._FIND_ROOM.sqlite}", dict.fromkeys(names, 0)
        ).fetchall()
    details = [row[3] for row in plan if "SEARCH uploads " in row[3]]
    assert len(details) == 2
    for detail, column in zip(details, ("repository_id", "account_id"), strict=True):
        assert "USING COVERING INDEX" in detail
        assert f"({column}=? AND expires_at>?)" in detail


class BrokenDisk(Steps):
    """Fails whatever deletes staged bytes."""

    def take(self, step: str) -> None:
        if step == "before discard":
            raise StoreUnavailable("the disk failed")


async def test_a_session_is_cancelled_though_its_bytes_stay(sqlite_database: str) -> None:
    store = cast("BlobStore", SteppingStore(MemoryStore(), BrokenDisk()))
    async with open_registry(sqlite_database, store) as registry:
        location = await begin(registry, "dev/app")
        assert (await registry.client.request("DELETE", location)).status == 204
        assert (await registry.client.request("GET", location)).status == 404


async def test_a_wrong_digest_is_told_though_the_bytes_stay(sqlite_database: str) -> None:
    store = cast("BlobStore", SteppingStore(MemoryStore(), BrokenDisk()))
    async with open_registry(sqlite_database, store) as registry:
        ask, other = registry.client.request, digest_of(b"other")
        location = await begin(registry, "dev/app")
        for method, target in (
            ("PUT", f"{location}?digest={other}"),
            ("POST", f"/v2/dev/app/blobs/uploads/?digest={other}"),
        ):
            answer = await ask(method, target, DATA)
            assert (answer.status, answer.codes) == (400, ["DIGEST_INVALID"])
