"""Whether a process still waits for a database that is away: no longer once the process stops."""

from __future__ import annotations


class Patience:
    """Lets the calls of a process be tried again, until it is over.

    A server that stops has little time for what it noted in memory. If the database is away, its
    calls must fail soon, so that the stop can tell what was not written.
    """

    def __init__(self) -> None:
        self.is_over = False
        """Each call is tried at most twice: by a connection that broke, and by a new one. After a
        conflict with another change it is tried again as before."""
