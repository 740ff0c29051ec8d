"""Begin a server that keeps SQLAlchemy out of its memory."""

from __future__ import annotations

from cloudcore.db.absent_sqlalchemy import keep_out_sqlalchemy
from cloudcore.db.sql_writer import SqlWriter


def write_sql_apart() -> None:
    """Let another process write all SQL; call it before any module with statements is imported.

    If SQLAlchemy is loaded already, do nothing: this process compiles the SQL itself.
    """
    if keep_out_sqlalchemy():
        writer = SqlWriter()
        from cloudcore.db.statement import let_write  # noqa: PLC0415 - now it loads the stand-in

        let_write(writer)
