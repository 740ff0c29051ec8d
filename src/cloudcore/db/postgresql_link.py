"""Connections to PostgreSQL that are closed when the server is silent for long.

If packets are dropped on the way, or a proxy in between survives its server, a dead connection
looks like a long statement: nothing arrives, and nothing breaks. So after `SILENT_SECONDS` of
silence, the server is asked on another connection for the state of the silent one. If the server is
working on the statement, the wait goes on. Otherwise the connection is closed, and its statement
fails as if the connection had broken. If the server is silent on the other connection too, the
statement fails with `ServerSilent`. After that, or after a new connection that was not answered, no
connection is opened for two seconds.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Generator
from contextlib import closing
from functools import lru_cache
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import ConnectionTimeout
from psycopg.types.numeric import Int8Dumper, IntLoader

T = TypeVar("T")

SILENT_SECONDS: Final = 5.0
"""Seconds without a byte of an answer after which the server is asked about the connection."""
LOOK_SECONDS: Final = 3
"""Seconds within which that question must get a connection, and then an answer."""
_GRACE_SECONDS: Final = 1.0
"""Seconds to wait for an answer on its way, if the server says that it has ended its work."""
CONNECT_SECONDS: Final = 5
REFUSED_SECONDS: Final = 60.0
"""Seconds for which refusals of the question's connection count as "at work": a pooler refuses
connections while it has no server."""
PAUSE_SECONDS: Final = 2.0
"""Seconds for which no connection to a silent server is opened."""
_INTERVAL: Final = 0.1
"""Seconds after which psycopg reports that nothing has arrived."""

# Limits that the server applies by itself, if the client is gone.
_SESSION = """
SET default_transaction_isolation = 'read committed';
SET statement_timeout = '60s';
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '60s';
SET jit = off;
SELECT pg_backend_pid()
"""
# A server process that waits to send an answer to its client works on nothing. The state of a
# session with another role than the login is hidden; it counts as working.
_IS_AT_WORK: Final = (
    b"SELECT count(*) FROM pg_stat_activity"
    b" WHERE pid = %s AND coalesce(state, 'active') NOT LIKE 'idle%%'"
    b" AND wait_event_type IS DISTINCT FROM 'Client'"
)


class ServerSilent(psycopg.OperationalError):
    """The server is silent, even on a new connection, so an immediate retry is useless."""


class GuardedConnection(psycopg.Connection):
    """A connection that notices when its server is silent."""

    looks: _Looks | None = None
    server_pid = 0
    """Process id in the server, as the server itself reports it: a pooler in between reports
    another.

    Zero until the server has reported it. Until then, any answer of the server counts as "at work".
    """

    def wait(self, gen: PQGen[T], interval: float = _INTERVAL, timeout: float | None = None) -> T:
        """Return the result of `gen`; raise `OperationalError` if the server is found silent."""
        return super().wait(self._noticing(gen), interval, timeout)

    def _noticing(self, gen: PQGen[T]) -> Generator[Any, Any, T]:
        """Drive psycopg's generator, and count the intervals in which nothing arrived."""
        try:
            silent, wish = 0, next(gen)
            while True:
                ready = yield wish
                silent = 0 if ready else silent + 1
                if silent * _INTERVAL >= SILENT_SECONDS:
                    self._look()
                    silent = 0
                wish = gen.send(ready)
        except StopIteration as ended:
            result: T = ended.value
            return result

    def _look(self) -> None:
        """Return if the server works on the statement; otherwise close this connection and raise.

        Also return if an answer has arrived meanwhile, or if this connection has no `looks`.

        Raise `OperationalError` if the statement is lost, `ServerSilent` if the server is silent.
        """
        if self.looks is None:
            return
        since = time.monotonic() - SILENT_SECONDS
        try:
            if self.looks.is_at_work(self.server_pid, since):
                return
            error = psycopg.OperationalError("the server does not know of the statement any more")
            grace = _GRACE_SECONDS
        except ServerSilent as silent:
            error, grace = silent, 0.0
        last = select.poll()
        last.register(self.pgconn.socket, select.POLLIN)
        if not last.poll(grace * 1000):  # else it has answered just before the look
            self.close()
            raise error


