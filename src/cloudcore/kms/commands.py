"""The account's keys, as a noun of the command line.

`registry.cli.commands.keys` adds this noun, and commands about what is encrypted under keys.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Deletion, Noun, Option, Record, method_command
from cloudcore.kms.key import KEY
from cloudcore.resources.commands import noun_of


def _created(run: Invocation, key: Record) -> str:
    advice = "; 'entrepot encryption set {name}' seals later pushes under it"
    return run.text(f"Created {{name}}{advice if key['key_spec'] == 'aes-256' else ''}", key)


KEYS: Final[Noun] = replace(
    noun_of(
        KEY,
        words="keys that encrypt what the account stores",
        commands=(
            method_command("enable", "let a key be used again", "key", "{name} is enabled"),
            method_command(
                "disable",
                "stop all use of a key: what it seals can be neither read nor written",
                "key",
                "{name} is disabled: what it seals can be neither pulled nor pushed until it is "
                "enabled",
            )._replace(
                question="Disable the key {name}? What it seals can be neither pulled nor pushed "
                "then."
            ),
            method_command(
                "rotate",
                "give a key new material for what is sealed from now on; the old still opens",
                "key",
                "{name} has version {current_version}",
            ),
            method_command(
                "cancel-deletion",
                "cancel the deletion of a key, which is disabled then",
                "key",
                "{name} stays, disabled; 'entrepot keys enable {name}' lets it be used",
            ),
        ),
    ),
    quiet=lambda _run, key: str(key["name"] or key["id"]),
    created=_created,
    delete=Deletion(
        words="delete a key in 7 to 30 days, and shred what only it opens; at once it stops all "
        "use",
        question="Delete the key {name}, and shred what only it opens?",
        said="{name} is deleted at {deletion_at}; 'entrepot keys cancel-deletion {name}' keeps it "
        "until then",
        options=(
            Option(
                "pending_window_days",
                "days in which the deletion can be cancelled (30)",
                "number",
                "days",
            ),
        ),
    ),
)
