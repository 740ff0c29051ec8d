"""The column of who did something: the person or program, and the role."""

from __future__ import annotations

from cloudcore.command_line import Cell, Record
from registry.cli.output import Column


def acting(principal: str, source: str) -> Cell:
    """Return the column BY of the fields of a principal and of the source behind it."""

    def shown(record: Record) -> object:
        crn, behind = record.get(principal), record.get(source)
        if not crn or not behind:
            return crn
        name, session = behind["name"], behind["session_name"]
        if session is None:
            kind = crn.rpartition(":")[2].partition("/")[0]
            return name if kind == "user" else f"{name} ({kind.replace('-', ' ')})"
        return f"{name} ({crn})" if session == name else f"{name}, session {session} ({crn})"

    return Cell("BY", shown=shown)


def by_column(principal: str, source: str) -> Column:
    """Return the same column as `registry.cli.output` draws it."""
    cell = acting(principal, source)
    assert cell.shown is not None
    return Column(cell.heading, cell.shown)
