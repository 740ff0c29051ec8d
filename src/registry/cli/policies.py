"""``entrepot policies``: who else may use a repository."""

from __future__ import annotations

import argparse
from typing import Final

from registry.cli.api import ApiClient, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.documents import read_document
from registry.cli.failure import Missing
from registry.cli.options import Verbs, add_file, add_noun, add_repository, add_verb
from registry.cli.output import TABLE, column, echo, write_record, write_records
from registry.cli.references import find_repository
from registry.cli.transport import RequestRefused

_COLUMNS: Final = (
    column("SID", "sid"),
    column("EFFECT", "effect"),
    column("PRINCIPALS", "principals"),
    column("ACTIONS", "actions"),
    column("CONDITIONS", "conditions"),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``policies`` and its commands."""
    verbs = add_noun(commands, "policies", "resource policies: who else may use a repository")
    add_repository(add_verb(verbs, "show", _show, "show a repository's policy"))
    setting = add_verb(verbs, "set", _set, "give a repository a policy in place of its own")
    add_repository(setting)
    add_file(setting, "the policy, or what 'policies show --output json' printed")
    setting.add_argument("--force", action="store_true", help="even if it locks you out")
    deletion = add_verb(verbs, "delete", _delete, "delete a repository's policy")
    add_repository(deletion)
    add_confirmation(deletion)


def _path(client: ApiClient, options: argparse.Namespace) -> str:
    return f"/v1/repositories/{find_repository(client, options.repository)['id']}/policy"


def _show(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = _path(client, options)
    try:
        policy = client.call("GET", path)["policy"]
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise Missing(
            f"{options.repository} has no policy: only its own account's policies count; "
            f"'entrepot policies set {options.repository} FILE' gives it one"
        ) from None
    if options.output != TABLE:
        write_record(policy, options.output)
    else:
        write_records(policy["document"]["statements"], _COLUMNS, options.output)
    return 0


def _set(options: argparse.Namespace) -> int:
    document = read_document(options.file)
    if "revision" in document:  # the output of 'policies show --output json'
        document = document["document"]
    client = open_client(options)
    path = _path(client, options)
    query = {"force": options.force or None}
    policy = client.call("PUT", path, document, query)["policy"]
    words = f"{options.repository} has revision {policy['revision']} of its policy"
    echo(words, options.output, policy)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = _path(client, options)
    confirm(options, f"Take the policy of {options.repository} away?")
    client.call("DELETE", path)
    echo(f"{options.repository} has no policy any more", options.output)
    return 0
