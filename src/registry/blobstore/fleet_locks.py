"""Locks of a store that several nodes share: they are in the PostgreSQL that the nodes share.

On SQLite all processes are of one machine, and the locks of files are enough
(`registry.blobstore.backups`). Stores on disk take those too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from cloudcore.db.opening import is_postgresql
from cloudcore.errors import Unavailable
from registry.blobstore.backups import HeldByAnother
from registry.blobstore.base import DeletionsHeld
from registry.errors import StoreUnavailable

if TYPE_CHECKING:
    from cloudcore.db.postgresql_locks import HeldLock

_DELETIONS: Final = "deletions"
_NOT_KNOWN: Final = "the database cannot say now whether other nodes let this happen"

_log = logging.getLogger(__name__)


class FleetLocks:
    """The locks of one store, for the processes of all nodes. All calls block."""

    def __init__(self, url: str, store: str) -> None:
        """Take the URL of the database, and a name of the `store` that no other has."""
        # Only installs on PostgreSQL load its driver.
        from cloudcore.db.postgresql_locks import LockTaken, SharedLock  # noqa: PLC0415

        self._taken = LockTaken
        self._deletions = SharedLock(url, _DELETIONS)
        self._scan = SharedLock(url, f"orphans of {store}")

    @contextmanager
    def deleting(self) -> Iterator[None]:
        """Keep backups from beginning in the block, as long as the database can be reached.

        Raises:
            DeletionsHeld: a backup is under way, or begins.
            StoreUnavailable: the database cannot tell.

        """
        with ExitStack() as held:
            try:
                held.enter_context(self._deletions.shared())
            except self._taken:
                raise DeletionsHeld from None
            except Unavailable as error:
                raise _not_known(error) from error
            yield

    @contextmanager
    def scan_alone(self) -> Iterator[bool]:
        """Hold the lock of orphan scans in the block; give False if another process has it.

        Raises:
            StoreUnavailable: the database cannot tell.

        """
        with ExitStack() as held:
            try:
                held.enter_context(self._scan.alone())
            except self._taken:
                yield False
                return
            except Unavailable as error:
                raise _not_known(error) from error
            yield True

    @contextmanager
    def deletions_held(self, patience_seconds: float) -> Iterator[HeldLock]:
        """Hold the deletions of all nodes and stores in the block; give the lock, to be checked.

        Raises:
            HeldByAnother: another process holds them.
            Unavailable: the database cannot be reached.

        """
        with ExitStack() as held:
            try:
                lock = held.enter_context(self._deletions.alone_within(patience_seconds))
            except self._taken:
                raise HeldByAnother from None
            yield lock


def fleet_locks(database: str, store: str) -> FleetLocks | None:
    """Return the locks that nodes share by the database at a URL; None if one machine has it."""
    return FleetLocks(database, store) if is_postgresql(database) else None


def _not_known(error: Unavailable) -> StoreUnavailable:
    _log.warning("%s", error)
    return StoreUnavailable(_NOT_KNOWN)
