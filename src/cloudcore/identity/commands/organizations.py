"""``entrepot users``, ``organizations``, ``members``, ``invitations``."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from cloudcore.command_failures import CommandFailure
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Deletion, Noun, Option, Secret, argument
from cloudcore.identity.commands.options import (
    ORGANIZATIONS_PATH,
    find_organization,
    people,
    person,
    status_act,
)

MEMBER_ROLES: Final = ("member", "owner", "billing")


def _accept(run: Invocation) -> None:
    path = f"{ORGANIZATIONS_PATH}/{quote(run.values['id'], safe='')}/accept"
    joined = run.client.create(path, {"code": run.ask_secret("code")})["organization"]
    run.say(f"You are {joined['role']} in {joined['name']} now", joined)


def _leave(run: Invocation) -> None:
    name = run.record["name"]
    myself = run.client.call("GET", "/v1/users/me")["user"]["id"]
    run.confirm(f"Leave {name}, and lose your roles in its accounts?")
    run.client.call("DELETE", f"{run.path}/members/{myself}")
    run.say(f"You are no longer in {name}")


ORGANIZATIONS: Final = Noun(
    noun="organizations",
    words="organizations that you belong to",
    known_by="an organization of yours, by name or id (the only one, or your account's)",
    find=lambda run, written: find_organization(run.client, run.sign_in, written),
    caller=person,
    columns=(
        "name",
        Cell("YOUR ROLE", "role"),
        Cell("PERSONAL", "is_personal"),
        "created_at",
        "id",
    ),
    quiet="id",
    create=(argument("name", "what people call it"),),
    created="Created {name} ({id}); you own it",
    update=(Option("name", "the new one", metavar="NAME"),),
    updated="The organization is called {name} now",
    delete=Deletion(
        words="delete an organization without accounts",
        question="Delete the organization {name}?",
        said="Deleted the organization {name}",
    ),
    commands=(
        Command(
            verb="accept",
            words="join an organization by an invitation's code",
            is_on_list=True,
            options=(argument("id", "as who invited you knows it"),),
            run=_accept,
        ),
        Command("leave", "leave an organization, with your roles in it", asks=True, run=_leave),
    ),
)


MEMBERS: Final = Noun(
    noun="members",
    words="who belongs to an organization",
    parent=ORGANIZATIONS,
    is_below_option=True,
    name="user.name",
    within="user",
    metavar="EMAIL",
    known_by="e-mail address, id or CRN",
    is_of_account=False,
    is_lower=True,
    has_show=False,
    caller=person,
    columns=(Cell("E-MAIL", "user.name"), "role", Cell("SINCE", "created_at", "time")),
    update=(Option("role", "in the organization", choices=MEMBER_ROLES),),
    updated="{user.name} is {role} in {above.name}",
    delete=Deletion(
        words="end a person's part in the organization",
        question="End the part of {user.name} in {above.name}, with their roles in it?",
        said="{user.name} is no longer in {above.name}, and has lost the roles in its accounts",
    ),
)
INVITATIONS: Final = Noun(
    noun="invitations",
    words="codes by which people who sign in here already join an organization",
    parent=ORGANIZATIONS,
    is_below_option=True,
    name="email",
    metavar="EMAIL",
    known_by="whom it invites; or its id",
    is_lower=True,
    has_show=False,
    caller=person,
    columns=(Cell("E-MAIL", "email"), "role", "created_at", "expires_at"),
    create=(
        argument("email", "under which the person signs in"),
        Option("role", "in the organization (member)", choices=MEMBER_ROLES),
    ),
    created=(
        "Invited {email} to {above.name} until {expires_at}; give them the code: "
        "'entrepot organizations accept {above.id}' asks for it"
    ),
    secret=Secret("the code, so that it can be piped", {"e-mail address": "email", "code": "code"}),
    delete=Deletion(
        words="revoke an invitation and its code",
        question="Revoke the invitation of {email}?",
        said="Revoked the invitation of {email}",
    ),
)


_ME: Final = "/v1/users/me"
_ONE_TIME: Final = Secret(
    "the password, so that it can be piped",
    {"e-mail address": "email", "one-time password": "one_time_password"},
)


def _reset_password(run: Invocation) -> None:
    user = run.record
    if user["id"] == run.client.call("GET", _ME)["user"]["id"]:
        raise CommandFailure(
            f"{user['email']} is you; 'entrepot users change-password' changes your own password"
        )
    run.confirm(f"Reset the password of {user['email']}, and end their sessions?")
    changed = run.client.create(f"{run.path}/reset-password")["user"]
    words = f"Reset the password of {changed['email']}; all their sessions are over"
    run.say_secret(words, changed, _ONE_TIME)


def _change_password(run: Invocation) -> None:
    email = run.client.call("GET", _ME)["user"]["email"]
    passwords = {
        "current_password": run.ask_secret("current password"),
        "password": run.ask_secret("new password", is_new=True),
    }
    run.client.call("PUT", f"{_ME}/password", passwords)
    run.say(f"Changed the password of {email}; your other sessions are over")


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
    secret=_ONE_TIME,
    delete=Deletion(
        words="delete a person of no other organization",
        question="Delete {email}, with their personal organization?",
        said="Deleted {email}",
    ),
    conflicts={"delete": "'entrepot members delete {email}' ends their part in yours"},
    commands=(
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
        Command(
            verb="reset-password",
            words="give a person a new password for one sign-in",
            asks=True,
            run=_reset_password,
            secret=_ONE_TIME,
        ),
        Command(
            verb="change-password",
            words="change your own password, which is asked for; your other sessions end",
            path=f"{_ME}/password",
            caller=person,
            run=_change_password,
        ),
    ),
)


COMMANDS: Final = (USERS, ORGANIZATIONS, MEMBERS, INVITATIONS)
