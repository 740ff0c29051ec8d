"""``entrepot roles``: roles, through which people and programs act in the account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from cloudcore.command_failures import CommandFailure, Missing, Misuse, RequestRefused
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, Record, argument
from cloudcore.identity.commands.identity_providers import IDENTITY_PROVIDERS
from cloudcore.identity.commands.options import (
    DESCRIPTION,
    FORCE,
    GRANTS,
    ORGANIZATIONS_PATH,
    Grant,
    grants_of,
    person,
    person_or_program,
)
from cloudcore.identity.commands.organizations import USERS
from cloudcore.identity.commands.policies import POLICIES
from cloudcore.resource_names import parse_uuid

_FIELDS: Final = (
    DESCRIPTION,
    Option("max_session_seconds", "1h to 12h (1h for a new role)", "span", "max-session"),
    Option(
        "trust_policy",
        "the trust policy: who may assume it; - reads the standard input (the account's programs "
        "and roles whose policies allow it, and the people it is assigned to)",
        "document",
        "trust",
    ),
)


def _show(run: Invocation, role: Record) -> None:
    run.show({name: role[name] for name in role if name != "trust_policy"})
    run.say("")
    columns = (Cell("TRUST", "effect"), "principals", "conditions")
    run.show_rows(role["trust_policy"]["statements"], columns)


def _create(run: Invocation) -> None:
    """Create a role with its people and policies; if one is refused, delete what was created."""
    values, client = run.values, run.client
    fields = {each: values[each] for each in values if each in _SENT}
    # Look everything up first, so that a misspelt name leaves no half-made role.
    people = [run.find(USERS, each) for each in values.get("users", ())]
    policies = [_path(run.find(POLICIES, each)) for each in values.get("policies", ())]
    if "trust_policy" not in fields:
        principals = [_own_account(run), *(each["crn"] for each in people)]
        statement = {"effect": "allow", "principals": principals}
        fields["trust_policy"] = {"version": "1", "statements": [statement]}
    made = client.create(run.path, fields)["role"]
    # Paths of what was created; the role is first, since an attached policy cannot be deleted.
    new = [f"{run.path}/{made['id']}"]
    try:
        for grant in grants_of(values):
            path, is_new = _ready_made(run, made["name"], grant)
            policies.append(path)
            new += [path] * is_new
        for path in policies:
            client.create(f"{path}/attachments", {"role": made["id"]})
        for each in people:
            client.create(f"{new[0]}/assignments", {"user": each["id"]})
    except RequestRefused as error:
        raise _undone(run, made["name"], new, error) from None
    run.say(_created(made["name"], values), made)


def _path(policy: Record) -> str:
    return f"{POLICIES.path}/{policy['id']}"


def _undone(
    run: Invocation, role: str, made: Sequence[str], error: RequestRefused
) -> CommandFailure:
    """Delete the resources that were created (`made`, paths); return the error to raise."""
    try:
        for path in made:
            run.client.call("DELETE", path)
    except RequestRefused:
        return CommandFailure(
            f"the role {role} is there, but without all that you named: {error}; complete it, or "
            f"delete it with 'entrepot roles delete {role}'"
        )
    return CommandFailure(f"the role {role} was not created: {error}")


def _ready_made(run: Invocation, role: str, grant: Grant) -> tuple[str, bool]:
    """Create a ready-made policy for a role, named after role and template.

    Return (path, True if it was created). If a policy with this name and document already exists,
    use it: it may be left from a deleted role.
    """
    name = f"{role}-{grant.template}"
    fields = {"name": name, "template": {"name": grant.template, "names": grant.names}}
    try:
        return _path(run.client.create(POLICIES.path, fields)["policy"]), True
    except RequestRefused as error:
        if error.code != "CONFLICT":
            raise
        found = run.find(POLICIES, name)
        query = {"names": ",".join(grant.names)}
        for each in run.client.call("GET", "/v1/policy-templates", query=query)["policy_templates"]:
            if (each["name"], each["document"]) == (grant.template, found["document"]):
                return _path(found), False
        raise


def _created(name: str, values: dict[str, Any]) -> str:
    """Return the message about a new role, with advice on missing policies and people."""
    missing = []
    if not values.get("policies") and not grants_of(values):
        missing.append(f"'entrepot policies attach POLICY --role {name}' gives it rights")
    if not values.get("users"):
        missing.append(f"'entrepot roles assign {name} EMAIL' gives it to a person")
    return f"Created the role {name}{': ' if missing else ''}{', '.join(missing)}"


def _own_account(run: Invocation) -> str:
    """Return the id of the account in which the caller acts, or raise `CommandFailure`."""
    account = run.sign_in.claims().acc
    if account is None:
        raise CommandFailure(
            "a person acts in an account by a role: 'entrepot roles mine' lists yours, and "
            "'entrepot roles assume ROLE' takes one"
        )
    return account


def _updated(run: Invocation, role: Record) -> str:
    is_ended = "trust_policy" in run.values
    ended = "; its sessions are over, unless trust was only added" if is_ended else ""
    return f"Changed the role {role['name']}{ended}"


_SESSION: Final = Cell("LONGEST SESSION", "max_session_seconds", "duration")
_KEEP_TRUST: Final = Option(
    "keep_trust",
    "leave the trust policy alone; by default it is made to admit who gets the role",
    "flag",
)
_PERSON: Final = argument("user", "e-mail address, id or CRN", metavar="EMAIL")


def _admit(run: Invocation, crn: str) -> str:
    """Add a principal to the role's trust policy, unless it is trusted or ``keep_trust`` is set.

    Return the end of the message. Raise `CommandFailure` if the caller may not change the policy,
    or the policy would be too large.
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
    role = run.record["name"]
    made = run.client.create(f"{run.path}/assignments", {"user": run.values["user"]})["assignment"]
    user = made["user"]
    run.say(f"{user['name']} has the role {role}{_admit(run, user['crn'])}", made)


