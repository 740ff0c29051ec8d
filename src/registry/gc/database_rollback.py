"""Detect a database that is older than the blobs, or not theirs, and then delete nothing.

The database has the ids of its successive states (generations); the store has saved the last id. A
new id is committed to the database before it is saved in the store, so the database has every id
that the store has, even after a crash between the two, or with several processes. If the database
lacks the saved id, an older backup of it was restored, or it is another database.

The rows of such a database do not show which bytes are needed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.errors import PlatformError
from registry.blobstore.store import BlobSweeper
from registry.metadata.collector import generations
from registry.services.context import ServiceContext

EVERY_SECONDS: Final = 30
"""Seconds between a process's checks for objects newer than the last generation."""
_LONGEST: Final = 300 * MICROSECONDS
"""Longest duration of a generation, in microseconds."""
_LAST_SECONDS: Final = 2.0
"""Time limit for the last generation, when the process stops."""
_NOTED_WITHIN_SECONDS: Final = 5.0
"""Within this time a process saves a generation that it has committed, unless it has died."""
_LOOK_SECONDS: Final = 0.1
"""Seconds between two checks whether the store has the generation."""

_NEVER_USED: Final = (
    "the blob store was never used with this database, which was used with one before: is the disk"
    " of the blobs mounted? What is pushed now is stored where it is not looked for later. If the"
    " blobs were restored without the file 'generation', run 'entrepot fsck'; this is told once"
)

_log = logging.getLogger(__name__)


class DatabaseWentBack(Exception):
    """The database lacks the generation that the store has saved."""

    def __init__(self) -> None:
        super().__init__(
            "the database is older than the blobs, or another's: it does not know the state in"
            " which they were used last. Nothing is collected or removed. Restore the right one;"
            " or, to go on with this one, run"
            " 'entrepot gc accept-database' (docs/how-to/repair.md)"
        )


async def check_generation(ctx: ServiceContext, sweeper: BlobSweeper) -> None:
    """Raise `DatabaseWentBack` if the database lacks the generation that the store has saved.

    Then the database is an older copy, or another one.
    """
    noted = await sweeper.generation()
    if noted is not None and not await ctx.database.read(generations.is_known, noted):
        raise DatabaseWentBack


async def renew_generation(ctx: ServiceContext, sweeper: BlobSweeper) -> None:
    """Begin a new generation, in the database and then in the store.

    Raise `DatabaseWentBack` if the database lacks the store's generation; then change nothing.
    """
    noted, new = await sweeper.generation(), ctx.new_id()
    if not await ctx.database.write(generations.follow, noted, new, ctx.clock()):
        raise DatabaseWentBack
    await sweeper.save_generation(new)


async def accept_database(ctx: ServiceContext, sweeper: BlobSweeper) -> None:
    """Accept this database as the right one; from then on, bytes without a row are orphans."""
    new = ctx.new_id()
    await ctx.database.write(generations.accept, new, ctx.clock())
    await sweeper.save_generation(new)


class Generations:
    """Begins the generations of one process: at its start, regularly, and at its end."""

    def __init__(self, ctx: ServiceContext, sweeper: BlobSweeper) -> None:
        self._ctx = ctx
        self._sweeper = sweeper
        self._newest = ""
        self._renewed_at = 0
        self._is_logged = False

    async def begin(self) -> None:
        """Begin the first generation of the process.

        Log an error if the database is older than the store, or was last used with another store.
        """
        try:
            await self._check_store()
        except PlatformError as error:
            _log.warning("whether the blobs are those of the database is not known: %s", error)
        await self._renew()

    async def _check_store(self) -> None:
        """Log an error if the database was used with a store, but this store is new.

        Another process that starts at the same time may have committed the first generation, but
        not yet saved it in the store. So if the newest generation in the database is recent, wait
        some seconds for the store to have one.
        """
        if await self._sweeper.generation() is not None:
            return
        newest_at = await self._ctx.database.read(generations.newest_at)
        if newest_at is None:
            return
        is_new = newest_at > self._ctx.clock() - _NOTED_WITHIN_SECONDS * MICROSECONDS
        for _ in range(round(_NOTED_WITHIN_SECONDS / _LOOK_SECONDS) if is_new else 0):
            await asyncio.sleep(_LOOK_SECONDS)
            if await self._sweeper.generation() is not None:
                return
        _log.error(_NEVER_USED)

    async def renew_if_due(self) -> None:
        """Begin a generation if there are new objects or uploads, or if the last one is too old.

        So an older copy of the database is detected if anything was pushed after it was made.
        """
        newest = await self._ctx.database.read(generations.newest_owner)
        if newest != self._newest or self._renewed_at + _LONGEST <= self._ctx.clock():
            await self._renew()

    async def end(self) -> None:
        """Begin the last generation of the process; give up after `_LAST_SECONDS`."""
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await self._renew()
        except TimeoutError:
            _log.warning("recording the state of the database took too long")

    async def _renew(self) -> None:
        try:
            newest = await self._ctx.database.read(generations.newest_owner)
            await renew_generation(self._ctx, self._sweeper)
        except DatabaseWentBack as error:
            if not self._is_logged:  # log it once: the orphan scan logs it every time
                _log.error("%s", error)
            self._is_logged = True
        except PlatformError as error:  # the next turn tries again
            _log.warning("the state of the database could not be recorded: %s", error)
        else:
            self._newest, self._is_logged = newest, False
            self._renewed_at = self._ctx.clock()
