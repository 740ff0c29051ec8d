"""Errors of dumping and restoring a PostgreSQL database."""


class DumpRefused(Exception):
    """The database cannot be dumped, or a dump cannot be restored into it, as requested."""


class ProgramFailed(Exception):
    """A program of PostgreSQL is missing, or has failed; the message says why."""
