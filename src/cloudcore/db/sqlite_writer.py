"""The one thread of a process that writes to a SQLite file, in groups.

Durability: the database is in WAL mode, so a commit appends frames to one file. A group with a
durable change commits with ``synchronous=FULL``: SQLite syncs that file before COMMIT returns. A
group of relaxed changes commits with ``NORMAL``, which writes the frames without a sync. The next
durable commit, of this or another process, syncs the whole file and so all frames before its own.
Before the file is reused from its start, a checkpoint syncs first the log and then the database,
also with ``NORMAL``. So a relaxed change can be lost only in a power failure, and only if no later
durable change has returned.

Several processes: each group holds a lock on a file beside the database. SQLite's own busy handler
sleeps and retries, which starves writers for seconds; waiters for the lock sleep in the kernel and
are woken. Checkpoints run inside COMMIT or `close`, under the lock as well: no process checkpoints
while another writes.
"""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cloudcore.db.pending import Pending, answer
from cloudcore.db.sqlite_connection import (
    SqliteConnection,
    connect,
    primary_code,
    refused,
    translated,
)
from cloudcore.errors import Unavailable

GROUP_CHANGES = 256
GROUP_SECONDS = 0.025
CHECKPOINT_PAGES = 4000
"""Pages in the log (16 MiB) before a checkpoint, which writes each changed page only once."""
CACHE_KIB = 16 << 10
"""The writer's page cache. Keys are digests, so a commit changes pages all over the indexes."""


class WriteLock:
    """The lock that writers of all processes take for one database file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock during the block; wait for it without a time limit."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock's file."""
        os.close(self._descriptor)


