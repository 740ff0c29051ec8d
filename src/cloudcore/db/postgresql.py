"""The metadata database on PostgreSQL: threads that each hold a connection.

Readers and writers have separate threads, so a read never waits for a write; `Large` queries have
their own reader, which takes turns by account. Every statement is prepared once per connection.
Writes run at READ COMMITTED; the changes lock rows themselves.

Changes are retried after a conflict (deadlock, serialization). Calls whose connection broke before
COMMIT was sent are retried on a new connection. The caller gets `OutcomeUnknown` if the connection
breaks during COMMIT, or during a statement that is a whole change (`Statement.is_whole`), as such a
statement has neither BEGIN nor COMMIT. Connections break together, as when the server restarts. So
for a while after one broke, each connection is checked before it runs a whole-change statement. A
connection whose server is silent counts as broken, too (`postgresql_link`).

Durability: COMMIT returns once its WAL record is on disk. A relaxed change does not wait for its
record, but the WAL is one sequence: the next durable commit flushes all earlier records.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import select
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, cast

import psycopg
from psycopg.errors import (
    DeadlockDetected,
    ReadOnlySqlTransaction,
    SerializationFailure,
    error_from_result,
)
from psycopg.generators import execute

from cloudcore.db.base import (
    CommitMark,
    Connection,
    ConstraintViolated,
    Database,
    Large,
    OutcomeUnknown,
    P,
    Row,
    T,
)
from cloudcore.db.pending import ChangesByThread, Count, Pending, answer, count_nothing
from cloudcore.db.postgresql_link import ServerSilent, connect
from cloudcore.db.postgresql_watch import CommitWatch
from cloudcore.db.refusals import Refusals
from cloudcore.db.statement import Statement
from cloudcore.errors import Unavailable
from cloudcore.threads import FairQueue

READERS = 4
WRITERS = 8
PATIENCE_SECONDS = 10.0
"""Seconds for which a query or change may be retried after its call. If a connection broke in the
last `PATIENCE_SECONDS`, a call that has waited longer than these is not even started."""
WARY_SECONDS = 1.0
"""Seconds after a connection broke during which the others are checked before use."""

_BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_RELAXED = _BEGIN + b"; SET LOCAL synchronous_commit = off"
_CONFLICTS = (DeadlockDetected, SerializationFailure)

_REFUSED = "the database cannot do this now"
_UNKNOWN_OUTCOME = "the connection broke during a commit: the change may or may not be kept"

_log = logging.getLogger(__name__)
_refusals = Refusals()


class _Breaks:
    """The time when a connection of this process last broke or could not be opened."""

    def __init__(self) -> None:
        self.at = float("-inf")


class PostgresqlConnection:
    """The `Connection` over one psycopg connection."""

    joins_changes: Final = True

    def __init__(self, raw: psycopg.Connection, breaks: _Breaks | None = None) -> None:
        self.raw = raw
        self._breaks = breaks or _Breaks()
        self._answered_at = time.monotonic()
        self._cursor = raw.cursor()
        self._refusal: ConstraintViolated | None = None
        self._begin: bytes | None = None
        self._unasked = select.poll()
        self._unasked.register(raw.pgconn.socket, select.POLLIN)
        self.is_announced = False
        self.is_begun = False
        """True if a transaction was begun and has not ended."""
        self.is_whole = False
        """True if the change was one statement, which is already committed."""

    def row(self, statement: Statement, /, **parameters: object) -> Row | None:
        """Return the first row of a query, or None."""
        return self._run(statement, parameters).fetchone()

    def rows(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        """Return all rows of a query."""
        return self._run(statement, parameters).fetchall()

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        """Run a statement and return the number of rows changed."""
        if statement.is_whole and self._begin == _BEGIN and not self.is_whole:
            return self._execute_whole(statement, parameters)
        return self._run(statement, parameters).rowcount

    def announce(self) -> None:
        """Call the listeners once the running change has committed."""
        self.is_announced = True

    def run(self, change: Callable[[Connection], T], *, is_relaxed: bool = False) -> T:
        """Run a whole change; raise its last `ConstraintViolated` again if the change caught it.

        After such an error the transaction is lost. The transaction begins with the first statement
        that needs one; end it by `command`.
        """
        self._refusal = None
        self.is_announced = self.is_begun = self.is_whole = False
        self._begin = _BEGIN_RELAXED if is_relaxed else _BEGIN
        result = change(self)
        self._begin = None
        if self._refusal is not None:
            raise self._refusal
        return result

    def command(self, words: bytes) -> bytes | None:
        """End the transaction by COMMIT or ROLLBACK; return the command status of the server."""
        self.is_begun = False
        return _command(self.raw, words)

    def _run(self, statement: Statement, parameters: dict[str, object]) -> psycopg.Cursor:
        if self._begin is not None:
            if self.is_whole:
                raise RuntimeError("a statement follows one that was the whole change")
            _command(self.raw, self._begin)
            self._begin, self.is_begun = None, True
        try:
            return self._cursor.execute(cast("Any", statement.postgresql), parameters)
        except psycopg.IntegrityError as error:
            self._refusal = ConstraintViolated(error.diag.message_primary)
            raise self._refusal from error

    def _execute_whole(self, statement: Statement, parameters: dict[str, object]) -> int:
        """Run a statement that is a transaction by itself; return the number of rows changed.

        If the statement violates a constraint, it changed nothing: return 0.
        """
        while self._unasked.poll(0):  # if it broke while it was idle, this raises: try it again
            self.raw.pgconn.consume_input()
        if self._answered_at < self._breaks.at + WARY_SECONDS:
            _command(self.raw, b"")  # likewise, and the server may not have said so yet
            self._answered_at = time.monotonic()
        try:
            changed = self._cursor.execute(cast("Any", statement.postgresql), parameters).rowcount
        except psycopg.IntegrityError:
            return 0
        except psycopg.OperationalError as error:
            if self.raw.closed:
                raise _refusals.unavailable(_UNKNOWN_OUTCOME, error, OutcomeUnknown) from error
            raise
        self.is_whole = changed > 0
        return changed


class PostgresqlDatabase(ChangesByThread):
    """The metadata in a PostgreSQL database, shared by any number of processes.

    A change is carried out even if its caller is cancelled.
    """

    def __init__(
        self,
        url: str,
        mark: CommitMark | None = None,
        stopping: threading.Event | None = None,
        count: Count = count_nothing,
        *,
        readers: int = READERS,
        writers: int = WRITERS,
    ) -> None:
        """Connect to the migrated database at `url`; warn if its settings are not durable.

        Processes that share `mark` learn of each other's commits at once. Once `stopping` is set, a
        call whose connection broke is retried only once, instead of for `PATIENCE_SECONDS`: a
        process that stops has little time, which it needs to report what it could not write.

        Raise `Unavailable` if the database cannot be reached.
        """
        super().__init__(count)
        _check_durability(url)
        self._mark = mark or CommitMark()
        self._watch = CommitWatch(partial(connect, url))
        new_session = partial(_Session, url, self._mark, _Breaks())
        stopping = stopping or threading.Event()
        self._readers = _Threads(new_session, _Session.read, readers, stopping)
        self._large_reader = _Threads(new_session, _Session.read, 1, stopping)
        self._writers = _Threads(new_session, _Session.write, writers, stopping)

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `query` and return its result; each statement has its own snapshot."""
        pending = Pending(lambda connection: query(connection, *args, **kwargs))
        if isinstance(query, Large):
            self._large_reader.put(pending, query.account_id)
        else:
            self._readers.put(pending)
        result: T = await pending.future
        return result

    def _put(self, pending: Pending) -> None:
        self._writers.put(pending)

    def version(self) -> int | None:
        """Return a number that changes with each commit of processes that share the mark.

        Commits of other processes change it within `postgresql_watch.EVERY_SECONDS`. Return None if
        the number may miss some of these.
        """
        changes = self._watch.changes()
        return None if changes is None else self._mark.value() << 64 | changes

    async def close(self) -> None:
        """Finish the accepted calls and close the connections."""
        threads = self._readers, self._large_reader, self._writers
        for each in threads:
            each.stop()
        self._watch.stop()
        await asyncio.to_thread(self._watch.join)
        for each in threads:
            await asyncio.to_thread(each.join)


