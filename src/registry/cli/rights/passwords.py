"""``entrepot users reset-password`` and ``change-password``."""

from __future__ import annotations

import argparse

from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import CommandFailure
from registry.cli.options import Verbs, add_verb
from registry.cli.output import echo
from registry.cli.rights.lookup import USER, add_named, find
from registry.cli.rights.people import add_organization, open_people, open_person
from registry.cli.secret_text import (
    PASSWORD_LABELS,
    add_quiet_secret,
    read_new_password,
    read_secret,
    show_secret,
)

_PIPED = "without a terminal it reads two lines: the current password, and the new one"


def add_parsers(verbs: Verbs) -> None:
    """Add the commands about passwords to those of users."""
    reset = add_verb(
        verbs, "reset-password", _reset, "give a person a new password for one sign-in"
    )
    add_named(reset, USER)
    add_organization(reset)
    add_confirmation(reset)
    add_quiet_secret(reset, "the password, so that it can be piped")
    change = add_verb(
        verbs, "change-password", _change, "change your own password; your other sessions end"
    )
    change.epilog = f"It asks for both passwords; {_PIPED}."


def _reset(options: argparse.Namespace) -> int:
    client = open_people(options, needs_person=True)
    user = find(client, USER, options.user)
    if user["id"] == client.call("GET", "/v1/users/me")["user"]["id"]:
        raise CommandFailure(
            f"{user['email']} is you; 'entrepot users change-password' changes your own password"
        )
    confirm(options, f"Reset the password of {user['email']}, and end their sessions?")
    changed = client.create(f"{USER.path}/{user['id']}/reset-password")["user"]
    words = f"Reset the password of {changed['email']}; all their sessions are over"
    show_secret(options, words, changed, PASSWORD_LABELS)
    return 0


def _change(options: argparse.Namespace) -> int:
    client = open_person(options)
    email = client.call("GET", "/v1/users/me")["user"]["email"]
    passwords = {
        "current_password": read_secret("Current password: ", "current password"),
        "password": read_new_password(),
    }
    client.call("PUT", "/v1/users/me/password", passwords)
    echo(f"Changed the password of {email}; your other sessions are over", options.output)
    return 0
