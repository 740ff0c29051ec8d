"""A push in one request whose rows fail to be written: 201 only if this push has written them.

The repository links the same bytes already, under sha256 alone. So whether a push by sha512 was
recorded shows in the alias, and in the grace period, which begins anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Concatenate, Final

import pytest

from cloudcore.db.base import Connection, Database, OutcomeUnknown, P, T
from cloudcore.errors import Unavailable
from registry.oci.digest import digest_of
from registry.settings.groups import Limits
from tests.fault.seams import SteppingDatabase, Steps
from tests.inprocess import IN_FILES, Answer, Registry, open_registry
from tests.memory_store import MemoryStore
from tests.recount import object_ids, querying

DATA: Final = b"pushed twice"
SHA256: Final = digest_of(DATA)
SHA512: Final = digest_of(DATA, "sha512")
HOUR: Final = 3600
UPLOADS: Final = "/v2/dev/app/blobs/uploads/"


@dataclass
class Failure:
    """What becomes of one try to write the rows of a blob."""

    error: Unavailable
    is_kept: bool = False
    """True if the rows are written before the error."""
    then: Callable[[], Awaitable[object]] | None = None
    """What happens before the caller gets the error."""


class FailingDatabase(SteppingDatabase):
    """A database whose next changes that write the rows of a blob, or begin a session, fail."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, Steps())
        self.failures: list[Failure] = []

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write, or fail."""
        if change.__name__ not in ("_record_rows", "begin_in_target") or not self.failures:
            return await super().write(change, *args, **kwargs)
        failure = self.failures.pop(0)
        if failure.is_kept:
            await super().write(change, *args, **kwargs)
        if failure.then is not None:
            await failure.then()
        raise failure.error


@dataclass
class Site:
    """A registry over a database that fails, and the bytes it stores."""

    registry: Registry
    database: FailingDatabase
    store: MemoryStore
    url: str

    async def push(self, digest: str, *failures: Failure) -> Answer:
        """Push `DATA` in one request while its rows fail to be written."""
        self.database.failures = list(failures)
        path = f"/v2/dev/app/blobs/uploads/?digest={digest}"
        return await self.registry.client.request("POST", path, DATA)

    async def is_recorded(self, since: int) -> bool:
        """Return True if the alias is there, and the grace period began after `since`."""
        with querying(self.url) as query:
            ((touched_at,),) = query("SELECT touched_at FROM repository_blobs")
        path = f"/v2/dev/app/blobs/{SHA512}"
        found = await self.registry.client.request("HEAD", path)
        assert (found.status == 200) == (touched_at > since)
        return found.status == 200

    def check_bytes(self) -> None:
        """Check that every row has its bytes, and no bytes are left without a row."""
        with querying(self.url) as query:
            assert set(self.store.files.objects) == object_ids(query)


@asynccontextmanager
async def open_site(url: str, limits: Limits) -> AsyncIterator[Site]:
    """Open a registry whose bytes are in memory."""
    databases: list[FailingDatabase] = []

    def around(database: Database) -> Database:
        databases.append(FailingDatabase(database))
        return databases[-1]

    store = MemoryStore()
    async with open_registry(url, store, limits=limits, around=around) as registry:
        yield Site(registry, databases[-1], store, url)


@pytest.fixture
async def site(sqlite_database: str) -> AsyncIterator[Site]:
    async with open_site(sqlite_database, IN_FILES) as made:
        yield made


@pytest.fixture
async def inline_site(sqlite_database: str) -> AsyncIterator[Site]:
    """Return a site that keeps small blobs in its rows."""
    async with open_site(sqlite_database, Limits()) as made:
        yield made


@pytest.mark.parametrize(
    "failures",
    [
        [Failure(Unavailable("the database or disk is full"))],
        [Failure(OutcomeUnknown("lost")), Failure(Unavailable("the database is busy"))],
        [Failure(OutcomeUnknown("lost")), Failure(OutcomeUnknown("lost again"))],
    ],
)
async def test_an_older_link_is_no_success(site: Site, failures: list[Failure]) -> None:
    assert (await site.push(SHA256)).status == 201
    site.registry.clock.advance(HOUR)
    since = site.registry.clock()
    assert (await site.push(SHA512, *failures)).status == 503
    assert not await site.is_recorded(since)
    assert (await site.push(SHA512)).status == 201
    assert await site.is_recorded(since)


@pytest.mark.parametrize("is_linked", [True, False])
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_change_of_unknown_outcome_is_tried_again(
    site: Site, *, is_linked: bool, is_kept: bool
) -> None:
    if is_linked:
        assert (await site.push(SHA256)).status == 201
    site.registry.clock.advance(HOUR)
    since = site.registry.clock()
    failure = Failure(OutcomeUnknown("lost"), is_kept)
    assert (await site.push(SHA512, failure)).status == 201
    assert await site.is_recorded(since)
    site.check_bytes()


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_end_of_a_small_session_of_unknown_outcome_is_tried_again(
    inline_site: Site, *, is_kept: bool
) -> None:
    client = inline_site.registry.client
    location = (await client.request("POST", UPLOADS)).headers["location"]
    assert (await client.request("PATCH", location, DATA)).status == 202
    inline_site.database.failures = [Failure(OutcomeUnknown("lost"), is_kept)]
    assert (await client.request("PUT", f"{location}?digest={SHA256}")).status == 201
    assert not inline_site.database.failures
    assert (await client.request("GET", f"/v2/dev/app/blobs/{SHA256}")).body == DATA
    assert (await client.request("GET", location)).codes == ["BLOB_UPLOAD_UNKNOWN"]


async def test_a_small_session_that_another_request_has_meanwhile_is_busy(
    inline_site: Site,
) -> None:
    async def append() -> None:
        assert (await client.request("PATCH", location, b" and more")).status == 202

    client = inline_site.registry.client
    location = (await client.request("POST", UPLOADS)).headers["location"]
    assert (await client.request("PATCH", location, DATA)).status == 202
    inline_site.database.failures = [Failure(OutcomeUnknown("lost"), then=append)]
    assert (await client.request("PUT", f"{location}?digest={SHA256}")).status == 409
    whole = digest_of(DATA + b" and more")
    assert (await client.request("PUT", f"{location}?digest={whole}")).status == 201


async def test_bytes_that_a_row_may_own_stay_when_the_repository_goes(site: Site) -> None:
    async def delete() -> None:
        with querying(site.url) as query:
            query("UPDATE repositories SET deleted_at = 1")

    failure = Failure(OutcomeUnknown("lost"), is_kept=True, then=delete)
    assert (await site.push(SHA256, failure)).status == 503
    site.check_bytes()


async def test_bytes_that_another_repository_reads_meanwhile_stay(site: Site) -> None:
    """Another repository mounts the blob; then the next push makes another object the current."""

    async def request(target: str, body: bytes = b"") -> None:
        path = f"/v2/dev/{target}"
        assert (await site.registry.client.request("POST", path, body)).status == 201

    async def retire() -> None:
        await request(f"other/blobs/uploads/?mount={SHA256}&from=dev/app")
        with querying(site.url) as query:
            query("UPDATE blob_objects SET is_current = false")
        await request(f"third/blobs/uploads/?digest={SHA256}", DATA)

    failure = Failure(OutcomeUnknown("lost"), is_kept=True, then=retire)
    assert (await site.push(SHA256, failure)).status == 201
    path = f"/v2/dev/other/blobs/{SHA256}"
    assert (await site.registry.client.request("GET", path)).body == DATA
    site.check_bytes()


async def test_bytes_that_a_session_may_have_are_not_appended_again(inline_site: Site) -> None:
    """Its first body was kept, and it has got another one, before the second try."""

    async def append() -> None:
        answer = await client.request("PATCH", location, b" and more")
        assert answer.status == 202

    client = inline_site.registry.client
    location = (await client.request("POST", UPLOADS)).headers["location"]
    inline_site.database.failures = [Failure(OutcomeUnknown("struck"), is_kept=True, then=append)]
    assert (await client.request("PATCH", location, DATA)).status == 503
    whole = DATA + b" and more"
    assert (await client.request("GET", location)).headers["range"] == f"0-{len(whole) - 1}"
    target = f"{location}?digest={digest_of(whole)}"
    assert (await client.request("PUT", target)).status == 201
