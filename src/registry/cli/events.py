"""``entrepot events``: which topics receive the events of the account's resources."""

from __future__ import annotations

from typing import Final

from cloudcore.command_line import Cell, CommandLine, Deletion, Noun, Option

EVENT_RULES: Final = Noun(
    noun="events",
    words="rules that send events to topics",
    path="/v1/event-rules",
    one="event_rule",
    many="event_rules",
    name="id",
    columns=(
        Cell("ID", "id", "whole"),
        Cell("TOPIC", "topic.crn"),
        Cell("EVENT TYPES", "event_types"),
        Cell("REPOSITORY PREFIX", "repository_prefix"),
        Cell("FAULTS", shown=lambda rule: [each["code"] for each in rule["faults"]]),
        Cell("CREATED", "created_at", "time"),
    ),
    create=(
        Option(
            "topic",
            "name or CRN, to which you may publish",
            metavar="TOPIC",
            is_required=True,
        ),
        Option(
            "event_types",
            "such as storage.object.created, or registry.tag.* for all of tags; repeatable",
            "many",
            "event-type",
            metavar="TYPE",
            is_required=True,
        ),
        Option(
            "repository_prefix",
            "only events of repositories whose names begin with TEXT (all)",
        ),
    ),
    created="Created the event rule {id}",
    delete=Deletion(
        words="delete an event rule",
        question="Delete the event rule {id}?",
        said="Deleted the event rule {id}",
    ),
)


def add_parsers(commands: CommandLine) -> None:
    """Add ``events`` and its commands."""
    commands.add_described(EVENT_RULES)
