"""``entrepot repository-policies``: who else may use a repository."""

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
    """Add ``repository-policies`` and its commands."""
    words = "resource policies: who else may use a repository"
    verbs = add_noun(commands, "repository-policies", words)
    add_repository(add_verb(verbs, "show", show, "show a repository's policy"))
    add_setting(add_verb(verbs, "set", set_policy, "give a repository a policy"))
    deletion = add_verb(verbs, "delete", _delete, "delete a repository's policy")
    add_repository(deletion)
    add_confirmation(deletion)


def add_setting(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `set_policy`."""
    add_repository(parser)
    add_file(parser, "the policy, or what 'repository-policies show --output json' printed")
    parser.add_argument("--force", action="store_true", help="even if it locks you out")


def _path(client: ApiClient, options: argparse.Namespace) -> str:
    return f"/v1/repositories/{find_repository(client, options.repository)['id']}/policy"


def show(options: argparse.Namespace) -> int:
    """Print the policy of the repository that the command line names."""
    client = open_client(options)
    path = _path(client, options)
    try:
        policy = client.call("GET", path)["policy"]
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise Missing(
            f"{options.repository} has no policy: only its own account's policies count; "
            f"'entrepot repository-policies set {options.repository} FILE' gives it one"
        ) from None
    if options.output != TABLE:
        write_record(policy, options.output)
    else:
        write_records(policy["document"]["statements"], _COLUMNS, options.output)
    return 0


def set_policy(options: argparse.Namespace) -> int:
    """Replace the policy of the repository that the command line names."""
    document = read_document(options.file)
    if "revision" in document:  # the output of 'repository-policies show --output json'
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
