"""``entrepot encryption rewrap`` and ``rewraps``."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.acting import by_column
from registry.cli.api import ApiClient, Record, open_client
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_repository, add_verb
from registry.cli.output import column, echo, time_text
from registry.cli.references import find_repository
from registry.cli.runs import await_run, write_ended

_COLUMNS: Final = (
    column("ID", "id", is_whole=True),
    column("STATUS", "status"),
    column("STARTED", "started_at", time_text),
    column("FINISHED", "finished_at", time_text),
    by_column("started_by", "started_by_source"),
    column("DONE", "done", is_number=True),
    column("TOTAL", "total", is_number=True),
    column("MOVED", "moved", is_number=True),
    column("FAULT", "fault"),
)
_STAYED: Final = {
    "plain": "are stored plain ('entrepot seal' seals them)",
    "key_disabled": "have a key that is disabled, or whose deletion is pending",
    "key_deleted": "had a key that was deleted: push them again",
    "unreadable": "have a data key that no key opens: push them again",
}
"""Why blobs have not moved, by the names of the run's fields."""


def add_parsers(verbs: Verbs) -> None:
    """Add ``rewrap`` and ``rewraps`` to the commands of encryption."""
    words = "let all blobs of a repository be read through the key that seals its pushes now"
    run = add_verb(verbs, "rewrap", _rewrap, words)
    add_repository(run)
    run.add_argument("--wait", action="store_true", help="until it is done; exit 1 if it failed")
    listing = add_verb(verbs, "rewraps", _list_runs, "list these runs, the newest first")
    add_repository(listing)
    add_quiet(listing, "ids")


def _path(client: ApiClient, options: argparse.Namespace) -> str:
    found = find_repository(client, options.repository)
    return f"/v1/repositories/{found['id']}/encryption-binding/rewrap"


def _rewrap(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = _path(client, options)
    run = client.create(path)["run"]
    if not options.wait:
        advice = f"'entrepot encryption rewraps {options.repository}' shows how far it has come"
        echo(f"Started run {run['id']}; {advice}", options.output, run)
        return 0
    run = await_run(client, f"{path}/runs", run, _progress)
    write_ended(run, f"{run['moved']} of {run['done']} blobs have the new key", options.output)
    for name, words in _STAYED.items():
        if run[name]:
            echo(f"{run[name]} blobs {words}", options.output)
    return 0


def _list_runs(options: argparse.Namespace) -> int:
    client = open_client(options)
    rows = client.rows(f"{_path(client, options)}/runs", "runs")
    return show_list(options, rows, _COLUMNS, lambda row: str(row["id"]))


def _progress(run: Record) -> str:
    return f"{run['done']} of {run['total'] or '?'} blobs"
