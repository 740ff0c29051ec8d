"""A fill for one repository gives nothing to another whose upstream does not have the blob."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Concatenate, Final

import pytest

from cloudcore.db.base import Connection, P, T
from registry.errors import BlobUnknown
from registry.oci.digest import Digest, digest_of
from registry.oci.reference import Name
from registry.services.pull_through.missing_blobs import FedBlob, get_missing_blob
from registry.upstream.base import BlobStream, NotUpstream, Remote
from tests.databases import on_both_databases
from tests.dripping_upstream import DrippingUpstream
from tests.integration.fills_world import (
    HANDLE,
    OTHER,
    REPOSITORY,
    Left,
    MortalDatabase,
    fills_world,
    path_of,
)

MIB: Final = 1024 * 1024
BLOB: Final = bytes(range(256)) * (3 * MIB // 256) + b"the end"
DIGEST: Final = digest_of(BLOB)

pytestmark = pytest.mark.anyio


class OfOne(DrippingUpstream):
    """An upstream whose blobs are in one repository alone."""

    async def head_blob(self, remote: Remote, digest: Digest) -> int | None:
        _check(remote)
        return await super().head_blob(remote, digest)

    @asynccontextmanager
    async def open_blob(
        self, remote: Remote, digest: Digest, start: int = 0
    ) -> AsyncIterator[BlobStream]:
        _check(remote)
        async with super().open_blob(remote, digest, start) as stream:
            yield stream


def _check(remote: Remote) -> None:
    if not REPOSITORY.endswith(remote.repository):
        raise NotUpstream


class Late(MortalDatabase):
    """A database whose answer to what there is for `OTHER` comes late."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type] # as its base has it
        self.has_looked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        found = await super().read(query, *args, **kwargs)
        if query.__name__ == "_find_place" and Name(HANDLE, OTHER) in args:
            self.has_looked.set()
            await self.go_on.wait()
        return found


@on_both_databases
@pytest.mark.parametrize("number", [0, 1])
async def test_a_fill_that_has_just_begun_is_not_for_another_repository(
    metadata_url: str, tmp_path: Path, number: int
) -> None:
    upstream = OfOne(BLOB)
    upstream.allow(MIB)
    async with fills_world(metadata_url, tmp_path, upstream, count=2, around=Late) as world:
        worker = world.workers[number]
        late = worker.ctx.database
        assert isinstance(late, Late)
        pull = asyncio.create_task(worker.client.request("GET", path_of(DIGEST, OTHER)))
        async with asyncio.timeout(60):
            await late.has_looked.wait()
            missing = BlobUnknown("it is not here")
            name = Name(HANDLE, REPOSITORY)
            begun = await get_missing_blob(world.workers[0].ctx, name, DIGEST, missing)
            assert isinstance(begun, FedBlob)
            late.go_on.set()
            answer = await pull
            assert answer.status == 404, "its own upstream does not have it"
            upstream.allow(None)
            assert b"".join([part async for part in begun.blob.stream()]) == BLOB
        assert await world.left() == Left(0, 0, 1)
