"""Count the stored bytes of accounts anew, once a day, and correct what is wrong.

Each change of an object changes the number in the same transaction, so a wrong one is a fault of
this program, or of whoever has changed rows by hand. It is said in the log, then mended.
"""

from __future__ import annotations

import logging
from typing import Final

from registry.metadata.blobs import stored_bytes
from registry.services.context import ServiceContext

EVERY_SECONDS: Final = 24 * 3600
_PAGE: Final = 500
_log = logging.getLogger(__name__)


async def recount_bytes(ctx: ServiceContext) -> int:
    """Correct the stored bytes of accounts; return how many were wrong.

    A number that looks right is read without a lock.
    """
    database, wrong, after = ctx.database, 0, ""
    while accounts := await database.read(stored_bytes.counted_accounts, after, _PAGE):
        for after in accounts:
            if await database.read(stored_bytes.find_miscount, after) is None:
                continue
            found = await database.write(stored_bytes.correct_count, after)
            if found is not None:
                wrong += 1
                _log.error(
                    "the stored bytes of account %s were %d on record, and are %d", after, *found
                )
    return wrong
