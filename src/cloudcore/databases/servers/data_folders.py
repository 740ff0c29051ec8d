"""Data folders: make restored ones safe to start, and retain those of deleted clusters.

A restored folder is not trusted: anyone who can write to the bucket of the backups can forge its
files, including PostgreSQL's system catalog. So its server is confined like any other. Files that
configure a server are removed, and so are rights of roles. No link in the folder is followed.

After the platform's own database was restored from a backup, clusters created since then have a
folder but no row. So a folder without a row is kept until the operator deletes it.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.databases.servers.confinement import User
from cloudcore.databases.servers.driver import DATABASE, OWNER, SUPERUSER, ServerFailed

_OURS: Final = (
    *("postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf"),
    *("recovery.conf", "recovery.signal", "standby.signal", "tablespace_map"),
    *("postmaster.pid", "postmaster.opts", "current_logfiles"),
)
"""Files that configure how a server runs, or that a previous run of a server left."""
OTHERS_DATABASE: Final = "restored_postgres"
"""The new name of a database `postgres` that was restored from a server elsewhere."""
_SIZE_SECONDS: Final = 30
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ENCODED_NAME: Final = re.compile(r'\bencode = "([0-9a-f]*)"')


def clean(data: Path, version: int) -> None:
    """Remove all but plain files and folders, and all files that configure the server.

    Raise `ServerFailed` if the folder does not have data of this version of PostgreSQL.
    """
    with open_folder(data) as folder:
        found = _read(folder, "PG_VERSION").strip()
        if found != f"{version}":
            raise ServerFailed(f"what was restored is no data of PostgreSQL {version}")
        for name in _OURS:
            _remove_file(folder, name)
    for _, folders, files, at in os.fwalk(data, follow_symlinks=False):
        os.fchmod(at, 0o700)
        for name in (*folders, *files):
            kind = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
            if stat.S_ISREG(kind):
                os.chmod(name, 0o600, dir_fd=at)
            elif stat.S_ISDIR(kind):
                os.chmod(name, 0o700, dir_fd=at)
            else:  # links, such as tablespaces, and devices
                os.unlink(name, dir_fd=at)
                with suppress(ValueError):
                    folders.remove(name)


def ask_for_recovery(data: Path, user: User) -> None:
    """Create `recovery.signal`, so that the server recovers before it accepts connections."""
    with open_folder(data) as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open("recovery.signal", flags, 0o600, dir_fd=folder)
        try:
            if user is not None:
                os.fchown(file, *user)
        finally:
            os.close(file)


def _remove_file(folder: int, name: str) -> None:
    """Remove `name` from an open folder, unless it is a folder itself."""
    with suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(name, dir_fd=folder)


def before_start(data: Path) -> None:
    """Remove settings stored in a server's data, and the pid file of a killed server."""
    with open_folder(data) as folder:
        for name in ("postgresql.auto.conf", "postmaster.pid"):
            _remove_file(folder, name)


def status_of(data: Path) -> str:
    """Return the status that a running server writes in the eighth line of `postmaster.pid`.

    Return an empty string if it cannot be read.
    """
    try:
        with open_folder(data) as folder:
            lines = _read(folder, "postmaster.pid").splitlines()
    except (OSError, ServerFailed):
        return ""
    return lines[7].strip() if len(lines) > 7 else ""


def size_of(folder: Path) -> int | None:
    """Return the bytes that a folder uses on the disk, or None if counting takes too long.

    This runs `du`, as a server can nest folders deeper than Python can walk.
    """
    argv = ("du", "-s", "-x", "-B1", str(folder))
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_SIZE_SECONDS, check=False)  # noqa: S603 - ours
        return int(done.stdout.split(maxsplit=1)[0])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return None


def owner_of(data: Path, user: User) -> User:
    """Return the owner of a server's data, or `user` if there are none, or root owns them.

    If the service is not root, `user` is None, and so is the result. The owner differs from `user`
    if the operator has changed the ports or the ids since the server started.
    """
    with suppress(FileNotFoundError):
        if user is not None and (uid := data.stat(follow_symlinks=False).st_uid) != 0:
            return uid, uid
    return user


def give(folder: Path, user: User) -> None:
    """Make `user` the owner of a stopped server's files, unless the data already belong to `user`.

    Do nothing if `user` is None. Raise `ServerFailed` if the owner cannot be changed.
    """
    if user is None or owner_of(folder / "data", user) == user:
        return
    argv = ("chown", "-R", "-P", "--no-dereference", f"{user[0]}:{user[1]}", "--")
    for each in ("conf/server.pem", "spool", "data"):  # data last: its owner shows all is done
        if (folder / each).exists():
            done = subprocess.run((*argv, str(folder / each)), capture_output=True, check=False)  # noqa: S603 - ours
            if done.returncode != 0:
                raise ServerFailed(f"{each} cannot be given to its user: {done.stderr!a}"[:300])


def remove_tree(folder: Path) -> None:
    """Remove a folder, however deeply a server has nested it, and whatever modes it has set.

    Raise `ServerFailed` if a part of it remains.
    """
    for argv in (("chmod", "-R", "u+rwX"), ("rm", "-r", "-f", "--one-file-system")):
        if os.path.lexists(folder):
            subprocess.run((*argv, "--", str(folder)), capture_output=True, check=False)  # noqa: S603 - ours
    if os.path.lexists(folder):
        raise ServerFailed(f"{folder.name} cannot be removed")


