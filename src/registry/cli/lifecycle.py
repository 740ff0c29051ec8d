"""``entrepot lifecycle``: which images of a repository expire, and when."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from registry.cli import lifecycle_preview, lifecycle_runs
from registry.cli.api import open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.lifecycle_policy import no_policy, policy_path, read_rules
from registry.cli.options import Verbs, add_file, add_noun, add_repository, add_verb
from registry.cli.output import (
    TABLE,
    Column,
    column,
    echo,
    time_text,
    write_record,
    write_records,
)
from registry.cli.transport import RequestRefused

_CONDITIONS: Final = {
    "older_than_days": "older than {} days",
    "not_pulled_for_days": "not pulled for {} days",
    "keep_last": "all but the newest {}",
}


def _selected_tags(rule: Mapping[str, Any]) -> list[str]:
    return [*(f"{each}*" for each in rule["tag_prefixes"]), *rule["tag_patterns"]]


def _condition(rule: Mapping[str, Any]) -> str:
    words = _CONDITIONS
    if rule["action"] == "keep":
        words = {**_CONDITIONS, "keep_last": "the newest {}"}
    given = [text.format(rule[name]) for name, text in words.items() if rule[name] is not None]
    return ", ".join(given) or "all"


_RULE_COLUMNS: Final = (
    column("PRIORITY", "priority", is_number=True),
    column("ACTION", "action"),
    column("SELECTOR", "selector"),
    Column("TAGS", _selected_tags),
    Column("WHICH", _condition),
    column("DESCRIPTION", "description"),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``lifecycle`` and its commands."""
    verbs = add_noun(commands, "lifecycle", "which images of a repository expire, and when")
    add_repository(add_verb(verbs, "show", _show, "show a repository's lifecycle policy"))
    setting = add_verb(verbs, "set", _set, "give a repository a policy, which runs every day")
    add_repository(setting)
    add_file(setting, "the policy, or what 'lifecycle show --output json' printed")
    deletion = add_verb(verbs, "delete", _delete, "delete a repository's lifecycle policy")
    add_repository(deletion)
    add_confirmation(deletion)
    lifecycle_preview.add_parsers(verbs)
    lifecycle_runs.add_parsers(verbs)


def _show(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = policy_path(client, options)
    try:
        policy = client.call("GET", path)["lifecycle_policy"]
    except RequestRefused as error:
        raise no_policy(error, options) from None
    if options.output != TABLE:
        write_record(policy, options.output)
        return 0
    write_records(policy["rules"], _RULE_COLUMNS, options.output)
    echo(f"Runs next at {time_text(policy['next_run_at'])}", options.output)
    return 0


def _set(options: argparse.Namespace) -> int:
    document = read_rules(options.file)
    client = open_client(options)
    policy = client.call("PUT", policy_path(client, options), document)["lifecycle_policy"]
    when = time_text(policy["next_run_at"])
    echo(
        f"Set; it runs at {when}: "
        f"'entrepot lifecycle preview {options.repository}' shows what would expire",
        options.output,
        policy,
    )
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = policy_path(client, options)
    confirm(options, f"Take the lifecycle policy of {options.repository} away?")
    client.call("DELETE", path)
    echo(f"{options.repository} has no lifecycle policy any more", options.output)
    return 0