_Call = tuple[Pending, float]
"""A call, and the time until which it may still be started or retried."""


class _Threads:
    """Threads that take calls, each with its own session.

    Among the idle threads, the one that worked last takes the next call: the caches of its session,
    and of its process in the server, are warm. Round robin would cost the server more.
    """

    def __init__(
        self,
        new_session: Callable[[], _Session],
        work: Callable[[_Session, Pending], Any],
        count: int,
        is_stopping: threading.Event,
    ) -> None:
        self._new_session = new_session
        self._work = work
        self._is_stopping = is_stopping
        self._is_closing = False
        self._lock = threading.Lock()
        self._waiting = FairQueue[_Call]()
        self._idle: list[queue.SimpleQueue[_Call | None]] = []
        self._threads = [
            threading.Thread(target=self._serve, name=f"postgresql-{work.__name__}", daemon=True)
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, pending: Pending, account_id: str = "") -> None:
        """Accept a call; while no thread is idle, it waits for the turn of its account.

        Call this on the loop, like `stop`.
        """
        if self._is_closing:
            raise Unavailable("the database is closing")
        call = pending, time.monotonic() + PATIENCE_SECONDS
        with self._lock:
            if not self._idle:
                self._waiting.put(account_id, call)
                return
            inbox = self._idle.pop()
        inbox.put(call)

    def stop(self) -> None:
        """Accept no more calls."""
        with self._lock:
            self._is_closing = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def join(self) -> None:
        """Wait until all accepted calls have ended."""
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        session = self._new_session()
        inbox: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._offer(inbox)
        while (accepted := inbox.get()) is not None:
            pending, give_up_at = accepted
            try:
                pending.result = self._persist(session, pending, give_up_at)
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                pending.error = error
            self._offer(inbox)  # before the answer: the caller's next call then gets this session
            answer([pending])
            del accepted, pending  # while idle, hold no arguments or results of the call
        session.drop()

    def _offer(self, inbox: queue.SimpleQueue[_Call | None]) -> None:
        """Put the next call into a thread's inbox once there is one, or None to end the thread."""
        with self._lock:
            if self._waiting:
                inbox.put(self._waiting.take())
            elif self._is_closing:
                inbox.put(None)
            else:
                self._idle.append(inbox)

    def _persist(self, session: _Session, pending: Pending, give_up_at: float) -> Any:  # noqa: ANN401
        """Run a call; retry after a conflict or on a new connection until `give_up_at`.

        While the process stops, retry only once after a broken connection.
        """
        pause, breaks = 0.005, 0
        while True:
            if time.monotonic() > give_up_at and session.has_broken_of_late:
                raise _refusals.unavailable(_REFUSED, TimeoutError("no connection was free"))
            try:
                return self._work(session, pending)
            except (psycopg.OperationalError, ReadOnlySqlTransaction) as error:
                conflict = isinstance(error, _CONFLICTS)
                breaks += not conflict
                is_late = (
                    isinstance(error, ServerSilent)
                    or time.monotonic() > give_up_at
                    or (self._is_stopping.is_set() and breaks > 1)
                )
                if not (conflict or session.is_lost(error)) or is_late:
                    raise _refusals.unavailable(_REFUSED, error) from error
            time.sleep(random.uniform(0, pause))  # noqa: S311 - jitter, not security
            pause = min(2 * pause, 0.5)


