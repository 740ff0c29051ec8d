"""Generations: how the blobs tell that their database went back in time.

The database remembers names of its successive states; the store keeps the last of them in a file.
A new name is committed to the database first and noted by the store afterwards, so whatever the
store has noted, the database has known: a crash between the two, and processes that do it at the
same time, leave a name that is known. One that is not known was given by a later state of the
database than this one (a backup was brought back), or by another database.

Then nothing that deletes bytes goes on: rows of an older database cannot say what is needed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.errors import PlatformError
from registry.blobstore.base import BlobSweeper
from registry.metadata import generations
from registry.services.context import Context

EVERY_SECONDS: Final = 30
"""How often a process looks whether bytes came since the last generation."""
_LONGEST: Final = 300 * MICROSECONDS
"""How long a generation lasts, bytes or none."""
_LAST_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class DatabaseWentBack(Exception):
    """The database does not know the generation that the blobs had last."""

    def __init__(self) -> None:
        super().__init__(
            "the database is older than the blobs, or another's: it does not know the state in"
            " which they were used last. Nothing is collected or removed. Bring the right database"
            " back; or, if this one is to be the right one from now on, run"
            " 'entrepot gc accept-database' (docs/garbage-collection.md)"
        )


async def check_generation(ctx: Context, sweeper: BlobSweeper) -> None:
    """Check that the database is the one the blobs were used with last, or a later state of it.

    Raises:
        DatabaseWentBack: it is not.

    """
    noted = await asyncio.to_thread(sweeper.generation)
    if noted is not None and not await ctx.database.read(generations.is_known, noted):
        raise DatabaseWentBack


async def renew_generation(ctx: Context, sweeper: BlobSweeper) -> None:
    """Begin a new generation.

    Raises:
        DatabaseWentBack: there is none that it could follow; the store's note stays as it is.

    """
    noted, new = await asyncio.to_thread(sweeper.generation), ctx.new_id()
    if not await ctx.database.write(generations.follow, noted, new, ctx.clock()):
        raise DatabaseWentBack
    await asyncio.to_thread(sweeper.note_generation, new)


async def accept_database(ctx: Context, sweeper: BlobSweeper) -> None:
    """Take this database for the right one: what it does not know of by now are orphans."""
    new = ctx.new_id()
    await ctx.database.write(generations.accept, new, ctx.clock())
    await asyncio.to_thread(sweeper.note_generation, new)


class Generations:
    """The generations that one process begins."""

    def __init__(self, ctx: Context, sweeper: BlobSweeper) -> None:
        self._ctx = ctx
        self._sweeper = sweeper
        self._newest = ""
        self._renewed_at = 0
        self._is_told = False

    async def begin(self) -> None:
        """Begin one as the process starts; a database that went back is told in the log."""
        await self._try()

    async def go_on(self) -> None:
        """Begin one if bytes came since the last, or if that is old.

        So a copy of the database that is brought back is found out, unless nothing came after it.
        """
        newest = await self._ctx.database.read(generations.newest_owner)
        if newest != self._newest or self._renewed_at + _LONGEST <= self._ctx.clock():
            await self._try()

    async def end(self) -> None:
        """Begin the last one, as the process stops; it may not take long."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self._try()
        except TimeoutError:
            _log.warning("the database took too long to note its last state")

    async def _try(self) -> None:
        try:
            newest = await self._ctx.database.read(generations.newest_owner)
            await renew_generation(self._ctx, self._sweeper)
        except DatabaseWentBack as error:
            if not self._is_told:  # the scan for orphans tells it again and again
                _log.error("%s", error)
            self._is_told = True
        except PlatformError as error:  # the next turn tries again
            _log.warning("the state of the database could not be noted: %s", error)
        else:
            self._newest, self._is_told = newest, False
            self._renewed_at = self._ctx.clock()
