"""``entrepot events``: which topics receive the events of the account's resources."""

from __future__ import annotations

import argparse
from typing import Final
from urllib.parse import quote

from registry.cli.api import open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_verb
from registry.cli.output import column, echo, time_text

_PATH: Final = "/v1/event-rules"
_COLUMNS: Final = (
    column("ID", "id", is_whole=True),
    column("TOPIC", "topic", lambda topic: str(topic["crn"])),
    column("EVENT TYPES", "event_types"),
    column("REPOSITORY PREFIX", "repository_prefix"),
    column("FAULTS", "faults", lambda faults: ", ".join(each["code"] for each in faults)),
    column("CREATED", "created_at", time_text),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``events`` and its commands."""
    verbs = add_noun(commands, "events", "rules that send events to topics")
    add_quiet(add_verb(verbs, "list", _list, "list event rules, the oldest first"), "ids")
    create = add_verb(verbs, "create", _create, "send events to a topic")
    create.add_argument(
        "--topic", required=True, metavar="TOPIC", help="name or CRN, to which you may publish"
    )
    create.add_argument(
        "--event-type",
        required=True,
        action="append",
        dest="event_types",
        metavar="TYPE",
        help="such as storage.object.created, or registry.tag.* for all of tags; repeatable",
    )
    create.add_argument(
        "--repository-prefix",
        default="",
        metavar="TEXT",
        help="only events of repositories whose names begin with TEXT (all)",
    )
    deletion = add_verb(verbs, "delete", _delete, "delete an event rule")
    deletion.add_argument("rule", metavar="ID", help="as 'events list' shows it")
    add_confirmation(deletion)


def _list(options: argparse.Namespace) -> int:
    rows = open_client(options).rows(_PATH, "event_rules")
    return show_list(options, rows, _COLUMNS, lambda row: str(row["id"]))


def _create(options: argparse.Namespace) -> int:
    fields = ("topic", "event_types", "repository_prefix")
    document = {name: getattr(options, name) for name in fields}
    rule = open_client(options).create(_PATH, document)["event_rule"]
    echo(f"Created the event rule {rule['id']}", options.output, rule)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    confirm(options, f"Delete the event rule {options.rule}?")
    client.call("DELETE", f"{_PATH}/{quote(options.rule, safe='')}")
    echo(f"Deleted the event rule {options.rule}", options.output)
    return 0
