"""A worker that is killed while it fetches a blob: the next pull succeeds, and is right.

A child process is forked for each kill. It dies while the upstream sends, or before or after one of
its writes to the database.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Concatenate, Final

import pytest

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection, Database, P, T
from registry.oci.digest import Digest, digest_of
from registry.settings.groups import Limits
from tests.dripping_upstream import Asked, DrippingUpstream
from tests.dying import PassingDatabase
from tests.integration.fills_world import fills_world

MIB: Final = 1024 * 1024
BLOB: Final = random.Random(2).randbytes(10 * MIB + 99)
DIGEST: Final = digest_of(BLOB)
SMALL: Final = b"config"

pytestmark = pytest.mark.timeout(120)


def die() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyUpstream(DrippingUpstream):
    """Kills who has got so many bytes from it."""

    def __init__(self, *blobs: bytes, dies_at: int | None) -> None:
        super().__init__(*blobs)
        self._dies_at = dies_at

    async def _pieces(self, blob: bytes, start: int) -> AsyncIterator[bytes]:
        async for piece in super()._pieces(blob, start):
            if self._dies_at is not None and start >= self._dies_at:
                die()
            yield piece
            start += len(piece)


class DeadlyDatabase(PassingDatabase):
    """Kills its process before or after a write."""

    def __init__(self, database: Database, fatal: int, *, after: bool) -> None:
        super().__init__(database)
        self._left = fatal
        self._after = after

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        is_last = self._is_last()
        if is_last and not self._after:
            die()
        result = await super().write(change, *args, **kwargs)
        if is_last:
            die()
        return result

    async def write_relaxed(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.write(change, *args, **kwargs)

    def _is_last(self) -> bool:
        self._left -= 1
        return self._left == 0


def killed(run: Callable[[], object]) -> bool:
    """Run in a child process; return True if it was killed, False if it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), "it has failed"
    return status == signal.SIGKILL


class Case:
    """A blob that is pulled by a worker which dies, and then by another."""

    def __init__(self, url: str, folder: Path, blob: bytes, *, seals: bool) -> None:
        self._url = url
        self._folder = folder
        self._blob = blob
        self._seals = seals
        self._holder = uuid7()
        self._limits = Limits(inline_max_bytes=4096)
        self.digest: Digest = digest_of(blob)

    async def pull(
        self, dies_at: int | None = None, around: Callable[[Database], Database] | None = None
    ) -> None:
        """Pull as the worker that is to die; with `around`, over such a database."""
        upstream = DeadlyUpstream(self._blob, dies_at=dies_at)
        more = {"around": around} if around else {}
        async with fills_world(
            self._url,
            self._folder,
            upstream,
            seals=self._seals,
            limits=self._limits,
            holder=self._holder,
            **more,  # type: ignore[arg-type]
        ) as world:
            await world.workers[0].pull(self.digest)

    async def check(self) -> list[Asked]:
        """Pull again, by two other workers; return what the upstream was asked."""
        upstream = DrippingUpstream(self._blob)
        async with fills_world(
            self._url,
            self._folder,
            upstream,
            count=2,
            seals=self._seals,
            limits=self._limits,
            dead={self._holder},
        ) as world:
            bodies = await asyncio.gather(*(each.pull(self.digest) for each in world.workers))
            assert bodies == [self._blob] * 2
            assert await world.workers[0].pull(self.digest) == self._blob
            left = await world.left()
            assert (left.fills, left.uploads) == (0, 0)
            staged, objects = world.files()
            assert staged == 0
            assert objects <= 2, "one may have no row: the orphan scan finds it"
        return upstream.asked


@pytest.mark.parametrize(
    ("dies_at", "resumed_from"),
    [(0, 0), (100_000, 0), (8 * MIB, 0), (9 * MIB + 5, 8 * MIB), (10 * MIB, 8 * MIB)],
)
def test_a_worker_killed_while_bytes_come(
    database_url: str, tmp_path: Path, dies_at: int, resumed_from: int
) -> None:
    case = Case(database_url, tmp_path, BLOB, seals=dies_at % 2 == 0)
    assert killed(lambda: asyncio.run(case.pull(dies_at)))
    (asked,) = asyncio.run(case.check())
    assert asked.start in (0, resumed_from)


@pytest.mark.parametrize("blob", [BLOB, SMALL])
def test_a_worker_killed_at_each_write(metadata_url: str, tmp_path: Path, blob: bytes) -> None:
    fatal = 1
    is_over = False
    while not is_over:
        for after in (False, True):
            folder = tmp_path / f"{fatal}{after}"
            case = Case(metadata_url, folder, blob + folder.name.encode(), seals=fatal % 2 == 0)
            dying = lambda each: DeadlyDatabase(each, fatal, after=after)  # noqa: B023, E731
            is_over = not killed(lambda: asyncio.run(case.pull(None, dying)))  # noqa: B023
            if not is_over:
                assert len(asyncio.run(case.check())) <= 1
        fatal += 1
    assert fatal > 4
