"""Programs of PostgreSQL: command lines of a server, SQL to run in it, and checks of its data.

All settings of a server are on its command line, where its data cannot override them: the command
line takes precedence over ``ALTER SYSTEM`` and files in the data folder (PostgreSQL 15, 20.1).

To verify a backup, every page of the restored data is compared with its checksum. Data of a
registered cluster may have no checksums: then every row is read, as for a dump, and `pg_amcheck`,
if installed, checks what a dump leaves out: catalogs, materialized views, and where rows point to.
Indexes are not checked: they hold nothing that is not in tables, and their order depends on the
collations of the machine that made them.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cloudcore.databases.archive.driver import Recovery, archive_command, restore_command
from cloudcore.databases.servers.confinement import ConfinedProgram, run
from cloudcore.databases.servers.driver import (
    DATA_INSIDE,
    DATABASE,
    OWNER,
    SPOOL_INSIDE,
    SUPERUSER,
    ServerFailed,
    ServerPaths,
    ServerSpec,
)

PROGRAMS: Final = Path("/usr/lib/postgresql")
"""The folder of Debian's programs, by major version."""
VERSIONS: Final = (15, 16, 17)
SOCKETS_INSIDE: Final = "/sockets"
CONF_INSIDE: Final = "/conf"
CERTIFICATE: Final = "server.pem"
"""The key and the chain, in one file so that they change together."""
_FATAL: Final = (" FATAL: ", " PANIC: ", " ERROR: ")
_SCRAM_ITERATIONS: Final = 4096
"""As PostgreSQL itself; passwords of the platform are random."""
_ACCESS: Final = f"""\
local all {SUPERUSER} trust
local replication {SUPERUSER} trust
hostssl all {SUPERUSER} 0.0.0.0/0 reject
hostssl all all 127.0.0.1/32 scram-sha-256
"""
"""Who may connect (pg_hba.conf): the first line that matches decides; without a match, the
connection is refused. The socket is in a folder that only the platform and the server itself can
enter."""
CONF_FILES: Final = {"postgresql.conf": "", "pg_hba.conf": _ACCESS, "pg_ident.conf": ""}
"""The names and texts of the configuration files."""
CREATION: Final = f"""\
CREATE ROLE {OWNER} LOGIN CREATEDB
CREATE DATABASE {DATABASE} OWNER {OWNER}
REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC
"""
"""Statements for a new server. Only the platform may connect to `postgres` and `template1`."""


def program(version: int, name: str) -> str:
    """Return the path of a PostgreSQL program of a major version."""
    return str(PROGRAMS / str(version) / "bin" / name)


def initdb(version: int) -> Sequence[str]:
    """Return the command that creates the data of a new server."""
    return (
        *(program(version, "initdb"), "--pgdata", DATA_INSIDE, "--username", SUPERUSER),
        *("--data-checksums", "--encoding", "UTF8", "--locale", "C.UTF-8"),
        *("--auth", "reject", "--no-instructions"),
    )


def server(
    spec: ServerSpec, recovery: Recovery | None = None, *, is_private: bool = False
) -> Sequence[str]:
    """Return a server's command; if `is_private`, the server listens only on its Unix socket."""
    settings = {**_common(), **_resources(spec), **_reached(spec, is_private=is_private)}
    settings |= _archive(spec, is_private=is_private)
    if is_private:
        settings |= _QUIET
    if recovery is not None:
        settings |= _recovery(recovery)
    return (program(spec.version, "postgres"), *_arguments(settings))


def single_user(version: int, database: str) -> Sequence[str]:
    """Return the command of a single-user server, which runs each input line as superuser.

    There, no settings of roles or databases apply, and neither event triggers nor workers run.
    """
    settings = _common() | {"exit_on_error": "on", "search_path": "pg_catalog", "fsync": "on"}
    return (program(version, "postgres"), "--single", "-O", *_arguments(settings), database)


