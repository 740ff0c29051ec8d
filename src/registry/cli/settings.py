"""``entrepot settings``: settings that apply to all repositories of an account."""

from __future__ import annotations

import argparse
from typing import Any, Final

from registry.cli.api import open_client
from registry.cli.failure import Misuse
from registry.cli.options import Verbs, add_noun, add_verb, repeatable
from registry.cli.output import write_record

_PATH: Final = "/v1/registry-settings"
_FIELD: Final = "registry_settings"


def add_parsers(commands: Verbs) -> None:
    """Add ``settings`` and its commands."""
    verbs = add_noun(commands, "settings", "settings that apply to all the account's repositories")
    add_verb(verbs, "show", _show, "show the account's settings")
    update = add_verb(verbs, "update", _update, "change the account's settings")
    update.add_argument(
        "--undelete-days",
        type=int,
        metavar="N",
        help="how long later deletions can be undone; 0: not at all",
    )
    repeatable(
        update,
        "--uncounted-puller",
        "--no-uncounted-pullers",
        "CRN",
        "a principal whose pulls are not recorded, such as a scanner's; * is any characters",
    )
    update.add_argument(
        "--access-key-login",
        action=argparse.BooleanOptionalAction,
        help="let container clients log in with an access key itself; off unless it is turned on",
    )


def _show(options: argparse.Namespace) -> int:
    write_record(open_client(options).call("GET", _PATH)[_FIELD], options.output)
    return 0


def _update(options: argparse.Namespace) -> int:
    changes: dict[str, Any] = {
        "undelete_days": options.undelete_days,
        "uncounted_pullers": options.uncounted_puller,
        "access_key_login": options.access_key_login,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        raise Misuse(
            "say what is to change: --undelete-days, --uncounted-puller or --access-key-login"
        )
    write_record(open_client(options).call("PATCH", _PATH, given)[_FIELD], options.output)
    return 0
