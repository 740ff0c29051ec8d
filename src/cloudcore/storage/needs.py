"""What buckets depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudcore.clock import Clock
    from cloudcore.db.base import Database
    from cloudcore.events import Events
    from cloudcore.storage.bytes_port import BucketBytes, BucketKeys


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
