"""``entrepot topics`` and ``entrepot subscriptions``."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import (
    Command,
    Deletion,
    Noun,
    Option,
    Record,
    argument,
    method_command,
)
from cloudcore.notifications.topic import TOPIC
from cloudcore.resources.commands import noun_of

_RETRIES: Final = (
    Option("delivery_policy.max_retries", "attempts after the first (3)", "number"),
    Option("delivery_policy.min_delay_seconds", "before the first retry (20)", "number"),
    Option("delivery_policy.max_delay_seconds", "the longest pause (20)", "number"),
    Option(
        "delivery_policy.backoff",
        "how pauses grow (constant)",
        choices=("constant", "linear", "exponential"),
    ),
    Option("delivery_policy.timeout_seconds", "to wait for an answer (10)", "number"),
)
TOPICS: Final = noun_of(
    TOPIC,
    words="topics, to which messages and events are published",
    options=_RETRIES,
    more_updates=(
        Option("delivery_policy", "retry as the platform does", "null", "no-delivery-policy"),
    ),
    created="Created {name}; 'entrepot subscriptions create {name}' says who is told",
    delete_words="delete a topic and its subscriptions",
    question="Delete the topic {name} and its subscriptions?",
    commands=(
        Command(
            verb="publish",
            words="publish a message",
            path="messages",
            takes_key=True,
            options=(
                argument("message", "its text; - reads the standard input", "body", metavar="TEXT"),
                Option("subject", "of mail"),
                Option("attributes", "what filters look at", "tags", metavar="NAME=VALUE"),
                Option("content_type", "media type for who gets it raw", metavar="TYPE"),
            ),
            said="Published {message_id}",
        ),
    ),
)
_SETTINGS: Final = (
    Option("filter_policy", "a file of accepted values by attribute", "document", "filter"),
    Option(
        "redrive_policy.dead_letter_queue",
        "queue of messages whose last attempt has failed",
        metavar="QUEUE",
    ),
    Option("raw_message_delivery", "post the message itself; webhooks only", "boolean", "raw"),
    *_RETRIES,
)


def _created(_run: Invocation, made: Record) -> str:
    """Return the message about a new subscription, with the signing secret of a webhook."""
    secret = made.get("signing_secret")
    told = f"; its signing secret is {secret}" if secret else ""
    return f"Created the subscription {made['id']}{told}"


SUBSCRIPTIONS: Final = Noun(
    noun="subscriptions",
    words="who is sent what is published to a topic",
    parent=TOPICS,
    name="id",
    columns=("id", "protocol", "endpoint", "status", "created_at"),
    create=(
        Option(
            "protocol",
            "how it is told",
            choices=("email", "http", "https", "queue"),
            is_required=True,
        ),
        Option(
            "endpoint",
            "an address, a URL that begins with the protocol, or a queue",
            is_required=True,
        ),
        *_SETTINGS,
    ),
    created=_created,
    update=(
        *_SETTINGS,
        Option("redrive_policy", "drop what cannot be delivered", "null", "no-redrive-policy"),
        Option("delivery_policy", "retry as the topic says", "null", "no-delivery-policy"),
    ),
    delete=Deletion(
        words="delete a subscription",
        question="Delete the subscription of {endpoint}?",
        said="Deleted the subscription {id}",
    ),
    commands=(
        Command(
            verb="secret",
            words="show what signs the deliveries to a webhook",
            path="signing-secret",
            method="GET",
        ),
        Command(
            verb="rotate-secret",
            words="make a new secret; the one before signs for 24 hours too",
            path="signing-secret/rotate",
            takes_key=True,
        ),
        Command(
            verb="confirm",
            words="confirm a subscription by what its endpoint was sent",
            path="/v1/subscription-confirmations",
            is_public=True,
            options=(argument("token", "the token, or the link that it is in", metavar="TOKEN"),),
            said="{endpoint} is {status}: it gets what is published to {topic_name}",
        ),
        method_command(
            "resend",
            "ask the endpoint again to confirm",
            "subscription",
            "Asked {endpoint} to confirm",
            path="resend-confirmation",
        ),
    ),
)
COMMANDS: Final = (TOPICS, SUBSCRIPTIONS)