ROLES: Final = """\
SELECT 'first ' || rolname FROM pg_authid WHERE oid = 10
SELECT 'has ' || rolname FROM pg_authid WHERE rolname = 'OWNER' AND oid <> 10
UPDATE pg_authid SET rolname = 'restored_' || oid WHERE rolname = 'SUPERUSER' AND oid <> 10
UPDATE pg_authid SET rolname = 'SUPERUSER', rolsuper = true, rolcanlogin = true, \
rolinherit = true, rolcreaterole = true, rolcreatedb = true, rolreplication = true, \
rolbypassrls = true, rolconnlimit = -1, rolpassword = NULL, rolvaliduntil = NULL WHERE oid = 10
UPDATE pg_authid SET rolsuper = false, rolcreaterole = false, rolreplication = false, \
rolbypassrls = false WHERE oid <> 10
DELETE FROM pg_auth_members WHERE roleid < 16384
DELETE FROM pg_db_role_setting WHERE setrole = 10 OR (setrole = 0 AND setdatabase = 0) \
OR setdatabase IN (SELECT oid FROM pg_database WHERE datname IN ('postgres', 'template1')) \
OR array_to_string(setconfig, ' ') LIKE '%librar%'
UPDATE pg_subscription SET subenabled = false
UPDATE pg_database SET datallowconn = true WHERE datname IN ('postgres', 'template1')
SELECT encode(convert_to(datname::text, 'UTF8'), 'hex') FROM pg_database
""".replace("OWNER", OWNER).replace("SUPERUSER", SUPERUSER)
"""Statements that take rights from roles. The first superuser of a server has the id 10, whatever
its name is; what users have made has ids from 16384 on (PostgreSQL, ``FirstNormalObjectId``)."""
EVERYWHERE: Final = """\
UPDATE pg_event_trigger SET evtenabled = 'D'
UPDATE pg_proc SET prosecdef = false WHERE proowner = 10 AND oid >= 16384
"""
"""Statements for each database: they disable code that would run with the rights of the platform's
role."""
_OWNING: Final = """\
ALTER ROLE OWNER LOGIN CREATEDB INHERIT CONNECTION LIMIT -1 VALID UNTIL 'infinity'
UPDATE pg_database SET datdba = (SELECT oid FROM pg_authid WHERE rolname = 'OWNER') \
WHERE datname NOT IN ('postgres', 'template0', 'template1')
UPDATE pg_database SET datdba = 10 WHERE datname IN ('postgres', 'template0', 'template1')
REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC, OWNER
""".replace("OWNER", OWNER)
_USING: Final = f"GRANT pg_read_all_data, pg_write_all_data TO {OWNER}\n"


class Catalog(NamedTuple):
    """The roles and databases of a restored server, as `ROLES` lists them."""

    databases: Sequence[str]
    is_foreign: bool
    """The name of its first superuser is not `SUPERUSER`: it comes from elsewhere."""
    has_owner: bool

    @property
    def _renamed(self) -> Mapping[str, str]:
        """Map the old name to the new one, for databases whose names the platform reserves."""
        is_renamed = self.is_foreign and OTHERS_DATABASE not in self.databases
        return {"postgres": OTHERS_DATABASE} if is_renamed and "postgres" in self.databases else {}

    @property
    def owning(self) -> str:
        """Return the statements that give the owner its role and databases."""
        first = "" if self.has_owner else f"CREATE ROLE {OWNER}\n"
        for name, new in self._renamed.items():
            first += f"ALTER DATABASE {name} RENAME TO {new}\n"
        for name in (DATABASE, "postgres"):
            if name not in self.databases or name in self._renamed:
                first += f"CREATE DATABASE {name}\n"
        return first + _OWNING + (_USING if self.is_foreign else "")

    @property
    def owned(self) -> frozenset[str]:
        """Return the databases that exist after the statements of `owning`."""
        return frozenset({*self.databases, *self._renamed.values(), DATABASE, "postgres"})


def catalog_of(said: str) -> Catalog:
    """Parse the output of the statements `ROLES`."""
    found = (
        bytes.fromhex(each).decode(errors="surrogateescape") for each in _ENCODED_NAME.findall(said)
    )
    names = [name for name in found if name and "\0" not in name]
    return Catalog(names, f'"first {SUPERUSER}"' not in said, f'"has {OWNER}"' in said)


@contextmanager
def open_folder(path: Path | str, folder: int | None = None) -> Iterator[int]:
    """Open a folder and yield its descriptor; `path` is relative to the open `folder`, if passed.

    Raise `OSError` if it is a link or a file.
    """
    descriptor = os.open(path, _FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(folder: int, name: str) -> str:
    """Return the first 4096 bytes of a plain file in an open folder, as text.

    Raise `ServerFailed` if there is no such file, or it is not a plain file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        raise ServerFailed(f"what was restored has no file {name}") from error
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ServerFailed(f"{name} of what was restored is no file")
        return os.read(file, 4096).decode("ascii", "replace")
    finally:
        os.close(file)


DELETED: Final = ".graves"
"""The folder for the data of deleted clusters, which are retained for a day."""
ROWLESS: Final = ".unknown"
"""The folder for all files of clusters without a row, including WAL that is not in a bucket yet."""
_KEPT_SECONDS: Final = 24 * 3600


def keep(folder: Path, kept: Path) -> bool:
    """Move a server's data to `kept`, a folder of retained data; return False if it has no data.

    If `kept` is `ROWLESS`, all files of the server are moved; otherwise only the data.
    """
    data = folder / "data"
    if not data.exists():
        return False
    kept.mkdir(mode=0o700, exist_ok=True)
    (folder if kept.name == ROWLESS else data).rename(kept / f"{folder.name}-{time.time_ns()}")
    return True


def delete_expired(base: Path) -> None:
    """Delete the data of clusters that were deleted more than a day ago."""
    with suppress(FileNotFoundError):
        for each in (base / DELETED).iterdir():
            since = int(each.name.rpartition("-")[2])
            if time.time_ns() - since > _KEPT_SECONDS * 10**9:
                remove_tree(each)
