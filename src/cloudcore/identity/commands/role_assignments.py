"""``entrepot roles``: its verbs to assign and unassign, ``mine``, ``assume`` and ``groups``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from cloudcore.command_failures import CommandFailure, Missing, Misuse, RequestRefused
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Act, Cell, Noun, Option, argument
from cloudcore.identity.commands.identity_providers import IDENTITY_PROVIDERS
from cloudcore.identity.commands.options import FORCE, ORGANIZATIONS_PATH, person, person_or_program
from cloudcore.resource_names import parse_uuid

SESSION: Final = Cell("LONGEST SESSION", "max_session_seconds", "duration")
KEEP_TRUST: Final = Option(
    "keep_trust",
    "leave the trust policy alone; by default it is made to admit who gets the role",
    "flag",
)
_PERSON: Final = argument("user", "e-mail address, id or CRN", metavar="EMAIL")


def admit(run: Invocation, crn: str) -> str:
    """Let the trust policy of the role admit a principal; return the end of the sentence.

    Raise `CommandFailure` if the caller may not change it, or it would be too large.
    """
    policy: Mapping[str, Any] = run.record["trust_policy"]
    if any(
        statement["effect"] == "allow" and {"*", crn} & set(statement["principals"])
        for statement in policy["statements"]
    ):
        return ""
    if run.values.get("keep_trust"):
        return ", but its trust policy does not admit them yet"
    statement = {"effect": "allow", "principals": [crn]}
    changed = {**policy, "statements": [*policy["statements"], statement]}
    try:
        run.client.call("PATCH", run.path, {"trust_policy": changed})
    except RequestRefused as error:
        raise CommandFailure(
            f"assigned, but of no use before the role's trust policy admits {crn}: {error}"
        ) from None
    return "; its trust policy admits them now"


def _assign(run: Invocation) -> None:
    """Let a person assume a role."""
    role = run.record["name"]
    made = run.client.create(f"{run.path}/assignments", {"user": run.values["user"]})["assignment"]
    user = made["user"]
    run.say(f"{user['name']} has the role {role}{admit(run, user['crn'])}", made)


def _unassign(run: Invocation) -> None:
    """Take a role from a person."""
    written, path = run.values["user"], f"{run.path}/assignments"
    for row in run.client.rows(path, "assignments"):
        user, role = row["user"], row["role"]["name"]
        if written in (user["id"], user["crn"]) or written.lower() == user["name"]:
            words = f"Take the role {role} from {user['name']}, and end their sessions of it?"
            run.confirm(words)
            query = {"force": run.values.get("force")}
            run.client.call("DELETE", f"{path}/{user['id']}", query=query)
            run.say(f"{user['name']} has the role {role} no more")
            return
    raise Missing(
        f"{written!r} does not have this role; "
        f"'entrepot roles assignments {run.written}' shows who has it"
    )


def _assume(run: Invocation) -> None:
    """Act in another role from now on, without another sign-in."""
    role = run.values.get("role")
    run.sign_in.assume(role)
    run.say(f"Commands act in the role {role}" if role else "Commands act as yourself")


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


def _assign_group(run: Invocation) -> None:
    """Give a role to a group of an identity provider."""
    role, provider = run.record["name"], _find_provider(run)
    document = {"identity_provider": provider.id, "group": run.values["group"]}
    made = run.client.create(f"{run.path}/group-assignments", document)["group_assignment"]
    words = f"People of {made['group']} have the role {role} from their next sign-in on"
    run.say(f"{words}{admit(run, provider.crn)}", made)


def _unassign_group(run: Invocation) -> None:
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


def _list_groups(run: Invocation) -> None:
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


def _find_provider(run: Invocation) -> _Provider:
    """Return the provider that the command line names, or the organization's only one.

    Raise `Missing` if there is none, `Misuse` if none is named, and there are several.
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

    Raise `Missing` if no organization owns it.
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
    Act("assign", "let a person assume a role", options=(_PERSON, KEEP_TRUST), run=_assign),
    Act(
        verb="unassign",
        words="take a role from a person",
        options=(_PERSON, FORCE),
        asks=True,
        run=_unassign,
    ),
    Act(
        verb="assignments",
        words="list the people who have a role",
        path="assignments",
        answer="assignments",
        columns=(
            Cell("E-MAIL", "user.name"),
            Cell("SINCE", "created_at", "time"),
            Cell("BY A GROUP", shown=lambda row: row["identity_provider"] is not None),
            "user.id",
        ),
        row_name="user.name",
    ),
    Act(
        verb="mine",
        words="list the roles that you can assume",
        path="/v1/users/me/roles",
        answer="roles",
        caller=person,
        columns=("name", Cell("ACCOUNT", "account.name"), SESSION, Cell("CRN", "crn", "whole")),
        row_name="crn",
    ),
    Act(
        verb="assume",
        words="act in another role from now on",
        path="/v1/assume-role",
        caller=person_or_program,
        options=(
            argument("role", "name, id or CRN", is_optional=True)._replace(
                group="role", is_required=True
            ),
            Option("none", "act as yourself again", "flag", group="role"),
        ),
        run=_assume,
    ),
    Act(
        verb="assign-group",
        words="give a role to a group of an identity provider",
        options=(*_GROUP, KEEP_TRUST),
        run=_assign_group,
    ),
    Act(
        verb="unassign-group",
        words="take a role from a group",
        options=(*_GROUP, FORCE),
        asks=True,
        run=_unassign_group,
    ),
    Act("groups", "list the groups that have a role", run=_list_groups, row_name="group"),
)
