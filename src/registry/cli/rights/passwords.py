"""``entrepot users change-password``."""

from __future__ import annotations

import argparse

from registry.cli.options import Verbs, add_verb
from registry.cli.output import echo
from registry.cli.rights.people import open_person
from registry.cli.rights.secret_text import read_new_password, read_secret

_PIPED = "without a terminal it reads two lines: the current password, and the new one"


def add_parsers(verbs: Verbs) -> None:
    """Add the commands about passwords to those of users."""
    change = add_verb(
        verbs, "change-password", _change, "change your own password; your other sessions end"
    )
    change.epilog = f"It asks for both passwords; {_PIPED}."


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
