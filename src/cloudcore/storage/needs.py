"""What buckets depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.events import EVENTS, Events
from cloudcore.ports import Opening, Port
from cloudcore.storage.bytes_port import BucketBytes, BucketKeys

BYTES: Final[Port[BucketBytes]] = Port("storage.bytes")
KEYS: Final[Port[BucketKeys]] = Port("storage.keys")
ACCOUNT_BYTES: Final[Port[int]] = Port("storage.account_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNeeds:
    """The dependencies of the routes and the timers of buckets."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    bytes: BucketBytes
    keys: BucketKeys
    events: Events
    account_bytes: int
    """Most bytes in the buckets of an account."""


async def open_needs(opening: Opening) -> StorageNeeds:
    """Return the dependencies of one process."""
    return StorageNeeds(
        database=opening.install.database,
        clock=opening.install.clock,
        new_id=opening.install.new_id,
        bytes=await opening.get(BYTES),
        keys=await opening.get(KEYS),
        events=await opening.get(EVENTS),
        account_bytes=await opening.get(ACCOUNT_BYTES),
    )
