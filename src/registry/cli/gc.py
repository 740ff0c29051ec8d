"""``entrepot gc``: the state of garbage collection, its runs, quarantine and orphans."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from registry.cli.acting import by_column
from registry.cli.api import Record, open_client
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_output, add_verb
from registry.cli.output import (
    TABLE,
    column,
    duration_text,
    echo,
    size_text,
    text_of,
    time_text,
    write_record,
    write_records,
)
from registry.cli.runs import await_run, write_ended
from registry.cli.server_options import add_local, settings_of

_PATH: Final = "/v1/garbage-collection"
_RUNS: Final = f"{_PATH}/runs"
_STAGES: Final = (
    ("in grace", "unreferenced", "grace", "a manifest"),
    ("condemned", "condemned", "condemned", "a push of the same bytes"),
    ("in quarantine", "quarantined", "quarantine", "'entrepot gc recover'"),
)
_STAGE_COLUMNS: Final = (
    column("STAGE", "stage"),
    column("BLOBS", "blobs", is_number=True),
    column("BYTES", "bytes", size_text, is_number=True),
    column("WAIT FOR", "wait_for"),
    column("AT MOST", "seconds", duration_text, is_number=True),
)
_RUN_COLUMNS: Final = (
    column("ID", "id", is_whole=True),
    column("STATUS", "status"),
    column("STARTED", "started_at", time_text),
    column("FINISHED", "finished_at", time_text),
    by_column("started_by", "started_by_source"),
    column("UNLINKED", "unlinked", is_number=True),
    column("CONDEMNED", "condemned", is_number=True),
    column("SWEPT", "swept", is_number=True),
    column("KEPT", "kept", is_number=True),
    column("REMOVED", "removed", is_number=True),
    column("FREED", "freed_bytes", size_text, is_number=True),
    column("FAULT", "fault"),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``gc`` and its commands."""
    verbs = add_noun(commands, "gc", "blobs that nothing needs, and the runs that collect them")
    add_verb(verbs, "status", _show_status, "show what waits to be collected, stage by stage")
    run = add_verb(verbs, "run", _run, "collect now what is due, or join the run under way")
    run.add_argument("--wait", action="store_true", help="until it is done; exit 1 if it failed")
    runs = add_verb(verbs, "runs", _list_runs, "list runs of the last 30 days, the newest first")
    add_quiet(runs, "ids")
    recover = add_local(
        verbs,
        "recover",
        _recover,
        "bring a blob back from the quarantine",
        "Bring a blob back from the quarantine.",
    )
    recover.add_argument("repository", metavar="REPOSITORY", help="where to: ACCOUNT/NAME")
    recover.add_argument("digest", metavar="DIGEST", help="which blob: sha256:…")
    orphans = add_local(
        verbs,
        "orphans",
        _list_orphans,
        "list stored files that were set aside because they belong to no row",
        "List the stored files that were set aside because they belong to no row of the database,"
        " and until when they are kept.",
    )
    add_output(orphans)
    restore = add_local(
        verbs,
        "restore-orphans",
        _restore_orphans,
        "put back files that were set aside",
        "Put files that were set aside back where they were. Those that have a row in the database"
        " come back without this command.",
    )
    restore.add_argument("ids", metavar="ID", nargs="*", help="ids, as 'gc orphans' shows them")
    restore.add_argument("--all", action="store_true", dest="are_all", help="put all back")
    add_local(
        verbs,
        "accept-database",
        _accept_database,
        "accept a database that is older than its blobs",
        "Accept the database after it went back in time, as after restoring a backup: collection"
        " and the scan for orphans go on with it. Blobs that it does not know are set aside, and"
        " deleted days later.",
    )


def _show_status(options: argparse.Namespace) -> int:
    status = open_client(options).call("GET", _PATH)["garbage_collection"]
    if options.output != TABLE:
        write_record(status, options.output)
        return 0
    write_records([_stage(status, *names) for names in _STAGES], _STAGE_COLUMNS, options.output)
    echo(_last_run(status["last_run"]), options.output)
    return 0


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


def _run(options: argparse.Namespace) -> int:
    client = open_client(options)
    run = client.create(_RUNS)["run"]
    if not options.wait:
        advice = "'entrepot gc status' shows how far it has come"
        echo(f"Run {run['id']} is under way; {advice}", options.output, run)
        return 0
    run = await_run(client, _RUNS, run, _done)
    write_ended(run, _done(run), options.output)
    return 0


def _list_runs(options: argparse.Namespace) -> int:
    rows = open_client(options).rows(_RUNS, "runs")
    return show_list(options, rows, _RUN_COLUMNS, lambda row: str(row["id"]))


def _recover(options: argparse.Namespace) -> int:
    from registry.cli.recovery import run_recovery  # noqa: PLC0415 - imports the whole registry

    return run_recovery(settings_of(options), options.repository, options.digest)


def _list_orphans(options: argparse.Namespace) -> int:
    from registry.cli.orphans import run_listing  # noqa: PLC0415 - as above

    return run_listing(settings_of(options), options.output)


def _restore_orphans(options: argparse.Namespace) -> int:
    from registry.cli.orphans import run_restoration  # noqa: PLC0415 - as above

    return run_restoration(settings_of(options), options.ids, are_all=options.are_all)


def _accept_database(options: argparse.Namespace) -> int:
    from registry.cli.orphans import run_acceptance  # noqa: PLC0415 - as above

    return run_acceptance(settings_of(options))
