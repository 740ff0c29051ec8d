"""PostgreSQL under an `Interleaving`: one statement at a time, though others wait for its locks.

Every task has a session of its own and really has its transactions open beside the others'. A
statement that waits for a lock keeps its task waiting until another's ends the wait; whom the
server sees waiting, it tells.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final

from psycopg.errors import DeadlockDetected

from cloudcore.db.base import Connection, P, Row, T
from cloudcore.db.postgresql import PostgresqlConnection
from cloudcore.db.postgresql_link import connect
from cloudcore.db.schema import metadata
from cloudcore.db.statement import Statement
from registry.metadata import search_tables as _search_tables  # noqa: F401 - they are emptied too
from tests.dying import PassingConnection
from tests.property.interleaving import Abandoned, Died, Interleaving

PATIENCE: Final = 30.0
"""In seconds: how long all may wait for each other before that is a failure."""
_SESSION: Final = "SET synchronous_commit = off; SET deadlock_timeout = '20ms'"
_WAITING: Final = "SELECT pid FROM unnest(%s::int[]) AS s (pid) WHERE pg_blocking_pids(pid) <> '{}'"


class _Task:
    def __init__(self, fatal_step: int | None) -> None:
        self.fatal_step = fatal_step
        self.steps = 0
        self.is_dead = False
        self.is_ready = False
        """It stands before a step."""
        self.is_waiting = False
        """Its statement waits for a lock."""
        self.turn = threading.Semaphore(0)


class LockedInterleaving(Interleaving):
    """A run of tasks of which some may wait inside a step."""

    def __init__(self, rng: random.Random, waiting: Callable[[Sequence[str]], set[str]]) -> None:
        super().__init__(rng)
        self._waiting = waiting
        self._running: dict[str, _Task] = {}
        self._changed = threading.Condition()
        self._last = ""

    def run(self, tasks: Sequence[tuple[str, Callable[[], None], int | None]]) -> None:
        """Run named tasks to their ends, and raise what one of them raised."""
        self._running = {name: _Task(fatal_step) for name, _, fatal_step in tasks}
        threads = [
            threading.Thread(target=self._work, args=(name, work), name=name, daemon=True)
            for name, work, _ in tasks
        ]
        for thread in threads:
            thread.start()
        while ready := self._settled():
            is_moved = self._last not in ready or self._rng.random() < self._eagerness
            self._last = self._rng.choice(ready) if is_moved else self._last
            task = self._running[self._last]
            task.is_ready = False
            task.turn.release()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def step(self, what: str) -> None:
        """Wait for a turn; outside of a run nobody is there."""
        name = threading.current_thread().name
        task = self._running.get(name)
        if task is None:
            return
        if task.is_dead:
            raise Died
        with self._changed:
            task.is_ready = True
            self._changed.notify()
        task.turn.acquire()
        self.moment += 1
        task.steps += 1
        if self._failure is not None:
            raise Abandoned
        if task.steps == task.fatal_step:
            task.is_dead = True
            self.trace.append(f"{name} dies before {what}")
            raise Died
        self.trace.append(f"{name}: {what}")

    def go_on(self) -> None:
        """Wait for a turn after a statement that had to wait for a lock."""
        task = self._running.get(threading.current_thread().name)
        if task is not None and task.is_waiting:
            task.is_waiting = False
            self.step("goes on")

    def _settled(self) -> list[str]:
        """Wait until nobody runs; return who may, of whom there are none when all have ended."""
        give_up_at = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                tasks = self._running
                ready = sorted(name for name, task in tasks.items() if task.is_ready)
                busy = sorted(tasks.keys() - ready)
                if not busy:
                    return ready
                if not self._changed.wait(0.001):
                    waiting = self._waiting(busy)
                    for name in waiting:
                        self._note_waiting(name)
                    if ready and waiting.issuperset(busy):
                        return ready
                assert time.monotonic() < give_up_at, "they wait for each other for ever"

    def _note_waiting(self, name: str) -> None:
        task = self._running[name]
        if not task.is_waiting:
            self.trace.append(f"{name} waits for a lock")
        task.is_waiting = True

    def _work(self, name: str, work: Callable[[], None]) -> None:
        try:
            self.step("begins")
            work()
        except (Died, Abandoned):
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self._failure = self._failure or error
        with self._changed:
            del self._running[name]
            self._changed.notify()


class StatementDatabase:
    """A PostgreSQL database behind the seam, with a session for each task."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sessions: dict[str, PostgresqlConnection] = {}
        self._watcher = connect(url)
        self._clear = "; ".join(f"DELETE FROM {table.name}" for table in metadata.sorted_tables)
        self.interleaving: LockedInterleaving | None = None
        self.deadlocks = 0

    def interleave(self, rng: random.Random) -> LockedInterleaving:
        """Return a run whose tasks may call."""
        self.interleaving = LockedInterleaving(rng, self.waiting)
        return self.interleaving

    def waiting(self, names: Sequence[str]) -> set[str]:
        """Return those of the tasks whose session waits for a lock."""
        pids = {
            self._sessions[name].raw.info.backend_pid: name
            for name in names
            if name in self._sessions
        }
        rows = self._watcher.execute(_WAITING, [list(pids)]).fetchall()
        return {pids[row[0]] for row in rows}

    def begin(self) -> None:
        """Begin with nothing, where no key may refuse."""
        self._watcher.execute(
            f"BEGIN; SET LOCAL session_replication_role = replica; {self._clear}; COMMIT".encode(),
            prepare=False,
        )

    def undo(self) -> None:
        """Leave all to the next `begin`."""

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run SQL of a test's own."""
        return self._watcher.execute(sql.replace("?", "%s").encode(), parameters).fetchall()

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Read, each statement in a snapshot of its own."""
        return query(_SteppingConnection(self._session(), self), *args, **kwargs)

    async def write(
        self, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Write in a transaction, again after a deadlock."""
        name = getattr(change, "__name__", "change")
        session = self._session()
        while True:
            self.step(f"begin {name}")
            try:
                result = session.run(
                    lambda tx: change(_SteppingConnection(tx, self), *args, **kwargs)
                )
                self.step(f"commit {name}")
            except BaseException as error:
                if session.is_begun:
                    session.command(b"ROLLBACK")
                if not isinstance(error, DeadlockDetected):
                    raise
                self.deadlocks += 1
                continue
            if session.is_begun:
                session.command(b"COMMIT")
            self.step(f"after {name}")
            return result

    write_relaxed = write

    def listen(self, listener: Callable[[], None]) -> None:
        """Listen to nothing: there are no jobs here."""

    def version(self) -> int | None:
        """Return None: it is not known."""
        return None

    async def close(self) -> None:
        """Close all sessions."""
        for session in self._sessions.values():
            session.raw.close()
        self._watcher.close()

    def step(self, what: str) -> None:
        """Take a step of the run there is."""
        if self.interleaving is not None:
            self.interleaving.step(what)

    def go_on(self) -> None:
        """Take a step, if the last statement waited."""
        if self.interleaving is not None:
            self.interleaving.go_on()

    def _session(self) -> PostgresqlConnection:
        name = threading.current_thread().name
        if name not in self._sessions:
            raw = connect(self._url)
            raw.execute(_SESSION, prepare=False)
            self._sessions[name] = PostgresqlConnection(raw)
        return self._sessions[name]


class _SteppingConnection(PassingConnection):
    """A connection on which other tasks come between statements."""

    def __init__(self, connection: Connection, database: StatementDatabase) -> None:
        super().__init__(connection)
        self._database = database

    def row(self, statement: Statement, /, **parameters: object) -> Row | None:
        return self._step(self._connection.row, statement, parameters)

    def rows(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        return self._step(self._connection.rows, statement, parameters)

    def execute(self, statement: Statement, /, **parameters: object) -> int:
        return self._step(self._connection.execute, statement, parameters)

    def _step(
        self, run: Callable[..., T], statement: Statement, parameters: dict[str, object]
    ) -> T:
        self._database.step(" ".join(statement.postgresql[:80].split()))
        try:
            return run(statement, **parameters)
        finally:
            self._database.go_on()
