"""The column of who did something: the person or program, and the role."""

from __future__ import annotations

from registry.cli.output import Column, Record


def by_column(principal: str, source: str) -> Column:
    """Return the column BY of the fields of a principal and of the source behind it."""

    def cell(record: Record) -> object:
        crn, behind = record.get(principal), record.get(source)
        if not crn or not behind or behind["session_name"] is None:
            return crn
        name, session = behind["name"], behind["session_name"]
        return f"{name} ({crn})" if session == name else f"{name}, session {session} ({crn})"

    return Column("BY", cell)
