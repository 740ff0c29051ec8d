"""``entrepot users``: the people of an organization, and their passwords."""

from __future__ import annotations

from typing import Final

from cloudcore.command_failures import CommandFailure
from cloudcore.command_line import Act, Cell, Deletion, Invocation, Noun, Secret, argument
from cloudcore.identity.commands.options import status_act
from cloudcore.identity.commands.organizations import ORGANIZATIONS
from cloudcore.identity.commands.people import people, person

_ME: Final = "/v1/users/me"
_PASSWORD: Final = Secret(
    "the password, so that it can be piped",
    {"e-mail address": "email", "one-time password": "one_time_password"},
)


def _reset_password(run: Invocation) -> bool:
    """Give a person a new password for one sign-in."""
    user = run.record
    if user["id"] == run.client.call("GET", _ME)["user"]["id"]:
        raise CommandFailure(
            f"{user['email']} is you; 'entrepot users change-password' changes your own password"
        )
    run.confirm(f"Reset the password of {user['email']}, and end their sessions?")
    changed = run.client.create(f"{run.path}/reset-password")["user"]
    words = f"Reset the password of {changed['email']}; all their sessions are over"
    run.say_secret(words, changed, _PASSWORD)
    return True


def _change_password(run: Invocation) -> bool:
    """Change the caller's own password."""
    email = run.client.call("GET", _ME)["user"]["email"]
    passwords = {
        "current_password": run.ask_secret("current password"),
        "password": run.ask_secret("new password", is_new=True),
    }
    run.client.call("PUT", f"{_ME}/password", passwords)
    run.say(f"Changed the password of {email}; your other sessions are over")
    return True


USERS: Final = Noun(
    noun="users",
    words="people of an organization",
    path="/v1/users",
    parent=ORGANIZATIONS,
    is_below_option=True,
    name="email",
    singular="person",
    metavar="EMAIL",
    known_by="e-mail address, id or CRN",
    is_of_account=False,
    is_lower=True,
    caller=people,
    columns=(Cell("E-MAIL", "email"), "status", "must_change_password", "created_at", "id"),
    create=(argument("email", "new in the organization"),),
    created="Added {email} to {above.name}; 'entrepot roles assign ROLE {email}' gives them rights",
    secret=_PASSWORD,
    delete=Deletion(
        words="delete a person of no other organization",
        question="Delete {email}, with their personal organization?",
        said="Deleted {email}",
    ),
    conflicts={"delete": "'entrepot members delete {email}' ends their part in yours"},
    acts=(
        status_act(
            "user",
            "suspend",
            "suspended",
            "lock a person out; 'users resume' lets them in",
            "{email} is locked out",
        ),
        status_act(
            "user",
            "resume",
            "active",
            "let a suspended person in again",
            "{email} may sign in again",
        ),
        Act(
            verb="reset-password",
            words="give a person a new password for one sign-in",
            asks=True,
            run=_reset_password,
            secret=_PASSWORD,
        ),
        Act(
            verb="change-password",
            words="change your own password, which is asked for; your other sessions end",
            path=f"{_ME}/password",
            caller=person,
            run=_change_password,
        ),
    ),
)

COMMANDS: Final = (USERS,)
