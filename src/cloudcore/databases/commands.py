"""``entrepot clusters`` and ``entrepot backups``: manage databases and backups, and run psql."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, Record, Secret, argument
from cloudcore.databases.clusters.cluster import CLUSTER
from cloudcore.errors import InvalidInput
from cloudcore.resources.commands import noun_of

_SIZE: Final = (
    Option("size.memory_mb", "MiB of memory of a server that is run here", "count", "memory"),
    Option("size.cpu_millis", "thousandths of a processor of it", "count", "cpu"),
    Option("size.disk_mb", "MiB of its files", "count", "disk"),
)
_OPTIONS: Final = (
    *_SIZE,
    Option("endpoint.host", "register a server that runs elsewhere, at this host", name="host"),
    Option("endpoint.port", "port of that (5432)", "count", "port"),
    Option("endpoint.database", "database that is connected to (postgres)", name="database"),
    Option("endpoint.username", "role to come in as", name="username"),
    Option("endpoint.password", "its password, which is asked for", "secret", "password"),
    Option("endpoint.ca", "roots of its certificate, in PEM", "file", "ca"),
)
_BUCKET: Final = Option("bucket", "where its backups go: name, id or CRN; fixed")
_PASSWORD: Final = Secret("the password, so that it can be piped", {"password": "password"})
_RESTORING: Final = (
    "Restoring into {cluster.name}; 'entrepot clusters show {cluster.name}' has its status\n"
    "The password of its owner, which is shown this once: {password}"
)
_RESET: Final = "the owner's new password, which is shown this once; it works in some seconds"


def _reset_password(run: Invocation) -> None:
    answer = run.client.create(f"{run.path}/reset-password")
    run.say_secret(_RESET, answer, _PASSWORD)


def _change_credentials(run: Invocation) -> None:
    """Ask for a password; the server tries and stores it with the other options."""
    changed = {**run.values, "password": run.ask_secret("password")}
    answer = run.client.call("POST", f"{run.path}/change-credentials", changed)["cluster"]
    run.say(f"The server of {answer['name']} takes them; they are stored", answer)


def _psql(run: Invocation) -> bool:
    """Run psql in a cluster; return True if it succeeded.

    The password is in PGPASSWORD, or psql asks for it.
    """
    found = run.record
    connection = found["connection"]
    if connection is None:
        raise InvalidInput(f"{found['name']} is {found['status']}: nothing can be connected to yet")
    program = shutil.which("psql")
    if program is None:
        raise InvalidInput("psql is not installed: it comes with PostgreSQL's client programs")
    with TemporaryDirectory(prefix="entrepot-") as folder:
        settings = {
            "host": connection["host"],
            "port": connection["port"],
            "dbname": run.values.get("database", connection["database"]),
            "user": connection["username"],
            "sslmode": "require" if connection["ca"] is None else "verify-full",
        }
        if connection["ca"] is not None:
            roots = Path(folder) / "roots.pem"
            roots.write_text(connection["ca"], encoding="ascii")
            settings["sslrootcert"] = str(roots)
        more = [f"--command={each}" for each in run.values.get("commands", ())]
        more += run.values.get("arguments", ())
        # Not by `exec`: the file is deleted afterwards.
        ended = subprocess.run(  # noqa: S603 - no shell; what is given is quoted
            [program, _conninfo(settings), *more], env=os.environ, check=False
        )
    return ended.returncode == 0


def _conninfo(settings: dict[str, object]) -> str:
    """Return a libpq connection string (34.1.1.1 of its manual)."""
    quoted = (
        (name, str(value).replace("\\", "\\\\").replace("'", "\\'"))
        for name, value in settings.items()
    )
    return " ".join(f"{name}='{value}'" for name, value in quoted)


def _created(run: Invocation, made: Record) -> str:
    """Return the message about a new cluster, with its password if there is one."""
    words = "Creating {name}; 'entrepot clusters show {name}' has its status"
    if "password" in made:
        words += "\nThe password of its owner, which is shown this once: {password}"
    return run.text(words, made)


_NOUN: Final = noun_of(
    CLUSTER,
    words="servers of PostgreSQL: run here, or registered from elsewhere",
    options=(),
    delete_words="delete a cluster with its data; those of one elsewhere stay",
    question="Delete the database cluster {name} and all its data?",
    commands=(
        Command("start", "start a cluster", "start", answer="cluster", said="Starting {name}"),
        Command(
            "stop",
            "stop a cluster; its data stay",
            "stop",
            answer="cluster",
            said="Stopping {name}",
        ),
        Command(
            "reset-password",
            "give the owner another password, and show it",
            run=_reset_password,
            secret=_PASSWORD,
        ),
        Command(
            "change-credentials",
            "change the password of one elsewhere, which is asked for and tried first",
            options=(
                Option("username", "another role to come in as"),
                Option("ca", "other roots of its certificate, in PEM", "file"),
                Option("ca", "do not check its certificate any more", "null", "no-ca"),
            ),
            run=_change_credentials,
        ),
        Command(
            "psql",
            "run psql in it; the password is that of PGPASSWORD, or is asked for",
            options=(
                Option("database", "another database than the cluster's"),
                Option("commands", "SQL to run instead of asking for it", "many", "command", "c"),
                Option(
                    "arguments", "given to psql as it is, such as -- --csv --file x.sql", "rest"
                ),
            ),
            run=_psql,
        ),
        Command(
            "restore",
            "make a new cluster with what this one had: as a backup has it, or at a moment",
            "restore",
            takes_key=True,
            options=(
                argument("name", "name of the new cluster", metavar="NEW"),
                Option("backup", "id of the backup", group="what", is_required=True),
                Option(
                    "target_time", "moment, such as 2026-01-31T12:00:00Z", name="at", group="what"
                ),
                *_SIZE,
                _BUCKET,
            ),
            said=_RESTORING,
        ),
    ),
)
assert _NOUN.create is not None
assert _NOUN.delete is not None
_CLUSTERS: Final = replace(
    _NOUN,
    create=(*_NOUN.create, *_OPTIONS),
    created=_created,
    delete=_NOUN.delete._replace(
        said="Deleting {name}", options=(Option("cascade", "delete its backups too", "flag"),)
    ),
)
_KIND: Final = Option(
    "kind", "base (the whole; so it is) or incremental", choices=("base", "incremental")
)
BACKUPS: Final = Noun(
    noun="backups",
    words="backups of a database cluster",
    parent=_CLUSTERS,
    name="id",
    columns=(
        "id",
        "kind",
        "status",
        Cell("PROGRESS", "progress", "number"),
        "size_bytes",
        "stored_bytes",
        "completed_at",
        "verification",
        "verified_at",
        Cell("PROOF", "verified_by"),
        "trigger",
    ),
    filters=(_KIND._replace(words="only of this kind"),),
    create=(_KIND,),
    created="Backing up: {id}; 'entrepot backups list' shows how far it is",
    delete=Deletion(
        words="delete a backup",
        question="Delete the backup {id}?",
        said="Deleting {id}",
        options=(Option("cascade", "delete the incremental ones that need it too", "flag"),),
    ),
    commands=(
        Command(
            "verify",
            "restore a backup into a server of its own, and read all that it has",
            "verify",
            answer="backup",
            said="Verifying {id}; its VERIFIED shows when that has succeeded",
        ),
        Command(
            "restore",
            "make a new cluster with what a backup has",
            "restore",
            takes_key=True,
            options=(argument("name", "name of the new cluster", metavar="NEW"), *_SIZE, _BUCKET),
            said=_RESTORING,
        ),
    ),
)
COMMANDS: Final = (_CLUSTERS, BACKUPS)
