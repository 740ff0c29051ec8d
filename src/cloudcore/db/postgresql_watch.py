"""Watch a PostgreSQL database for commits of any process: poll its snapshot.

A snapshot names the transactions that are not visible: those from `xmax` on, and a list of earlier
ones that still run. A transaction that writes has a number, which belongs to one of these two
groups until it commits, and to neither afterwards. So two equal snapshots mean that nothing became
visible between them, by any process or program; no writer has to announce anything, and nothing can
get lost. `NOTIFY` would be slower: it takes one lock for the whole server until its transaction is
on disk, so that commits no longer share a flush (16 writers: half the rate, measured on PostgreSQL
15).

A poll costs some 20 µs of processor time here and 30 in the server. Polling pauses while nobody
calls `CommitWatch.changes`.
"""

from __future__ import annotations

import random
import select
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

import psycopg
from psycopg.errors import error_from_result

from cloudcore.db.refusals import Refusals

EVERY_SECONDS: Final = 0.025
KNOWN_SECONDS: Final = 0.25
"""Seconds for which the answer to a poll is valid. A commit elsewhere is noticed after
`EVERY_SECONDS`; if no newer answer arrives within this time, `changes` returns None."""
ANSWER_SECONDS: Final = 2.0
"""Seconds without an answer after which the connection is given up."""
WANTED_SECONDS: Final = 2.0
"""Seconds for which polling goes on after the last call of `changes`."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_STOP_SECONDS: Final = 5.0

_NAME: Final = b"entrepot_snapshot"
_QUESTION: Final = b"SELECT pg_current_snapshot()"
_REFUSED: Final = "commits cannot be watched; until they can, requests ask the database each time"


class CommitWatch:
    """Polls the snapshot on its own connection and thread, which are made at the first use."""

    def __init__(self, connect: Callable[[], psycopg.Connection]) -> None:
        """Store `connect`, which opens the connection, and opens another after it broke."""
        self._connect = connect
        self._refusals = Refusals()
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._wanted_at = -WANTED_SECONDS
        self._known_at = -KNOWN_SECONDS  # when the last question that was answered was put
        self._snapshot: bytes | None = None
        self._changes = 0

    def changes(self) -> int | None:
        """Return the number of changes seen, or None if the last poll was too long ago.

        If two calls return the same number, nothing became visible between the polls that preceded
        them. So a caller misses only commits of the last `KNOWN_SECONDS`, usually `EVERY_SECONDS`.
        """
        now = time.monotonic()
        self._wanted_at = now
        if now - self._known_at > KNOWN_SECONDS:
            self._wake()
            return None
        return self._changes

    def stop(self) -> None:
        """Stop polling; the thread ends when its current poll is answered."""
        with self._lock:
            self._stopped.set()
            self._wanted.set()

    def join(self) -> None:
        """Wait for the end of the thread, unless it hangs while opening a connection."""
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _wake(self) -> None:
        """Start the thread, or end its pause so that it polls now."""
        if self._wanted.is_set():
            return
        with self._lock:
            if self._stopped.is_set():
                return
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._watch, name="postgresql-watch", daemon=True
                )
                self._thread.start()

    def _watch(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            self._rest_unless_wanted()
            try:
                with closing(self._connect()) as raw:
                    readable = select.poll()
                    readable.register(raw.pgconn.socket, select.POLLIN)
                    raw.pgconn.send_prepare(_NAME, _QUESTION)
                    _answer(raw, readable)
                    self._changes += 1  # it may be another server, with another history
                    self._snapshot = None
                    pause = _FIRST_PAUSE
                    self._ask_on(raw, readable)
            except psycopg.Error as error:
                self._refusals.unavailable(_REFUSED, error)
            self._stopped.wait(random.uniform(pause / 2, pause))  # noqa: S311 - jitter
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _ask_on(self, raw: psycopg.Connection, readable: select.poll) -> None:
        """Poll every `EVERY_SECONDS` while the result is wanted, until `stop` or an error."""
        while not self._stopped.is_set():
            self._rest_unless_wanted()
            asked_at = time.monotonic()
            raw.pgconn.send_query_prepared(_NAME, None)
            found = _answer(raw, readable).get_value(0, 0)
            if found != self._snapshot:
                self._snapshot = found
                self._changes += 1
            self._known_at = asked_at  # after the count: a reader takes them in the other order
            self._stopped.wait(EVERY_SECONDS)

    def _rest_unless_wanted(self) -> None:
        """If `changes` was not called in the last `WANTED_SECONDS`, wait for the next call."""
        if self._is_wanted():
            return
        self._wanted.clear()
        if not self._is_wanted() and not self._stopped.is_set():  # it may have changed just now
            self._wanted.wait()

    def _is_wanted(self) -> bool:
        return time.monotonic() - self._wanted_at < WANTED_SECONDS


def _answer(raw: psycopg.Connection, readable: select.poll) -> psycopg.pq.abc.PGresult:
    """Return the answer to the query that was sent.

    Raises:
        psycopg.Error: no answer came in `ANSWER_SECONDS`, the answer is an error, or the connection
            broke.

    """
    server = raw.pgconn
    server.flush()
    found = None
    while True:
        while server.is_busy():
            if not readable.poll(ANSWER_SECONDS * 1000):
                raise psycopg.OperationalError("the server did not answer")
            server.consume_input()
        if (result := server.get_result()) is None:
            break
        found = result
    if found is None:
        raise psycopg.OperationalError("the server had nothing to answer")
    if found.status == psycopg.pq.ExecStatus.FATAL_ERROR:
        raise error_from_result(found)
    return found
