"""``entrepot roles assign``, ``unassign``, ``assignments``, ``mine`` and ``assume``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cloudcore.command_failures import CommandFailure, Missing, RequestRefused
from cloudcore.command_line import Act, Cell, Invocation, Option, argument
from cloudcore.identity.commands.options import FORCE
from cloudcore.identity.commands.people import person, person_or_program

SESSION: Final = Cell("LONGEST SESSION", "max_session_seconds", "duration")
KEEP_TRUST: Final = Option(
    "keep_trust",
    "leave the trust policy alone; by default it is made to admit who gets the role",
    "flag",
)
_PERSON: Final = argument("user", "e-mail address, id or CRN", metavar="EMAIL")


def admit(run: Invocation, crn: str) -> str:
    """Let the trust policy of the role admit a principal unless it does; return what to tell.

    Raises:
        CommandFailure: the caller may not change it, or it would be too large.

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


def _assign(run: Invocation) -> bool:
    """Let a person assume a role."""
    role = run.record["name"]
    made = run.client.create(f"{run.path}/assignments", {"user": run.values["user"]})["assignment"]
    user = made["user"]
    run.say(f"{user['name']} has the role {role}{admit(run, user['crn'])}", made)
    return True


def _unassign(run: Invocation) -> bool:
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
            return True
    raise Missing(
        f"{written!r} does not have this role; "
        f"'entrepot roles assignments {run.written}' shows who has it"
    )


def _assume(run: Invocation) -> bool:
    """Act in another role from now on, without another sign-in."""
    role = run.values.get("role")
    run.sign_in.assume(role)
    run.say(f"Commands act in the role {role}" if role else "Commands act as yourself")
    return True


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
            Cell("ID", "user.id", "whole"),
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
)
