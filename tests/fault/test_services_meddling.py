"""What another process does between two steps of a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from registry.oci.digest import digest_of
from tests.fault.seams import SteppingDatabase, Steps
from tests.inprocess import Registry, open_registry
from tests.memory_store import MemoryStore
from tests.recount import querying

DATA: Final = b"data"
PATH: Final = f"/v2/dev/app/blobs/{digest_of(DATA)}"
LOOKED_AT: Final = 13 * 3600


async def opened(url: str, meddle: Callable[[], None]) -> tuple[int, list[str]]:
    """Look at an old blob while someone meddles with its row; return the status and the steps."""
    steps = Steps()
    async with open_registry(
        url, MemoryStore(), around=lambda database: SteppingDatabase(database, steps)
    ) as registry:
        await push(registry)
        registry.clock.advance(LOOKED_AT)
        steps.strike_at(0, meddle)
        answer = await registry.client.request("HEAD", PATH)
        return answer.status, steps.taken


async def push(registry: Registry) -> None:
    path = f"/v2/dev/app/blobs/uploads/?digest={digest_of(DATA)}"
    assert (await registry.client.request("POST", path, DATA)).status == 201


async def test_a_look_at_a_blob_keeps_it(sqlite_database: str) -> None:
    status, steps = await opened(sqlite_database, lambda: None)
    assert status == 200
    assert steps == ["before touch_link", "after touch_link"]


async def test_a_blob_that_is_swept_during_a_look_is_not_said_to_be_there(
    sqlite_database: str,
) -> None:
    def sweep() -> None:
        with querying(sqlite_database) as query:
            query("DELETE FROM repository_blobs")

    status, _ = await opened(sqlite_database, sweep)
    assert status == 404