def most_connections(memory_mb: int) -> int:
    """Return the maximal number of connections that fit a server's memory."""
    return max(20, min(memory_mb // 8, 400))


def why_ended(said: str) -> str:
    """Extract from a program's output why it ended: its fatal errors, or else its last lines."""
    lines = said.strip().splitlines()
    fatal = [each for each in lines if any(word in each for word in _FATAL)]
    return " / ".join((fatal or lines)[-3:])[-500:]


def verifier(password: str) -> str:
    """Return the SCRAM verifier of an ASCII password, for ``ALTER ROLE … PASSWORD`` (RFC 5803)."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _SCRAM_ITERATIONS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    stored = hashlib.sha256(client).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    a, b, c = (base64.b64encode(each).decode() for each in (salt, stored, server))
    return f"SCRAM-SHA-256${_SCRAM_ITERATIONS}:{a}${b}:{c}"


def _arguments(settings: Mapping[str, str]) -> Sequence[str]:
    own = ("-D", DATA_INSIDE)
    return (*own, *(part for each in settings.items() for part in ("-c", "=".join(each))))


def _common() -> dict[str, str]:
    return {
        "config_file": f"{CONF_INSIDE}/postgresql.conf",
        "hba_file": f"{CONF_INSIDE}/pg_hba.conf",
        "ident_file": f"{CONF_INSIDE}/pg_ident.conf",
        "shared_preload_libraries": "",
        "session_preload_libraries": "",
        "local_preload_libraries": "",
        "dynamic_library_path": "$libdir",
        "jit": "off",
        "allow_in_place_tablespaces": "off",
        "zero_damaged_pages": "off",
        "ignore_checksum_failure": "off",
        "full_page_writes": "on",
        "fsync": "on",
        "logging_collector": "off",
        "log_destination": "stderr",
        # Statements are the owner's, and may have passwords: they are not logged.
        "log_statement": "none",
        "log_min_error_statement": "panic",
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
        "log_timezone": "UTC",
        "timezone": "UTC",
        "archive_cleanup_command": "",
        "recovery_end_command": "",
        "primary_conninfo": "",
        "primary_slot_name": "",
        "ssl_passphrase_command": "",
    }


_QUIET: Final = {"autovacuum": "off", "max_logical_replication_workers": "0", "hot_standby": "off"}
"""Settings of a private server, so that it runs no workers that its data would start."""


def _reached(spec: ServerSpec, *, is_private: bool) -> dict[str, str]:
    return {
        "listen_addresses": "" if is_private else "127.0.0.1",
        "port": str(spec.port),
        "unix_socket_directories": SOCKETS_INSIDE,
        "unix_socket_permissions": "0700",
        "external_pid_file": "",
        "ssl": "off" if is_private else "on",
        "ssl_cert_file": f"{CONF_INSIDE}/{CERTIFICATE}",
        "ssl_key_file": f"{CONF_INSIDE}/{CERTIFICATE}",
        "ssl_ca_file": "",
        "ssl_crl_file": "",
        "ssl_crl_dir": "",
        "ssl_min_protocol_version": "TLSv1.2",
        "password_encryption": "scram-sha-256",
        "authentication_timeout": "20s",
        "tcp_keepalives_idle": "60",
        "bonjour": "off",
    }


def _resources(spec: ServerSpec) -> dict[str, str]:
    connections = most_connections(spec.memory_mb)
    memory = spec.memory_mb * 1024
    return {
        "max_connections": str(connections),
        "shared_memory_type": "mmap",
        "dynamic_shared_memory_type": "posix",
        "huge_pages": "off",
        "shared_buffers": f"{memory // 4}kB",
        "effective_cache_size": f"{memory * 3 // 4}kB",
        "work_mem": f"{max(64, memory // 4 // connections)}kB",
        "maintenance_work_mem": f"{max(1024, memory // 16)}kB",
        "max_wal_size": f"{max(64, min(1024, spec.disk_mb // 4))}MB",
        "min_wal_size": "32MB",
        "wal_level": "replica",
        "max_wal_senders": "4",
        "max_slot_wal_keep_size": f"{max(64, spec.disk_mb // 4)}MB",
    }


def _archive(spec: ServerSpec, *, is_private: bool) -> dict[str, str]:
    if not spec.has_archive or is_private:
        return {"archive_mode": "off", "archive_command": "", "archive_library": ""}
    return {
        "archive_mode": "on",
        "archive_command": archive_command(SPOOL_INSIDE),
        "archive_library": "",
        "archive_timeout": "60s",
    }


def _recovery(recovery: Recovery) -> dict[str, str]:
    settings = {
        "restore_command": restore_command(SPOOL_INSIDE) if recovery.uses_archive else "false",
        "recovery_target_action": "promote",
        # Prefetching asks for WAL after the moment, which may not be there yet (PostgreSQL 15).
        "recovery_prefetch": "off",
    }
    if recovery.is_to_end:
        return settings
    if recovery.target_time is None:
        return settings | {"recovery_target": "immediate"}
    seconds, micros = divmod(recovery.target_time, 1_000_000)
    moment = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{micros:06}+00"
    return settings | {"recovery_target_time": moment}


_ANSWER_SECONDS: Final = 30.0
_STATEMENTS: Final = "/tmp/statements"  # noqa: S108 - of the program that reads them alone


async def execute(spec: ServerSpec, paths: ServerPaths, text: str) -> None:
    """Run statements in the database `postgres` as superuser; raise `ServerFailed` if one fails."""
    where = ("-h", SOCKETS_INSIDE, "-p", str(spec.port), "-U", SUPERUSER)
    psql = (program(spec.version, "psql"), "-qAtX", "-v", "ON_ERROR_STOP=1")
    told = ConfinedProgram(
        argv=(*psql, *where, "-d", "postgres", "-f", _STATEMENTS),
        user=paths.user,
        readable={paths.socket_folder: SOCKETS_INSIDE},
        files={_STATEMENTS: f"SET search_path = pg_catalog;\n{text}".encode()},
    )
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            ended = await run(told)
    except TimeoutError as error:
        raise ServerFailed("it does not answer") from error
    if ended.status != 0:
        raise ServerFailed(why_ended(ended.said))


_SHARE: Final = Path("/usr/share/postgresql")
_NOT_CHECKED: Final = "Data page checksum version: 0"
ALL_CONNECT: Final = "UPDATE pg_database SET datallowconn = true WHERE datname <> 'template0'\n"
"""A statement for a server before its rows are read, so that no database is left out."""


async def has_checksums(spec: ServerSpec, paths: ServerPaths) -> bool:
    """Return True if the data pages of a stopped server have checksums."""
    lines: list[str] = []
    await _run(spec, paths, "pg_controldata", DATA_INSIDE, each_line=lines.append)
    return _NOT_CHECKED not in (" ".join(each.split()) for each in lines)


async def check_pages(spec: ServerSpec, paths: ServerPaths) -> None:
    """Compare every page with its checksum; raise `ServerFailed` if one is wrong."""
    await _run(spec, paths, "pg_checksums", "--check", "--pgdata", DATA_INSIDE)


async def read_rows(spec: ServerSpec, paths: ServerPaths) -> None:
    """Read every row of a running server; raise `ServerFailed` if one cannot be read."""
    where = ("--host", SOCKETS_INSIDE, "--port", str(spec.port), "--username", SUPERUSER)
    nowhere = ("--file", "/dev/null", "--no-sync")
    await _run(spec, paths, "pg_dumpall", *where, "--no-password", *nowhere)
    if _can_check_tables(spec.version):
        words = ("--no-password", "--all", "--install-missing", "--no-dependent-indexes")
        await _run(spec, paths, "pg_amcheck", *where, *words, "--exclude-index=*")


def _can_check_tables(version: int) -> bool:
    extension = _SHARE / str(version) / "extension/amcheck.control"
    return extension.is_file() and Path(program(version, "pg_amcheck")).is_file()


async def _run(
    spec: ServerSpec,
    paths: ServerPaths,
    name: str,
    *words: str,
    each_line: Callable[[str], None] = lambda _line: None,
) -> None:
    """Run a confined program that reads a server's data and socket, and cannot write files.

    Call `each_line` with each line of its output; raise `ServerFailed` if it fails.
    """
    ended = await run(
        ConfinedProgram(
            argv=(program(spec.version, name), *words),
            user=paths.user,
            readable={paths.data: DATA_INSIDE, paths.socket_folder: SOCKETS_INSIDE},
        ),
        each_line,
    )
    if ended.status != 0:
        raise ServerFailed(f"{name} failed: {ended.said}")