class _Bounded(psycopg.Connection):
    """A connection on which each wait takes at most `LOOK_SECONDS`."""

    def wait(self, gen: PQGen[T], interval: float = _INTERVAL, timeout: float | None = None) -> T:
        return super().wait(gen, interval, timeout or LOOK_SECONDS)


class _Looks:
    """Queries the server for the states of connections, one query at a time in this process."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._silent_at = float("-inf")
        self._refused_since: float | None = None

    def check(self) -> None:
        """Raise `ServerSilent` if the server was found silent less than `PAUSE_SECONDS` ago."""
        if time.monotonic() < self._silent_at + PAUSE_SECONDS:
            raise ServerSilent("the server is silent; it is asked again soon")

    def note_silence(self) -> None:
        """Record that the server did not answer."""
        self._silent_at = time.monotonic()

    def is_at_work(self, pid: int, since: float) -> bool:
        """Return True if the server process `pid` works on a statement; False if idle or gone.

        Return True also if `pid` is 0, or if the server refuses the connection for this query.
        `since` is when the watched connection last received something, by the monotonic clock. If
        another query failed after that time, this one would fail, too.

        Raise `ServerSilent` if the server does not answer.
        """
        with self._lock:
            if self._silent_at > since:
                raise ServerSilent("the server is silent")
            try:
                is_at_work = self._ask(pid) or not pid
            except psycopg.Error as error:
                if self._is_refusal(error):
                    return True
                self.note_silence()
                raise ServerSilent(f"the server is silent: {error}") from error
            self._refused_since = None
            return is_at_work

    def _is_refusal(self, error: psycopg.Error) -> bool:
        """Return True if the server answered, but refused a connection, as with too many clients.

        After `REFUSED_SECONDS` of such answers, return False once.
        """
        if "FATAL" not in str(error):
            return False
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        if now < self._refused_since + REFUSED_SECONDS:
            return True
        self._refused_since = None
        return False

    def _ask(self, pid: int) -> bool:
        with closing(
            _Bounded.connect(
                self._url,
                autocommit=True,
                connect_timeout=LOOK_SECONDS,
                target_session_attrs="read-write",
                application_name="entrepot",
            )
        ) as raw:
            return raw.execute(_IS_AT_WORK, [pid], prepare=False).fetchone() == (1,)


_looks_of = lru_cache(maxsize=16)(_Looks)


class _WholeNumber(IntLoader):
    """Loads NUMERIC as int: PostgreSQL sums BIGINT to NUMERIC, and no fractions are stored."""


def connect(url: str) -> psycopg.Connection:
    """Open a connection to the primary in autocommit mode.

    Raises:
        psycopg.OperationalError: no connection can be opened; `ServerSilent` if nothing answers.

    """
    looks = _looks_of(url)
    looks.check()
    try:
        raw = GuardedConnection.connect(
            url,
            autocommit=True,
            prepare_threshold=0,
            connect_timeout=CONNECT_SECONDS,
            keepalives_idle=30,
            tcp_user_timeout=10_000,
            target_session_attrs="read-write",
            client_encoding="utf8",
            application_name="entrepot",
        )
    except ConnectionTimeout as error:
        looks.note_silence()
        raise ServerSilent(f"the server is silent: {error}") from error
    raw.looks = looks
    raw.prepared_max = 500
    raw.adapters.register_loader("numeric", _WholeNumber)
    # One type for all sizes: each text is prepared once.
    raw.adapters.register_dumper(int, Int8Dumper)
    (raw.server_pid,) = raw.execute(_SESSION, prepare=False).set_result(-1).fetchone() or (0,)
    return raw
