"""``entrepot roles assign``, ``unassign``, ``assignments``, ``mine`` and ``assume``."""

from __future__ import annotations

from typing import Final

from cloudcore.command_failures import Missing
from cloudcore.command_line import Act, Cell, Invocation, Option
from cloudcore.identity.commands.options import FORCE
from cloudcore.identity.commands.people import person, person_or_program
from cloudcore.identity.commands.trust import KEEP_TRUST, admit

_PERSON: Final = Option("user", "e-mail address, id or CRN", metavar="EMAIL", is_argument=True)


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
    Act(
        verb="assign",
        words="let a person assume a role",
        options=(_PERSON, KEEP_TRUST),
        run=_assign,
    ),
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
        columns=(
            Cell("NAME", "name"),
            Cell("ACCOUNT", "account.name"),
            Cell("LONGEST SESSION", "max_session_seconds", "duration"),
            Cell("CRN", "crn", "whole"),
        ),
        row_name="crn",
    ),
    Act(
        verb="assume",
        words="act in another role from now on",
        path="/v1/assume-role",
        caller=person_or_program,
        options=(
            Option(
                "role",
                "name, id or CRN",
                metavar="ROLE",
                is_argument=True,
                is_optional=True,
                is_required=True,
                group="role",
            ),
            Option("none", "act as yourself again", "flag", group="role"),
        ),
        run=_assume,
    ),
)
