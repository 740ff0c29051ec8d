"""``entrepot gc``: the state of garbage collection, its runs, quarantine and orphans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.noun_parsers import CommandTable
from cloudcore.commands.nouns import Cell, Command, Noun, Record
from cloudcore.commands.parser import add_output
from cloudcore.commands.progress import COLUMNS, WAIT, report_end, start_run
from cloudcore.commands.records import size_text, text_of, time_text
from registry.cli.server.loading import lazy_command
from registry.cli.server.options import add_local

_DESCRIPTION: Final = (
    "Blobs that nothing needs, and the runs that collect them. 'status', 'run' and 'runs' call the"
    " registry, so they need a sign-in; the others read and change its data on its own machine, and"
    " need none."
)
_STAGES: Final = (
    ("in grace", "unreferenced", "grace", "a manifest"),
    ("condemned", "condemned", "condemned", "a push of the same bytes"),
    ("in quarantine", "quarantined", "quarantine", "'entrepot gc recover'"),
)
_STAGE_COLUMNS: Final = (
    "stage",
    Cell("BLOBS", "blobs", "number"),
    Cell("BYTES", "bytes", "size"),
    "wait_for",
    Cell("AT MOST", "seconds", "duration"),
)


def _show_status(run: Invocation) -> None:
    status = run.client.call("GET", run.path)["garbage_collection"]
    stages = [_stage(status, *names) for names in _STAGES]
    run.show_rows(stages, _STAGE_COLUMNS, document=status)
    run.say(_last_run(status["last_run"]))


def _stage(status: Record, stage: str, field: str, delay: str, wait_for: str) -> Record:
    return {
        "stage": stage,
        "blobs": status[f"{field}_blobs"],
        "bytes": status[f"{field}_bytes"],
        "wait_for": wait_for,
        "seconds": status[f"{delay}_seconds"],
    }


def _last_run(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "No run yet: one begins by itself when something is due"
    if run["status"] == "running":
        return f"A run is under way since {time_text(run['started_at'])}: {_done(run)}"
    words = f"Last run, {time_text(run['finished_at'])}: {run['status']}; {_done(run)}"
    return words if run["fault"] is None else f"{words}; {text_of(run['fault'])}"


def _done(run: Mapping[str, Any]) -> str:
    return (
        f"condemned {run['condemned']} blobs, swept {run['swept']}, removed {run['removed']}, "
        f"which freed {size_text(run['freed_bytes'])}"
    )


def _run(run: Invocation) -> None:
    said = "Run {id} is under way; 'entrepot gc status' shows how far it has come"
    ended = start_run(run, f"{run.path}/runs", said, _done)
    if ended is not None:
        report_end(run, ended, _done(ended))


COLLECTION: Final = Noun(
    noun="gc",
    words="blobs that nothing needs, and the runs that collect them",
    path="/v1/garbage-collection",
    is_single=True,
    has_show=False,
    commands=(
        Command(
            verb="status", words="show what waits to be collected, stage by stage", run=_show_status
        ),
        Command(
            verb="run",
            words="collect now what is due, or join the run under way",
            options=(WAIT,),
            run=_run,
        ),
        Command(
            verb="runs",
            words="list runs of the last 30 days, the newest first",
            path="runs",
            answer="runs",
            columns=(
                *COLUMNS,
                Cell("UNLINKED", "unlinked", "number"),
                Cell("CONDEMNED", "condemned", "number"),
                Cell("SWEPT", "swept", "number"),
                Cell("KEPT", "kept", "number"),
                Cell("REMOVED", "removed", "number"),
                "freed_bytes",
                "fault",
            ),
            row_name="id",
        ),
    ),
)


def add_parsers(commands: CommandTable) -> None:
    """Add ``gc`` and its commands."""
    verbs = commands.add_described(COLLECTION)
    commands.choices["gc"].description = _DESCRIPTION
    recover = add_local(
        verbs,
        "recover",
        lazy_command("orphans", "run_recovery"),
        "bring a blob back from the quarantine",
        "Bring a blob back from the quarantine.",
    )
    recover.add_argument("repository", metavar="REPOSITORY", help="where to: ACCOUNT/NAME")
    recover.add_argument("digest", metavar="DIGEST", help="which blob: sha256:…")
    orphans = add_local(
        verbs,
        "orphans",
        lazy_command("orphans", "run_listing"),
        "list stored files that were set aside because they belong to no row",
        "List the stored files that were set aside because they belong to no row of the database,"
        " and until when they are kept.",
    )
    add_output(orphans)
    restore = add_local(
        verbs,
        "restore-orphans",
        lazy_command("orphans", "run_restoration"),
        "put back files that were set aside",
        "Put files that were set aside back where they were. Those that have a row in the database"
        " come back without this command.",
    )
    restore.add_argument("ids", metavar="ID", nargs="*", help="ids, as 'gc orphans' shows them")
    restore.add_argument("--all", action="store_true", dest="are_all", help="put all back")
    add_local(
        verbs,
        "accept-database",
        lazy_command("orphans", "run_acceptance"),
        "accept a database that is older than its blobs",
        "Accept the database after it went back in time, as after restoring a backup: collection"
        " and the scan for orphans go on with it. Blobs that it does not know are set aside, and"
        " deleted days later.",
    )
