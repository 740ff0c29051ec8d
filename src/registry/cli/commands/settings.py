"""``entrepot settings``: settings that apply to all repositories of an account."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.nouns import Noun, Option

SETTINGS: Final = Noun(
    noun="settings",
    words="settings that apply to all the account's repositories",
    path="/v1/registry-settings",
    is_single=True,
    one="registry_settings",
    singular="account's settings",
    update=(
        Option("undelete_days", "how long later deletions can be undone; 0: not at all", "number"),
        Option(
            "uncounted_pullers",
            "a principal whose pulls are not recorded, such as a scanner's; * is any characters",
            "texts",
            "uncounted-puller",
            metavar="CRN",
        ),
        Option(
            "access_key_login",
            "let container clients log in with an access key itself; off unless it is turned on",
            "boolean",
        ),
    ),
)

COMMANDS: Final = (SETTINGS,)
