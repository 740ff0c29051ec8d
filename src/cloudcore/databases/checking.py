"""Read all data of a server that was restored to be proved: every page, or every row.

Pages have checksums if the server was made with them, as every server of ours is; a registered one
may be without. Then its rows are read as for a dump, which goes nowhere, and with `pg_amcheck`, if
the machine has it, what a dump leaves out: catalogs, materialized views, and where rows point to.
Indexes are left out: they hold nothing that is not in tables, and their order depends on the
collations of the machine that made them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cloudcore.databases import postgres
from cloudcore.databases.confined_runs import Run, run
from cloudcore.databases.server import (
    DATA_INSIDE,
    SUPERUSER,
    ServerFailed,
    ServerPaths,
    ServerSpec,
)

_SHARE: Final = Path("/usr/share/postgresql")
_NOT_CHECKED: Final = "Data page checksum version: 0"
ALL_CONNECT: Final = "UPDATE pg_database SET datallowconn = true WHERE datname <> 'template0'\n"
"""What a server is told before its rows are read, so that no database is left out."""


async def has_checksums(spec: ServerSpec, paths: ServerPaths) -> bool:
    """Return True if the pages of a server that does not run have checksums."""
    lines: list[str] = []
    await _run(spec, paths, "pg_controldata", DATA_INSIDE, lines=lines)
    return _NOT_CHECKED not in (" ".join(each.split()) for each in lines)


async def check_pages(spec: ServerSpec, paths: ServerPaths) -> None:
    """Compare every page with its checksum; raise `ServerFailed` if one is wrong."""
    await _run(spec, paths, "pg_checksums", "--check", "--pgdata", DATA_INSIDE)


async def read_rows(spec: ServerSpec, paths: ServerPaths) -> None:
    """Read every row of a server that runs; raise `ServerFailed` if one cannot be read."""
    where = ("--host", postgres.SOCKETS_INSIDE, "--port", str(spec.port), "--username", SUPERUSER)
    nowhere = ("--file", "/dev/null", "--no-sync")
    await _run(spec, paths, "pg_dumpall", *where, "--no-password", *nowhere)
    if _can_check_tables(spec.version):
        words = ("--no-password", "--all", "--install-missing", "--no-dependent-indexes")
        await _run(spec, paths, "pg_amcheck", *where, *words, "--exclude-index=*")


def _can_check_tables(version: int) -> bool:
    extension = _SHARE / str(version) / "extension/amcheck.control"
    return extension.is_file() and Path(postgres.program(version, "pg_amcheck")).is_file()


async def _run(
    spec: ServerSpec, paths: ServerPaths, name: str, *words: str, lines: list[str] | None = None
) -> None:
    """Run a program to its end, beside the server and confined like it; it cannot write."""
    ended = await run(
        Run(
            argv=(postgres.program(spec.version, name), *words),
            user=paths.user,
            readable={paths.data: DATA_INSIDE, paths.socket_folder: postgres.SOCKETS_INSIDE},
        ),
        (lambda _line: None) if lines is None else lines.append,
    )
    if ended.status != 0:
        raise ServerFailed(f"{name} failed: {ended.said}")