def _unassign(run: Invocation) -> None:
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
_GROUPS: Final = "group_assignments"


def _assign_group(run: Invocation) -> None:
    role, provider = run.record["name"], _find_provider(run)
    document = {"identity_provider": provider["id"], "group": run.values["group"]}
    made = run.client.create(f"{run.path}/group-assignments", document)["group_assignment"]
    words = f"People of {made['group']} have the role {role} from their next sign-in on"
    run.say(f"{words}{_admit(run, provider['crn'])}", made)


def _unassign_group(run: Invocation) -> None:
    group, role, path = run.values["group"], run.record["name"], f"{run.path}/group-assignments"
    rows = [row for row in run.client.rows(path, _GROUPS) if group in (row["group"], row["id"])]
    if "identity_provider" in run.values:
        provider = _find_provider(run)
        rows = [row for row in rows if row["identity_provider"] == provider["id"]]
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
    names = {} if run.is_for_program else _provider_names(run)
    columns = (
        "group",
        Cell(
            "IDENTITY PROVIDER",
            shown=lambda row: names.get(row["identity_provider"], row["identity_provider"]),
        ),
        Cell("SINCE", "created_at", "time"),
    )
    rows = run.client.rows(f"{run.path}/group-assignments", _GROUPS)
    run.show_rows(rows, columns, "group")


def _find_provider(run: Invocation) -> Record:
    """Return the provider named on the command line, or the organization's only one.

    Raise `Missing` if there is no such provider, `Misuse` if there are several and none is named.
    """
    written: str | None = run.values.get("identity_provider")
    if written is not None and written.startswith("crn:"):
        return {"id": written.rpartition("/")[2], "crn": written}
    organization_id = _owner_of(run)
    if written is not None and (known := parse_uuid(written)) is not None:
        return {"id": known, "crn": f"crn:iam::{organization_id}:identity-provider/{known}"}
    noun, client = _providers_of(organization_id), person(run)
    if written is not None:
        return run.find(noun, written, client)
    rows = list(client.rows(noun.path, noun.many))
    if not rows:
        raise Missing(
            "there is no identity provider; 'entrepot identity-providers create' adds one"
        )
    if len(rows) > 1:
        names = ", ".join(repr(row["name"]) for row in rows)
        raise Misuse(f"name one of the identity providers with --identity-provider: {names}")
    return rows[0]


def _providers_of(organization_id: str) -> Noun:
    path = f"{ORGANIZATIONS_PATH}/{organization_id}/identity-providers"
    return replace(IDENTITY_PROVIDERS, path=path)


def _owner_of(run: Invocation) -> str:
    """Return the id of the organization that owns the role's account.

    Raise `Missing` if no organization owns the account.
    """
    account_id = run.record["crn"].split(":")[3]
    owner = run.client.call("GET", f"/v1/accounts/{account_id}")["account"]["organization"]
    if owner is None:
        raise Missing("no organization owns this account, so it has no identity provider")
    organization_id: str = owner["id"]
    return organization_id


def _provider_names(run: Invocation) -> Mapping[str, str]:
    """Map the organization's provider ids to names; empty if the caller may not list them."""
    try:
        noun = _providers_of(_owner_of(run))
        return {row["id"]: row["name"] for row in person(run).rows(noun.path, noun.many)}
    except CommandFailure:
        return {}


_ASSIGNMENTS: Final = (
    Command("assign", "let a person assume a role", options=(_PERSON, _KEEP_TRUST), run=_assign),
    Command(
        verb="unassign",
        words="take a role from a person",
        options=(_PERSON, FORCE),
        asks=True,
        run=_unassign,
    ),
    Command(
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
    Command(
        verb="mine",
        words="list the roles that you can assume",
        path="/v1/users/me/roles",
        answer="roles",
        caller=person,
        columns=("name", Cell("ACCOUNT", "account.name"), _SESSION, Cell("CRN", "crn", "whole")),
        row_name="crn",
    ),
    Command(
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
    Command(
        verb="assign-group",
        words="give a role to a group of an identity provider",
        options=(*_GROUP, _KEEP_TRUST),
        run=_assign_group,
    ),
    Command(
        verb="unassign-group",
        words="take a role from a group",
        options=(*_GROUP, FORCE),
        asks=True,
        run=_unassign_group,
    ),
    Command("groups", "list the groups that have a role", run=_list_groups, row_name="group"),
)
_NEW: Final = (argument("name", "in lower case, such as developer"), *_FIELDS)
_SENT: Final = frozenset(each.field for each in _NEW)

ROLES: Final = Noun(
    noun="roles",
    words="roles, in which people act in the account",
    name_filter="name",
    columns=("name", _SESSION, "description", "last_used_at", "created_at"),
    shown=_show,
    update=(*_FIELDS, FORCE),
    updated=_updated,
    delete=Deletion(
        words="delete a role; its sessions end at once",
        question="Delete the role {name}, and end its sessions?",
        said="Deleted the role {name}",
        options=(FORCE,),
    ),
    commands=(
        Command(
            verb="create",
            words="create a role, with people and policies if named",
            is_on_list=True,
            options=(
                *_NEW,
                Option(
                    "users", "assign it to this person; repeatable", "many", "user", metavar="EMAIL"
                ),
                Option(
                    "policies",
                    "attach this policy, by name or id; repeatable",
                    "many",
                    "policy",
                    metavar="POLICY",
                ),
                *GRANTS,
            ),
            run=_create,
        ),
        *_ASSIGNMENTS,
    ),
)

COMMANDS: Final = (ROLES,)
