"""``entrepot queues``: queues and their messages."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Option, argument
from cloudcore.queue.queue import QUEUE
from cloudcore.resources.commands import noun_of

_REDRIVE: Final = (
    Option(
        "redrive_policy.dead_letter_queue",
        "queue that gets messages leased too often: name, id or CRN",
        metavar="QUEUE",
    ),
    Option("redrive_policy.max_leases", "leases of a message before it goes there", "number"),
)
_MESSAGES: Final = ("lease_id", "lease_count", "sent_at", "attributes", "body")
_SENT: Final = ("id", "sent_at")
_LEASE_IDS: Final = argument("lease_ids", "as 'lease' printed them", "texts", metavar="LEASE-ID")


def _for_each_lease(run: Invocation, verb: str, field: str, word: str) -> bool:
    """Acknowledge or extend leases (`verb`); return False if a lease failed.

    `field` is the answer's list of leases that succeeded; `word` is printed before their number.
    """
    answer = run.client.call("POST", f"{run.path}/messages/{verb}", run.values)
    done, failures = answer[field], answer["failures"]
    if done or run.is_for_program:
        run.say(f"{word} {len(done)} of {len(done) + len(failures)}", answer)
    for each in failures:
        run.warn(f"{each['lease_id']}: {each['code']}: {each['message']}")
    return not failures


QUEUES: Final = noun_of(
    QUEUE,
    words="queues of messages that programs send and lease",
    cells=(Cell("DEAD LETTERS", "redrive_policy.dead_letter_queue.name"),),
    options=_REDRIVE,
    more_updates=(
        Option("redrive_policy", "let no message go to another queue", "null", "no-redrive-policy"),
    ),
    created="Created {name}; 'entrepot queues send {name} TEXT' sends it a message",
    delete_words="delete a queue and its messages",
    question="Delete the queue {name} and its messages?",
    commands=(
        Command(
            verb="send",
            words="send a message",
            path="messages",
            takes_key=True,
            options=(
                argument("body", "its text; - reads the standard input", "body", metavar="TEXT"),
                Option("attributes", "an attribute of the message", "tags", metavar="NAME=VALUE"),
                Option("delay_seconds", "seconds until it can be leased", "number"),
            ),
            answer="messages",
            columns=_SENT,
        ),
        Command(
            verb="lease",
            words="lease messages, oldest first: nobody else gets them until the leases end",
            path="messages/lease",
            options=(
                Option("max_messages", "how many at most (1)", "number", "max"),
                Option("lease_seconds", "seconds of the leases (as the queue says)", "number"),
                Option("wait_seconds", "seconds to wait for a message (0)", "number", "wait"),
            ),
            answer="messages",
            columns=_MESSAGES,
        ),
        Command(
            verb="ack",
            words="acknowledge leased messages, which deletes them",
            path="messages/acknowledge",
            options=(_LEASE_IDS,),
            run=lambda run: _for_each_lease(run, "acknowledge", "acknowledged", "Acknowledged"),
        ),
        Command(
            verb="extend",
            words="let leases end later, or with 0 seconds give the messages back now",
            path="messages/extend",
            options=(
                _LEASE_IDS,
                Option("lease_seconds", "seconds from now", "number", is_required=True),
            ),
            run=lambda run: _for_each_lease(run, "extend", "extended", "Extended"),
        ),
        Command(
            verb="purge",
            words="delete all messages of a queue",
            path="purge",
            takes_key=True,
            said="Purged {name}",
            question="Delete all messages of the queue {name}?",
        ),
    ),
)
COMMANDS: Final = (QUEUES,)
