"""``entrepot roles``: roles, in which people and programs act in the account."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cloudcore.command_failures import CommandFailure, RequestRefused
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Act, Cell, Deletion, Noun, Option, Record, argument
from cloudcore.identity.commands import role_assignments
from cloudcore.identity.commands.options import DESCRIPTION, FORCE, GRANTS, Grant, grants_of
from cloudcore.identity.commands.organizations import USERS
from cloudcore.identity.commands.policies import POLICIES

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
    """Show a role, and the statements of its trust policy."""
    run.show({name: role[name] for name in role if name != "trust_policy"})
    run.say("")
    columns = (Cell("TRUST", "effect"), "principals", "conditions")
    run.show_rows(role["trust_policy"]["statements"], columns)


def _create(run: Invocation) -> None:
    """Create a role with its people and policies; if one is refused, delete all that was made."""
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
    # What this command has made; the role first, since an attached policy cannot be deleted.
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
    """Delete the resources that were made; return the failure to raise."""
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
    """Return the path of a ready-made policy for a role, named after both, and whether it is new.

    One that is there already with the same document may be left of a role that was deleted.
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
    """Return the sentence about a new role, with advice on rights and people that it lacks."""
    missing = []
    if not values.get("policies") and not grants_of(values):
        missing.append(f"'entrepot policies attach POLICY --role {name}' gives it rights")
    if not values.get("users"):
        missing.append(f"'entrepot roles assign {name} EMAIL' gives it to a person")
    return f"Created the role {name}{': ' if missing else ''}{', '.join(missing)}"


def _own_account(run: Invocation) -> str:
    """Return the id of the account the caller acts in."""
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


_NEW: Final = (argument("name", "in lower case, such as developer"), *_FIELDS)
_SENT: Final = frozenset(each.field for each in _NEW)

ROLES: Final = Noun(
    noun="roles",
    words="roles, in which people act in the account",
    name_filter="name",
    columns=("name", role_assignments.SESSION, "description", "last_used_at", "created_at"),
    shown=_show,
    update=(*_FIELDS, FORCE),
    updated=_updated,
    delete=Deletion(
        words="delete a role; its sessions end at once",
        question="Delete the role {name}, and end its sessions?",
        said="Deleted the role {name}",
        options=(FORCE,),
    ),
    acts=(
        Act(
            verb="create",
            words="create a role, with people and policies if named",
            is_of_all=True,
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
        *role_assignments.ACTS,
    ),
)

COMMANDS: Final = (ROLES,)
