"""``entrepot policies``: what service accounts and roles may do.

The policies of repositories are those of ``entrepot repository-policies``. They had this noun
once, so ``policies set`` and ``policies show`` still take a repository.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from registry.cli import repository_policies
from registry.cli.api import ApiClient, Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.documents import read_document
from registry.cli.failure import Missing, Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_client_options, add_file, add_noun, add_verb
from registry.cli.output import (
    TABLE,
    column,
    echo,
    printable,
    time_text,
    write_record,
    write_records,
)
from registry.cli.rights import action_list, policy_attachments, simulation, templates
from registry.cli.rights.force import add_force, forced
from registry.cli.rights.grants import add_grants, grants_of
from registry.cli.rights.lookup import POLICY, add_named, find

_COLUMNS: Final = (
    column("NAME", "name"),
    column("REVISION", "revision", is_number=True),
    column("DESCRIPTION", "description"),
    column("UPDATED", "updated_at", time_text),
)
_STATEMENT_COLUMNS: Final = (
    column("SID", "sid"),
    column("EFFECT", "effect"),
    column("ACTIONS", "actions"),
    column("RESOURCES", "resources"),
    column("CONDITIONS", "conditions"),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``policies`` and its commands."""
    verbs = add_noun(commands, "policies", "what service accounts and roles may do")
    add_quiet(add_verb(verbs, "list", _list, "list the account's policies by name"), "names")
    add_named(add_verb(verbs, "show", _show, "show the statements of a policy"), POLICY)
    create = add_verb(verbs, "create", _create, "create a policy, attached to nothing yet")
    create.add_argument("name", metavar="NAME", help="in lower case, such as web-push")
    words = "the document, or what 'policies show --output json' printed"
    add_file(create, words, is_optional=True)
    add_grants(create)
    create.add_argument("--description", metavar="TEXT", default="", help="for persons")
    update = add_verb(verbs, "update", _update, "change a policy, wherever it is attached")
    add_named(update, POLICY)
    add_file(update, "the new document", is_optional=True)
    update.add_argument("--description", metavar="TEXT", help='for persons; "" takes it away')
    add_force(update)
    deletion = add_verb(verbs, "delete", _delete, "delete a policy that is attached to nothing")
    add_named(deletion, POLICY)
    add_confirmation(deletion)
    policy_attachments.add_parsers(verbs)
    templates.add_parsers(verbs)
    action_list.add_parsers(verbs)
    words = "the same as 'entrepot may'"
    simulation.add_arguments(add_verb(verbs, "simulate", simulation.simulate, words))
    # Not in the help: what 'repository-policies set' was called.
    former = verbs.add_parser("set", description="Give a repository a policy.")
    add_client_options(former)
    repository_policies.add_setting(former)
    former.set_defaults(run=repository_policies.set_policy)


def _list(options: argparse.Namespace) -> int:
    rows = open_client(options).rows(POLICY.path, POLICY.fields)
    return show_list(options, rows, _COLUMNS, lambda row: str(row["name"]))


def _show(options: argparse.Namespace) -> int:
    try:
        policy = find(open_client(options), POLICY, options.policy)
    except Missing as error:
        options.repository = options.policy
        try:
            return repository_policies.show(options)
        except Missing:
            raise error from None
    if options.output != TABLE:
        write_record(policy, options.output)
        return 0
    write_records(policy["document"]["statements"], _STATEMENT_COLUMNS, options.output)
    return 0


def _document(name: str) -> dict[str, Any]:
    """Return the document in a file, which may hold a whole policy as ``show`` prints it."""
    document = read_document(name)
    inner: dict[str, Any] = document["document"] if "revision" in document else document
    return inner


def _content(options: argparse.Namespace) -> dict[str, Any]:
    """Return the document of a new policy, or the template it is made from.

    Raises:
        Misuse: not exactly one of them is given.

    """
    grants = grants_of(options)
    if (options.file is not None) + len(grants) != 1:
        raise Misuse("give a FILE with the document, or one of --pull, --push and --admin")
    if options.file is not None:
        return {"document": _document(options.file)}
    return {"template": {"name": grants[0].template, "names": grants[0].names}}


def _create(options: argparse.Namespace) -> int:
    fields = {"name": options.name, "description": options.description, **_content(options)}
    made = open_client(options).create(POLICY.path, fields)["policy"]
    advice = f"'entrepot policies attach {made['name']}' gives it to a service account or role"
    echo(f"Created the policy {made['name']}; {advice}", options.output, made)
    return 0


def _update(options: argparse.Namespace) -> int:
    changes: dict[str, Any] = {}
    if options.file is not None:
        changes["document"] = _document(options.file)
    if options.description is not None:
        changes["description"] = options.description
    if not changes:
        raise Misuse("say what is to change: a FILE with the document, or --description")
    client = open_client(options)
    found = find(client, POLICY, options.policy)
    path = f"{POLICY.path}/{found['id']}"
    changed = client.call("PATCH", path, changes, forced(options))["policy"]
    words = f"{changed['name']} has revision {changed['revision']} now, wherever it is attached"
    echo(words, options.output, changed)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    found = _find_to_delete(client, options.policy)
    confirm(options, f"Delete the policy {found['name']}?")
    client.call("DELETE", f"{POLICY.path}/{found['id']}")
    echo(f"Deleted the policy {found['name']}", options.output)
    return 0


def _find_to_delete(client: ApiClient, written: str) -> Record:
    """Return a policy; if there is none, tell where a repository's is deleted.

    A repository's policy is not deleted by the former command: its name may be that of a policy.
    """
    try:
        return find(client, POLICY, written)
    except Missing as error:
        raise Missing(
            f"{error}; that of a repository is deleted by "
            f"'entrepot repository-policies delete {printable(written)}'"
        ) from None
