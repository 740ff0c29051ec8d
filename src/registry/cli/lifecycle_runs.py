"""``entrepot lifecycle run`` and ``runs``."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.acting import by_column
from registry.cli.api import Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.lifecycle_policy import no_policy, policy_path
from registry.cli.lifecycle_preview import HELD, freed_text, show_preview
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_repository, add_verb
from registry.cli.output import column, echo, size_text, time_text
from registry.cli.runs import await_run, write_ended
from registry.cli.transport import RequestRefused

_RUN_COLUMNS: Final = (
    column("ID", "id", is_whole=True),
    column("STATUS", "status"),
    column("STARTED", "started_at", time_text),
    column("FINISHED", "finished_at", time_text),
    by_column("started_by", "started_by_source"),
    column("EVALUATED", "evaluated", is_number=True),
    column("EXPIRED", "expired", is_number=True),
    column("FREED", "freed_bytes", size_text, is_number=True),
    column("FAULT", "fault"),
)


def add_parsers(verbs: Verbs) -> None:
    """Add ``run`` and ``runs`` to the commands of lifecycle."""
    run = add_verb(verbs, "run", _run, "run a repository's lifecycle policy now")
    add_repository(run)
    how = run.add_mutually_exclusive_group()
    how.add_argument("--wait", action="store_true", help="until it is done; exit 1 if it failed")
    how.add_argument("--dry-run", action="store_true", help="the same as 'lifecycle preview'")
    add_confirmation(run)
    runs = add_verb(verbs, "runs", _list_runs, "list runs, the newest first")
    add_repository(runs)
    add_quiet(runs, "ids")


def _run(options: argparse.Namespace) -> int:
    if options.dry_run:
        options.file = None
        return show_preview(options)
    client = open_client(options)
    path = f"{policy_path(client, options)}/runs"
    confirm(options, f"Delete what expires in {options.repository}?")
    try:
        run = client.create(path)["run"]
    except RequestRefused as error:
        raise no_policy(error, options) from None
    if not options.wait:
        advice = f"'entrepot lifecycle runs {options.repository}' shows how far it has come"
        echo(f"Started run {run['id']}; {advice}", options.output, run)
        return 0
    run = await_run(client, path, run, _progress)
    words = f"expired {run['expired']} of {run['evaluated']} images"
    write_ended(run, f"{words}, {freed_text(run['freed_bytes'])}", options.output)
    if not run["expired"]:
        echo(HELD, options.output)
    return 0


def _list_runs(options: argparse.Namespace) -> int:
    client = open_client(options)
    rows = client.rows(f"{policy_path(client, options)}/runs", "runs")
    return show_list(options, rows, _RUN_COLUMNS, lambda row: str(row["id"]))


def _progress(run: Record) -> str:
    return f"expired {run['expired']} images, looked at {run['evaluated']}"