class Writer:
    """The single thread that writes for this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = WriteLock(path)
        with self._lock.held():
            self._raw = connect(path, "rw")
            if self._raw.execute("PRAGMA journal_mode=WAL").fetchone() != ("wal",):
                raise Unavailable(f"the file system of {path} cannot keep a WAL database")
        self._raw.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        self._raw.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
        # To undo a statement that fails midway, SQLite copies the pages that it changes: over
        # 64 KiB of them would go to a file in a temporary folder, page by page.
        self._raw.execute("PRAGMA temp_store=MEMORY")
        self._connection = SqliteConnection(self._raw)
        self._relaxed = False
        self._log_suspect = False
        self._is_full = False
        self._stopping = self._closed = False
        self._queue: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._accepted: deque[Pending] = deque()
        self._thread = threading.Thread(target=self._serve, name="sqlite-writer", daemon=True)
        self._thread.start()

    def put(self, pending: Pending) -> None:
        """Accept a change; call this on the loop, like `stop`."""
        if self._stopping:
            raise Unavailable("the database is closing")
        self._queue.put(pending)

    def stop(self) -> None:
        """Accept no more changes."""
        if not self._stopping:
            self._stopping = True
            self._queue.put(None)

    def join(self) -> None:
        """Wait until all accepted changes have ended."""
        self._thread.join()

    def close(self) -> None:
        """Empty the log, unless it is in use, and close the connection; call this after `join`.

        While a reader is open, SQLite does not remove the files beside the database.
        """
        if not self._closed:
            self._closed = True
            with self._lock.held():
                self._raw.execute("PRAGMA busy_timeout=0")
                with suppress(sqlite3.OperationalError):  # another process reads, or no space
                    self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._raw.close()
            self._lock.close()

    def _serve(self) -> None:
        while self._wait_for_work():
            group: list[Pending] = []
            try:
                with self._lock.held():
                    self._accept_waiting()
                    self._commit_group(group)
            except Exception as error:  # noqa: BLE001 - without this thread all writes would hang
                self._fail_group(group, error)
            answer(group)
            del group  # while idle, hold no arguments or results of its changes

    def _wait_for_work(self) -> bool:
        if not self._accepted:
            first = self._queue.get()
            if first is None:
                return False
            self._accepted.append(first)
        return True

    def _accept_waiting(self) -> None:
        while len(self._accepted) < GROUP_CHANGES:
            try:
                pending = self._queue.get_nowait()
            except queue.Empty:
                return
            if pending is None:  # the end mark: put it back at the end
                self._queue.put(None)
                return
            self._accepted.append(pending)

    def _commit_group(self, group: list[Pending]) -> None:
        """Run accepted changes in one transaction, moving each to `group`, and commit it."""
        self._begin(relaxed=all(pending.relaxed for pending in self._accepted))
        if not self._run_together(group):
            self._raw.execute("BEGIN IMMEDIATE")
            for pending in group:
                self._run_apart(pending)
        if self._raw.in_transaction:
            self._raw.execute("COMMIT")

    def _run_together(self, group: list[Pending]) -> bool:
        """Run changes without savepoints: for each savepoint, SQLite copies the pages that change.

        If a change raises an error, roll back all. Then return False if the others must be run
        again, each in its own savepoint.
        """
        stop_at = time.monotonic() + GROUP_SECONDS
        while self._accepted and (not group or time.monotonic() < stop_at):
            group.append(pending := self._accepted.popleft())
            try:
                self._run(pending)
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                pending.error = self._caused_by(error)
                self._raw.execute("ROLLBACK")
                return len(group) == 1
        return True

    def _begin(self, *, relaxed: bool) -> None:
        if self._log_suspect:
            self._checkpoint_log()
        if self._is_full:
            self._use_log_again()
        if relaxed != self._relaxed:
            self._raw.execute(f"PRAGMA synchronous={'NORMAL' if relaxed else 'FULL'}")
            self._relaxed = relaxed
        self._raw.execute("BEGIN IMMEDIATE")

    def _run(self, pending: Pending) -> None:
        pending.result = self._connection.run(pending.call)
        pending.is_announced = self._connection.is_announced

    def _run_apart(self, pending: Pending) -> None:
        """Run one change of a group; if it raises, roll back only this one."""
        pending.error = None
        self._raw.execute("SAVEPOINT change")
        try:
            self._run(pending)
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            pending.error = self._caused_by(error)
            self._raw.execute("ROLLBACK TO change")
        self._raw.execute("RELEASE change")

    def _caused_by(self, error: BaseException) -> BaseException:
        """Return the error for a change's caller; raise if `error` has ended the transaction."""
        if not self._raw.in_transaction:  # errors such as a full disk end the whole transaction
            raise sqlite3.OperationalError(f"the transaction was lost: {error}") from error
        return translated(error, self._path)

    def _fail_group(self, group: list[Pending], error: Exception) -> None:
        """Roll back a group that could not be committed, and deliver the error to each caller."""
        if not group:  # it failed before the first change
            group.extend(self._accepted)
            self._accepted.clear()
        if self._raw.in_transaction:
            with suppress(sqlite3.Error):
                self._raw.execute("ROLLBACK")
        codes = {primary_code(error), primary_code(error.__cause__)}
        self._log_suspect |= sqlite3.SQLITE_IOERR in codes
        self._is_full |= sqlite3.SQLITE_FULL in codes
        for pending in group:
            if pending.error is None:
                pending.error = refused(error, self._path)
                pending.error.__cause__ = error

    def _checkpoint_log(self) -> None:
        """Checkpoint the log and truncate it.

        After a failed sync the kernel may mark pages as clean that never reached the disk. A later
        sync would skip them, and later commits would be lost with them.
        """
        self._raw.execute("PRAGMA synchronous=FULL")
        self._relaxed = False
        busy, *_ = self._raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("the log could not be emptied after an I/O error")
        self._log_suspect = False

    def _use_log_again(self) -> None:
        """Restart the log from its beginning if possible, because on a full disk it cannot grow.

        A checkpoint that only changes existing pages of the database needs no space.
        """
        self._is_full = False
        with suppress(sqlite3.OperationalError):
            self._raw.execute("PRAGMA wal_checkpoint(RESTART)")
