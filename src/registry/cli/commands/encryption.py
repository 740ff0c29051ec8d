"""``entrepot encryption``: the KMS key under which a repository or the account stores blobs."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Noun, Option, Record, argument
from cloudcore.commands.progress import COLUMNS, WAIT, report_end, start_run
from registry.cli.client.api import client_of
from registry.cli.client.references import repository_path

_REASONS: Final = {
    "repository": "its own binding",
    "account": "the account's default",
    "platform": "nothing is bound to another",
}
_STAYED: Final = {
    "plain": "are stored plain ('entrepot seal' seals them)",
    "key_disabled": "have a key that is disabled, or whose deletion is pending",
    "key_deleted": "had a key that was deleted: push them again",
    "unreadable": "have a data key that no key opens: push them again",
}
"""Maps the fields of a run that count skipped blobs to the reasons."""
_SCOPE: Final = Option(
    "repository", "of this repository (of all without a key of their own)", metavar="REPOSITORY"
)
_REPOSITORY: Final = argument("repository", "its name (app, team/app, HOST/ACCOUNT/app) or id")


def _name_of(key: Record) -> str:
    """Return the name of a key, or its id if it was deleted."""
    return str(key.get("name") or key["id"])


_BINDINGS: Final = (
    Cell("KEY", shown=lambda row: _name_of(row["kms_key"])),
    "status",
    Cell("SINCE", "created_at", "time"),
    "ended_at",
    Cell("KEY ID", "kms_key.id", "whole"),
)
_RUNS: Final = (
    *COLUMNS,
    Cell("DONE", "done", "number"),
    Cell("TOTAL", "total", "number"),
    Cell("MOVED", "moved", "number"),
    "fault",
)


def _path(run: Invocation) -> str:
    repository = run.values.get("repository")
    if repository is None:
        return "/v1/encryption-binding"
    return f"{repository_path(client_of(run), repository)}/encryption-binding"


def _show(run: Invocation) -> None:
    _print_binding(run, run.client.call("GET", _path(run))["encryption_binding"])


def _set(run: Invocation) -> None:
    body = {"kms_key": run.values["kms_key"]}
    _print_binding(run, run.client.call("PUT", _path(run), body)["encryption_binding"])


def _reset(run: Invocation) -> None:
    path = _path(run)
    run.client.call("DELETE", path)
    _print_binding(run, run.client.call("GET", path)["encryption_binding"])


def _list_history(run: Invocation) -> None:
    run.show_rows(run.client.rows(f"{_path(run)}s", "encryption_bindings"), _BINDINGS)


def _print_binding(run: Invocation, binding: Record) -> None:
    """Print a line about the bound key or, for a program, the binding's record."""
    whose = run.values.get("repository") or "Repositories without a key of their own"
    if "kms_key" not in binding:
        run.say(f"{whose}: not encrypted; this registry has no keys", binding)
        return
    words = f"{whose}: {_name_of(binding['kms_key'])} ({_REASONS[binding['source']]})"
    if binding["status"] != "active":
        state = binding["status"].removeprefix("key_")
        words += f"; the key is {state}, so nothing can be pushed"
    run.say(words, binding)


def _rewrap(run: Invocation) -> None:
    path, repository = f"{_path(run)}/rewrap", run.values["repository"]
    said = (
        f"Started run {{id}}; 'entrepot encryption rewraps {repository}' shows how far it has come"
    )
    ended = start_run(run, path, said, _progress, f"{path}/runs")
    if ended is None:
        return
    report_end(run, ended, f"{ended['moved']} of {ended['done']} blobs have the new key")
    for name, words in _STAYED.items():
        if ended[name]:
            run.say(f"{ended[name]} blobs {words}")


def _progress(run: Record) -> str:
    return f"{run['done']} of {run['total'] or '?'} blobs"


def _list_runs(run: Invocation) -> None:
    run.show_rows(run.client.rows(f"{_path(run)}/rewrap/runs", "runs"), _RUNS, "id")


ENCRYPTION: Final = Noun(
    noun="encryption",
    words="under which key blobs are stored encrypted",
    path="/v1/encryption-binding",
    is_single=True,
    commands=(
        Command(
            verb="show",
            words="show the key that seals what is pushed, and what binds it",
            options=(_SCOPE,),
            run=_show,
        ),
        Command(
            verb="set",
            words="seal later pushes under a key; what is stored stays under its own",
            options=(
                argument("kms_key", "an aes-256 key: its name, id or CRN", metavar="KEY"),
                _SCOPE,
            ),
            run=_set,
        ),
        Command(
            verb="reset",
            words="seal later pushes under the account's default again, or the platform's key",
            options=(_SCOPE,),
            run=_reset,
        ),
        Command(
            verb="history",
            words="list what was bound, newest first",
            options=(_SCOPE,),
            run=_list_history,
        ),
        Command(
            verb="rewrap",
            words="let all blobs of a repository be read through the key that seals its pushes now",
            options=(_REPOSITORY, WAIT),
            run=_rewrap,
        ),
        Command(
            verb="rewraps",
            words="list these runs, the newest first",
            options=(_REPOSITORY,),
            row_name="id",
            run=_list_runs,
        ),
    ),
)

COMMANDS: Final = (ENCRYPTION,)
