"""Run the installed client programs of PostgreSQL, ``pg_dump`` and ``pg_restore``.

A password is never an argument, which every user of the machine could read: programs get the parts
of the URL in libpq's environment variables.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

from psycopg import Connection
from psycopg.pq import Conninfo

from registry.backup.errors import ProgramFailed

_FOLDERS: Final = (("/usr/lib/postgresql", "*/bin"), ("/usr", "pgsql-*/bin"))
"""Where Debian and the packages of PostgreSQL install the programs of each major version."""
_VERSION: Final = re.compile(r"\(PostgreSQL\) (\d+)")
_KEPT: Final = ("PATH", "HOME", "TMPDIR")
_LAST_LINES: Final = 5


class InstalledProgram(NamedTuple):
    """An installed program, and its major version."""

    path: str
    major: int


def find_program(name: str, at_least: int) -> InstalledProgram:
    """Return the installed program of the lowest major version that is at least `at_least`.

    The lowest, because a file written by a later version may need a later server to be restored.

    Raise `ProgramFailed` if there is none.
    """
    on_path = shutil.which(name)
    places = [on_path] if on_path else []
    for folder, pattern in _FOLDERS:
        places += [str(each) for each in sorted(Path(folder).glob(f"{pattern}/{name}"))]
    found = [
        InstalledProgram(place, major) for place in places if (major := _major(place)) is not None
    ]
    usable = [each for each in found if each.major >= at_least]
    if usable:
        return min(usable, key=lambda each: each.major)
    there = f"only {max(each.major for each in found)} is" if found else "none is"
    raise ProgramFailed(
        f"this takes {name} of PostgreSQL {at_least} or later, and {there} installed: install the"
        f" client programs of that version, such as the package postgresql-client-{at_least}"
    )


def environment_of(url: str, raw: Connection, application: str) -> dict[str, str]:
    """Return the environment in which a program reaches the server to which `raw` is connected.

    Raise `ProgramFailed` if the URL has a secret for which libpq has no variable.
    """
    environment = {
        name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("PG")
    }
    for option in Conninfo.parse(url.encode()):
        if option.val is None:
            continue
        if option.envvar is not None:
            environment[option.envvar.decode()] = option.val.decode()
        elif option.dispchar in (b"*", b"D"):
            raise ProgramFailed(
                f"{option.keyword.decode()} of the database's URL can only be given to"
                " PostgreSQL's programs as an argument, which others could read: take it out"
            )
    # If the URL names several hosts, use the one that has the snapshot.
    environment.pop("PGHOSTADDR", None)
    reached = {
        "PGHOST": raw.info.host,
        "PGHOSTADDR": raw.info.hostaddr,
        "PGPORT": str(raw.info.port),
        "PGDATABASE": raw.info.dbname,
    }
    environment |= {name: value for name, value in reached.items() if value}
    return environment | {"PGAPPNAME": application, "LC_ALL": "C"}


@contextmanager
def reading_from(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[IO[bytes]]:
    """Run a program during the block; yield its output, all of which the block must read.

    Raise `ProgramFailed` if the program failed.
    """
    with _running(command, environment, reads=True) as running:
        assert running.stdout is not None
        yield running.stdout


def feed(command: Sequence[str], environment: Mapping[str, str], chunks: Iterable[bytes]) -> None:
    """Run a program with `chunks` as its input; kill the program if the iteration raises an error.

    Raise `ProgramFailed` if the program failed.
    """
    with _running(command, environment, reads=False) as running:
        assert running.stdin is not None
        with suppress(BrokenPipeError):  # the exit status says why
            for chunk in chunks:
                running.stdin.write(chunk)
            running.stdin.close()


@contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str], *, reads: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program during the block, and kill it if the block raises.

    If this process dies, the pipe breaks, and the program changes nothing.

    Raise `ProgramFailed` if the program failed.
    """
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(  # noqa: S603 - no shell; a program of PostgreSQL
            command,
            env=environment,
            stdin=subprocess.DEVNULL if reads else subprocess.PIPE,
            stdout=subprocess.PIPE if reads else subprocess.DEVNULL,
            stderr=errors,
            bufsize=0,
        ) as running:
            try:
                yield running
            except BaseException:
                running.kill()
                raise
        if running.returncode == 0:
            return
        errors.seek(0)
        lines = errors.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
        raise ProgramFailed(
            f"{Path(command[0]).name} failed with status {running.returncode}: "
            + (" / ".join(lines) or "it said nothing")
        )


def _major(place: str) -> int | None:
    """Return the major version of a program, or None if it cannot be run."""
    try:
        ran = subprocess.run(  # noqa: S603 - no shell; a program of PostgreSQL
            [place, "--version"], capture_output=True, text=True, check=False, timeout=30
        )
    except OSError:
        return None
    version = _VERSION.search(ran.stdout)
    return int(version[1]) if version else None
