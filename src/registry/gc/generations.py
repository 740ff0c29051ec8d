"""Generations: detect by the blobs that their database went back in time.

The database keeps the names of its successive states, and the store keeps the last one in a file.
A new name is committed to the database first and noted by the store afterwards, so the database
knows every name that the store notes, even after a crash between the two, or with several
processes. A name that it does not know is of a later state (a backup was restored), or of another
database.

Then nothing is deleted: the rows of an older database do not tell which bytes are needed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.errors import PlatformError
from registry.blobstore.base import BlobSweeper
from registry.metadata.collector import generations
from registry.services.context import ServiceContext

EVERY_SECONDS: Final = 30
"""How often a process checks for bytes that came since the last generation."""
_LONGEST: Final = 300 * MICROSECONDS
"""How long a generation lasts at most."""
_LAST_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class DatabaseWentBack(Exception):
    """The database does not know the generation that the store noted last."""

    def __init__(self) -> None:
        super().__init__(
            "the database is older than the blobs, or another's: it does not know the state in"
            " which they were used last. Nothing is collected or removed. Restore the right one;"
            " or, to go on with this one, run"
            " 'entrepot gc accept-database' (docs/garbage-collection.md)"
        )


async def check_generation(ctx: ServiceContext, sweeper: BlobSweeper) -> None:
    """Check that the database is the one the blobs were used with last, or a later state of it.

    Raises:
        DatabaseWentBack: the database is older, or another one.

    """
    noted = await sweeper.generation()
    if noted is not None and not await ctx.database.read(generations.is_known, noted):
        raise DatabaseWentBack


async def renew_generation(ctx: ServiceContext, sweeper: BlobSweeper) -> None:
    """Begin a new generation.

    Raises:
        DatabaseWentBack: the database does not know the last one; the store keeps its note.

    """
    noted, new = await sweeper.generation(), ctx.new_id()
    if not await ctx.database.write(generations.follow, noted, new, ctx.clock()):
        raise DatabaseWentBack
    await sweeper.note_generation(new)


async def accept_database(ctx: ServiceContext, sweeper: BlobSweeper) -> None:
    """Accept this database as the right one: stored bytes that it does not know are orphans."""
    new = ctx.new_id()
    await ctx.database.write(generations.accept, new, ctx.clock())
    await sweeper.note_generation(new)


class Generations:
    """The generations that one process begins."""

    def __init__(self, ctx: ServiceContext, sweeper: BlobSweeper) -> None:
        self._ctx = ctx
        self._sweeper = sweeper
        self._newest = ""
        self._renewed_at = 0
        self._is_told = False

    async def begin(self) -> None:
        """Begin a generation as the process starts; log if the database went back."""
        await self._try()

    async def go_on(self) -> None:
        """Begin a generation if bytes came since the last one, or if that is old.

        So an older copy of the database is detected, unless no bytes came after it.
        """
        newest = await self._ctx.database.read(generations.newest_owner)
        if newest != self._newest or self._renewed_at + _LONGEST <= self._ctx.clock():
            await self._try()

    async def end(self) -> None:
        """Begin the last generation as the process stops, within a short time limit."""
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
            if not self._is_told:  # the scan for orphans keeps logging it
                _log.error("%s", error)
            self._is_told = True
        except PlatformError as error:  # the next turn tries again
            _log.warning("the state of the database could not be noted: %s", error)
        else:
            self._newest, self._is_told = newest, False
            self._renewed_at = self._ctx.clock()
