"""The column of who did something: the person or program, and the role."""

from __future__ import annotations

from cloudcore.command_line import Cell, Record


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
