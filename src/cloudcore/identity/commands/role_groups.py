"""``entrepot roles assign-group``, ``unassign-group`` and ``groups``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from cloudcore.command_failures import CommandFailure, Missing, Misuse
from cloudcore.command_line import Act, Cell, Invocation, Noun, Option, argument
from cloudcore.identity.commands.identity_providers import IDENTITY_PROVIDERS
from cloudcore.identity.commands.options import FORCE
from cloudcore.identity.commands.people import ORGANIZATIONS_PATH, person
from cloudcore.identity.commands.role_people import KEEP_TRUST, admit
from cloudcore.uuids import parse_uuid

_GROUP: Final = (
    argument("group", "as the provider's claim names it"),
    Option(
        "identity_provider",
        "name, id or CRN (the only one); for its name you must own the organization",
        metavar="IDENTITY-PROVIDER",
    ),
)
_FIELD: Final = "group_assignments"


class _Provider(NamedTuple):
    id: str
    crn: str


def _assign(run: Invocation) -> bool:
    """Give a role to a group of an identity provider."""
    role, provider = run.record["name"], _find_provider(run)
    document = {"identity_provider": provider.id, "group": run.values["group"]}
    made = run.client.create(f"{run.path}/group-assignments", document)["group_assignment"]
    words = f"People of {made['group']} have the role {role} from their next sign-in on"
    run.say(f"{words}{admit(run, provider.crn)}", made)
    return True


def _unassign(run: Invocation) -> bool:
    """Take a role from a group."""
    group, role, path = run.values["group"], run.record["name"], f"{run.path}/group-assignments"
    rows = [row for row in run.client.rows(path, _FIELD) if group in (row["group"], row["id"])]
    if "identity_provider" in run.values:
        provider = _find_provider(run)
        rows = [row for row in rows if row["identity_provider"] == provider.id]
    if not rows:
        raise Missing(
            f"the group {group!r} does not have this role; "
            f"'entrepot roles groups {run.written}' shows those that have it"
        )
    if len(rows) > 1:
        ids = ", ".join(row["identity_provider"] for row in rows)
        raise Misuse(f"groups of several providers are called so; name one: {ids}")
    named = rows[0]["group"]
    run.confirm(f"Take the role {role} from the group {named}?")
    run.client.call("DELETE", f"{path}/{rows[0]['id']}", query={"force": run.values.get("force")})
    run.say(f"The group {named} has the role {role} no more")
    return True


def _list(run: Invocation) -> bool:
    """List the groups that have a role."""
    names = {} if run.is_for_program else _provider_names(run)
    columns = (
        "group",
        Cell(
            "IDENTITY PROVIDER",
            shown=lambda row: names.get(row["identity_provider"], row["identity_provider"]),
        ),
        Cell("SINCE", "created_at", "time"),
    )
    rows = run.client.rows(f"{run.path}/group-assignments", _FIELD)
    run.show_rows(rows, columns, "group")
    return True


def _find_provider(run: Invocation) -> _Provider:
    """Return the provider that the command line names, or the organization's only one.

    Raises:
        Missing: there is none.
        Misuse: none is named, and there are several.

    """
    written: str | None = run.values.get("identity_provider")
    if written is not None and written.startswith("crn:"):
        return _Provider(written.rpartition("/")[2], written)
    organization_id = _owner_of(run)
    if written is not None and (known := parse_uuid(written)) is not None:
        return _Provider(known, f"crn:iam::{organization_id}:identity-provider/{known}")
    noun, client = _providers_of(organization_id), person(run)
    if written is not None:
        found = run.find(noun, written, client)
        return _Provider(found["id"], found["crn"])
    rows = list(client.rows(noun.path, noun.many))
    if not rows:
        raise Missing(
            "there is no identity provider; 'entrepot identity-providers create' adds one"
        )
    if len(rows) > 1:
        names = ", ".join(repr(row["name"]) for row in rows)
        raise Misuse(f"name one of the identity providers with --identity-provider: {names}")
    return _Provider(rows[0]["id"], rows[0]["crn"])


def _providers_of(organization_id: str) -> Noun:
    path = f"{ORGANIZATIONS_PATH}/{organization_id}/identity-providers"
    return replace(IDENTITY_PROVIDERS, path=path)


def _owner_of(run: Invocation) -> str:
    """Return the id of the organization that owns the role's account.

    Raises:
        Missing: no organization owns it.

    """
    account_id = run.record["crn"].split(":")[3]
    owner = run.client.call("GET", f"/v1/accounts/{account_id}")["account"]["organization"]
    if owner is None:
        raise Missing("no organization owns this account, so it has no identity provider")
    organization_id: str = owner["id"]
    return organization_id


def _provider_names(run: Invocation) -> Mapping[str, str]:
    """Return the names of the organization's providers by id, or none unless the caller may."""
    try:
        noun = _providers_of(_owner_of(run))
        return {row["id"]: row["name"] for row in person(run).rows(noun.path, noun.many)}
    except CommandFailure:
        return {}


ACTS: Final = (
    Act(
        verb="assign-group",
        words="give a role to a group of an identity provider",
        options=(*_GROUP, KEEP_TRUST),
        run=_assign,
    ),
    Act(
        verb="unassign-group",
        words="take a role from a group",
        options=(*_GROUP, FORCE),
        asks=True,
        run=_unassign,
    ),
    Act("groups", "list the groups that have a role", run=_list, row_name="group"),
)
