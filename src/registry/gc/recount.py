"""Count the stored bytes of accounts anew, once a day, and correct what is wrong.

Each change of an object changes the number in the same transaction, so a wrong one is a fault of
this program, or of whoever has changed rows by hand. It is said in the log, then mended.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Final

from cloudcore.db.base import Database
from cloudcore.objects.damage import Miscount
from registry.metadata.blobs import stored_bytes
from registry.services.context import ServiceContext

EVERY_SECONDS: Final = 24 * 3600
_PAGE: Final = 500
_log = logging.getLogger(__name__)


async def recount_bytes(ctx: ServiceContext) -> int:
    """Correct the stored bytes of accounts; return how many were wrong."""
    wrong = 0
    async for account_id, _ in miscounted_accounts(ctx.database):
        found = await ctx.database.write(stored_bytes.correct_count, account_id)
        if found is not None:
            wrong += 1
            _log.error("the %s were %d on record, and are %d", *found)
    return wrong


async def miscounted_accounts(database: Database) -> AsyncIterator[tuple[str, Miscount]]:
    """Yield the accounts whose number looks wrong; it is read without a lock."""
    after = ""
    while accounts := await database.read(stored_bytes.counted_accounts, after, _PAGE):
        for after in accounts:
            found = await database.read(stored_bytes.find_miscount, after)
            if found is not None:
                yield after, found
