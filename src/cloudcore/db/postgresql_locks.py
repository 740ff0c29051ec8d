"""Locks between processes of several machines, held in the PostgreSQL that they share.

Each lock is held by its own connection (an advisory lock of the session), so it ends with the
process that holds it, but also if the connection breaks. So long work checks now and then that its
lock is still held.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import psycopg
from psycopg.errors import LockNotAvailable

from cloudcore.db.postgresql_link import connect
from cloudcore.errors import Unavailable

_LOCKS: Final = 0x656E6C6B
"""First number of all these locks; the second is a hash of the schema, which differs by install,
and the lock's name."""
_PLACE: Final = f"({_LOCKS}, hashtext(current_schema() || ' ' || %s))"
_ALONE: Final = f"SELECT pg_advisory_lock{_PLACE}"
_TRY_ALONE: Final = f"SELECT pg_try_advisory_lock{_PLACE}"
_TRY_SHARED: Final = f"SELECT pg_try_advisory_lock_shared{_PLACE}"
_FOR_LONG: Final = b"SET idle_session_timeout = 0"
"""Otherwise a server's timeout would end the connection, and so the lock, during long work."""
_PATIENT: Final = "SET statement_timeout = 0; SET lock_timeout = '{milliseconds}ms'"


class LockTaken(Exception):
    """Another process holds the lock."""


class LockLost(Exception):
    """The connection that held the lock broke: others may have taken the lock meanwhile."""


class HeldLock:
    """A lock that this process holds."""

    def __init__(self, raw: psycopg.Connection) -> None:
        self._raw = raw

    def check(self) -> None:
        """Return if the lock has been held without a break until now. Blocks.

        Raise `LockLost` if the lock may have been lost.
        """
        try:
            self._raw.execute("SELECT 1")
        except psycopg.Error as error:
            raise LockLost(str(error).strip()) from error


class SharedLock:
    """A lock with many shared holders, or one exclusive holder. All of its calls block."""

    def __init__(self, url: str, name: str) -> None:
        """Name the lock; processes that use the same name and database share it."""
        self._url = url
        self._name = name

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the lock shared in the block; a connection that breaks does not end the block.

        Raise `LockTaken` if another process holds the lock exclusively, or waits for that;
        `Unavailable` if the database cannot be reached.
        """
        with self._taken(_TRY_SHARED):
            yield

    @contextmanager
    def alone(self) -> Iterator[HeldLock]:
        """Hold the lock exclusively in the block, if no other process holds it now.

        Raise `LockTaken` if others hold it, `Unavailable` if the database cannot be reached.
        """
        with self._taken(_TRY_ALONE) as held:
            yield held

    @contextmanager
    def alone_within(self, patience_seconds: float) -> Iterator[HeldLock]:
        """Wait until no other process holds the lock, then hold it exclusively in the block.

        During the wait, new requests for a shared lock are refused, so that the wait ends.

        Raise `LockTaken` if others hold the lock after `patience_seconds`, `Unavailable` if the
        database cannot be reached.
        """
        milliseconds = max(1, round(patience_seconds * 1000))
        with self._connected() as raw:
            try:
                raw.execute(_PATIENT.format(milliseconds=milliseconds).encode(), prepare=False)
                raw.execute(_ALONE.encode(), [self._name])
            except LockNotAvailable:
                raise LockTaken from None
            except psycopg.Error as error:
                raise _unavailable(error) from error
            yield HeldLock(raw)

    @contextmanager
    def _taken(self, query: str) -> Iterator[HeldLock]:
        with self._connected() as raw:
            try:
                found = raw.execute(query.encode(), [self._name]).fetchone()
            except psycopg.Error as error:
                raise _unavailable(error) from error
            if found != (True,):
                raise LockTaken
            yield HeldLock(raw)

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        try:
            raw = connect(self._url)
        except psycopg.Error as error:
            raise _unavailable(error) from error
        with closing(raw):
            try:
                raw.execute(_FOR_LONG, prepare=False)
            except psycopg.Error as error:
                raise _unavailable(error) from error
            yield raw


def _unavailable(error: psycopg.Error) -> Unavailable:
    return Unavailable(f"a lock in the database cannot be taken: {str(error).strip()}")
