"""Errors of dumping and restoring a PostgreSQL database."""


class DumpRefused(Exception):
    """The database cannot be dumped, or cannot take the dump; the message says why."""


class ProgramFailed(Exception):
    """A program of PostgreSQL is missing, or has failed; the message says why."""
