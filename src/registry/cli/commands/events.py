"""``entrepot events``: rules that send events of the account's resources to topics."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.nouns import Cell, Deletion, Noun, Option

EVENT_RULES: Final = Noun(
    noun="events",
    words="rules that send events to topics",
    path="/v1/event-rules",
    many="event_rules",
    name="id",
    columns=(
        "id",
        Cell("TOPIC", "topic.crn"),
        "event_types",
        "repository_prefix",
        Cell("FAULTS", shown=lambda rule: [each["code"] for each in rule["faults"]]),
        "created_at",
    ),
    create=(
        Option(
            "topic",
            "name, id or CRN of one to which you may publish",
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
            "repository_prefix", "only events of repositories whose names begin with TEXT (all)"
        ),
    ),
    created="Created the event rule {id}",
    delete=Deletion(
        words="delete an event rule",
        question="Delete the event rule {id}?",
        said="Deleted the event rule {id}",
    ),
)

COMMANDS: Final = (EVENT_RULES,)