class _Session:
    """A connection, opened on demand and reopened after it broke."""

    def __init__(self, url: str, mark: CommitMark, breaks: _Breaks) -> None:
        self._url = url
        self._mark = mark
        self._breaks = breaks
        self._connection: PostgresqlConnection | None = None

    def read(self, pending: Pending) -> Any:  # noqa: ANN401 - what the query returns
        """Run a query in autocommit mode."""
        return pending.call(self._connected())

    def write(self, pending: Pending) -> Any:  # noqa: ANN401 - what the change returns
        """Run a change in a transaction and commit it."""
        connection = self._connected()
        try:
            result = connection.run(pending.call, is_relaxed=pending.relaxed)
        except OutcomeUnknown:
            self.drop()
            self._mark.change()
            raise
        except BaseException:
            if connection.is_whole:
                self._mark.change()
            elif connection.is_begun:
                self._roll_back(connection)
            raise
        try:
            if connection.is_begun:
                self._commit(connection)
        finally:
            self._mark.change()  # also if the outcome is unknown, and before the caller resumes
        pending.is_announced = connection.is_announced
        return result

    def is_lost(self, error: psycopg.Error) -> bool:
        """Return True, and drop the connection, if a new one is needed after `error`."""
        raw = self._connection.raw if self._connection is not None else None
        if raw is None or raw.closed or isinstance(error, ReadOnlySqlTransaction):
            self.drop()
            return True
        return False

    @property
    def has_broken_of_late(self) -> bool:
        """Return True if a connection of this process recently broke or could not be opened."""
        return time.monotonic() < self._breaks.at + PATIENCE_SECONDS

    def drop(self) -> None:
        """Close the connection, if there is one, and record the break."""
        if self._connection is not None:
            self._connection.raw.close()
            self._connection = None
        self._breaks.at = time.monotonic()

    def _connected(self) -> PostgresqlConnection:
        if self._connection is None:
            self._connection = PostgresqlConnection(connect(self._url), self._breaks)
        return self._connection

    def _roll_back(self, connection: PostgresqlConnection) -> None:
        try:
            connection.command(b"ROLLBACK")
        except psycopg.Error:
            self.drop()

    def _commit(self, connection: PostgresqlConnection) -> None:
        try:
            ended = connection.command(b"COMMIT")
        except _CONFLICTS:
            raise
        except psycopg.OperationalError as error:
            self.drop()
            raise _refusals.unavailable(_UNKNOWN_OUTCOME, error, OutcomeUnknown) from error
        if ended != b"COMMIT":
            raise RuntimeError("the change hid an error that had ended its transaction")


def _command(raw: psycopg.Connection, words: bytes) -> bytes | None:
    """Run BEGIN, COMMIT or ROLLBACK, at a third of the cost of a cursor; return the status."""
    raw.pgconn.send_query(words)
    result = raw.wait(execute(raw.pgconn))[-1]
    if raw.closed:
        raise psycopg.OperationalError(raw.pgconn.get_error_message())
    if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
        raise error_from_result(result)
    status: bytes | None = result.command_status
    return status


def _check_durability(url: str) -> None:
    try:
        with connect(url) as raw:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                found = raw.execute(f"SHOW {setting}").fetchone()
                if found == ("off",):
                    _log.warning(
                        "PostgreSQL runs with %s = off: a crash may lose changes",
                        setting,
                    )
    except psycopg.OperationalError as error:
        raise Unavailable(f"cannot reach the database: {error}") from error


if TYPE_CHECKING:
    _: type[Database] = PostgresqlDatabase
