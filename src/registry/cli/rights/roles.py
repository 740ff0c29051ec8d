"""``entrepot roles``; the modules `role_assignments` and `group_roles` add commands to it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from registry.cli.api import ApiClient, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.documents import read_document
from registry.cli.failure import CommandFailure, Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import (
    TABLE,
    column,
    duration_text,
    echo,
    time_text,
    write_now,
    write_record,
    write_records,
)
from registry.cli.rights import group_roles, role_assignments
from registry.cli.rights.force import add_force, forced
from registry.cli.rights.grants import Grant, add_grants, grants_of
from registry.cli.rights.lookup import POLICY, ROLE, USER, add_named, find, path_of
from registry.cli.rights.policy_attachments import attach
from registry.cli.spans import span
from registry.cli.stored_sign_in import StoredSignIn
from registry.cli.token_claims import claims_of
from registry.cli.transport import RequestRefused

_COLUMNS: Final = (
    column("NAME", "name"),
    column("LONGEST SESSION", "max_session_seconds", duration_text, is_number=True),
    column("DESCRIPTION", "description"),
    column("LAST USED", "last_used_at", time_text),
    column("CREATED", "created_at", time_text),
)
_TRUST_COLUMNS: Final = (
    column("TRUST", "effect"),
    column("PRINCIPALS", "principals"),
    column("CONDITIONS", "conditions"),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``roles`` and its commands."""
    verbs = add_noun(commands, "roles", "roles, in which people act in the account")
    add_quiet(add_verb(verbs, "list", _list, "list the account's roles by name"), "names")
    add_named(add_verb(verbs, "show", _show, "show a role with its trust policy"), ROLE)
    create = add_verb(verbs, "create", _create, "create a role, with people and policies if named")
    create.add_argument("name", metavar="NAME", help="in lower case, such as developer")
    _add_fields(create)
    create.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="EMAIL",
        dest="users",
        help="assign it to this person; repeatable",
    )
    create.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="POLICY",
        dest="policies",
        help="attach this policy, by name or id; repeatable",
    )
    add_grants(create)
    update = add_verb(verbs, "update", _update, "change a role; its name stays")
    add_named(update, ROLE)
    _add_fields(update)
    add_force(update)
    deletion = add_verb(verbs, "delete", _delete, "delete a role; its sessions end at once")
    add_named(deletion, ROLE)
    add_force(deletion)
    add_confirmation(deletion)
    role_assignments.add_parsers(verbs)
    group_roles.add_parsers(verbs)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--description", metavar="TEXT", help="for persons")
    parser.add_argument(
        "--max-session", type=span, metavar="SPAN", help="1h to 12h (1h for a new role)"
    )
    parser.add_argument(
        "--trust",
        metavar="FILE",
        help="the trust policy: who may assume it; - reads the standard input (the account's"
        " programs and roles whose policies allow it, and the people it is assigned to)",
    )


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a role that the command line gives."""
    fields: dict[str, Any] = {}
    if options.description is not None:
        fields["description"] = options.description
    if options.max_session is not None:
        fields["max_session_seconds"] = int(options.max_session.total_seconds())
    if options.trust is not None:
        fields["trust_policy"] = read_document(options.trust)
    return fields


def _list(options: argparse.Namespace) -> int:
    rows = open_client(options).rows(ROLE.path, ROLE.fields)
    return show_list(options, rows, _COLUMNS, lambda row: str(row["name"]))


def _show(options: argparse.Namespace) -> int:
    role = find(open_client(options), ROLE, options.role)
    if options.output != TABLE:
        write_record(role, options.output)
        return 0
    trust = role.pop("trust_policy")
    write_record(role, options.output)
    write_now("\n")
    write_records(trust["statements"], _TRUST_COLUMNS, options.output)
    return 0


def _create(options: argparse.Namespace) -> int:
    fields = {"name": options.name, **_fields(options)}
    client = open_client(options)
    # Look everything up first, so that a misspelt name leaves no half-made role.
    people = [find(client, USER, each) for each in options.users]
    policies = [path_of(client, POLICY, each) for each in options.policies]
    if "trust_policy" not in fields:
        principals = [_own_account(options), *(each["crn"] for each in people)]
        statement = {"effect": "allow", "principals": principals}
        fields["trust_policy"] = {"version": "1", "statements": [statement]}
    made = client.create(ROLE.path, fields)["role"]
    # What this command has made; the role first, since an attached policy cannot be deleted.
    new = [f"{ROLE.path}/{made['id']}"]
    try:
        for grant in grants_of(options):
            path, is_new = _ready_made(client, made["name"], grant)
            policies.append(path)
            new += [path] * is_new
        for path in policies:
            attach(client, path, "role", made["id"])
        for each in people:
            client.create(f"{new[0]}/assignments", {"user": each["id"]})
    except RequestRefused as error:
        raise _undone(client, made["name"], new, error) from None
    echo(_created(made["name"], options), options.output, made)
    return 0


def _undone(
    client: ApiClient, role: str, made: Sequence[str], error: RequestRefused
) -> CommandFailure:
    """Delete what was made, and return what to say of it."""
    try:
        for path in made:
            client.call("DELETE", path)
    except RequestRefused:
        return CommandFailure(
            f"the role {role} is there, but without all that you named: {error}; complete it, or "
            f"delete it with 'entrepot roles delete {role}'"
        )
    return CommandFailure(f"the role {role} was not created: {error}")


def _ready_made(client: ApiClient, role: str, grant: Grant) -> tuple[str, bool]:
    """Return the path of a ready-made policy for a role, named after both, and whether it is new.

    One that is there already with the same document may be left of a role that was deleted.
    """
    name = f"{role}-{grant.template}"
    fields = {"name": name, "template": {"name": grant.template, "names": grant.names}}
    try:
        made = client.create(POLICY.path, fields)["policy"]
    except RequestRefused as error:
        if error.code != "CONFLICT":
            raise
        found = find(client, POLICY, name)
        query = {"names": ",".join(grant.names)}
        for each in client.call("GET", "/v1/policy-templates", query=query)["policy_templates"]:
            if (each["name"], each["document"]) == (grant.template, found["document"]):
                return f"{POLICY.path}/{found['id']}", False
        raise
    return f"{POLICY.path}/{made['id']}", True


def _created(name: str, options: argparse.Namespace) -> str:
    """Return that a role was created, and what it still needs to be of use."""
    missing = []
    if not options.policies and not grants_of(options):
        missing.append(f"'entrepot policies attach POLICY --role {name}' gives it rights")
    if not options.users:
        missing.append(f"'entrepot roles assign {name} EMAIL' gives it to a person")
    return f"Created the role {name}{': ' if missing else ''}{', '.join(missing)}"


def _own_account(options: argparse.Namespace) -> str:
    """Return the id of the account the caller acts in."""
    stored = StoredSignIn(options)
    account = claims_of(stored.tokens(in_role=True).token()).acc
    if account is None:
        raise CommandFailure(
            "a person acts in an account by a role: 'entrepot roles mine' lists yours, and "
            "'entrepot roles assume ROLE' takes one"
        )
    return account


def _update(options: argparse.Namespace) -> int:
    changes = _fields(options)
    if not changes:
        raise Misuse("say what is to change: --description, --max-session or --trust")
    client = open_client(options)
    path = path_of(client, ROLE, options.role)
    changed = client.call("PATCH", path, changes, forced(options))["role"]
    ended = (
        "; its sessions are over, unless trust was only added" if "trust_policy" in changes else ""
    )
    echo(f"Changed the role {changed['name']}{ended}", options.output, changed)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    found = find(client, ROLE, options.role)
    confirm(options, f"Delete the role {found['name']}, and end its sessions?")
    client.call("DELETE", f"{ROLE.path}/{found['id']}", query=forced(options))
    echo(f"Deleted the role {found['name']}", options.output)
    return 0
