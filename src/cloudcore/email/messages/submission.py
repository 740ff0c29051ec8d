"""Accept a message: its rows and the jobs that send it are stored in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.email.messages import rows
from cloudcore.email.messages.mime import Mailbox
from cloudcore.email.messages.rows import WAITING_MESSAGES, Recipient
from cloudcore.email.needs import SendingTerms
from cloudcore.email.resources import (
    MESSAGE,
    MESSAGES,
    MOST_RECIPIENTS,
    Message,
    RecipientKind,
    Template,
    status_of,
)
from cloudcore.email.sending_identities import for_sender
from cloudcore.email.suppressions import suppressed
from cloudcore.email.warm_up import sources_of
from cloudcore.errors import EmailRateExceeded, InvalidInput
from cloudcore.jobs.queue import NewJob, enqueue
from cloudcore.metering.usage import report

SEND: Final = "email.send"
"""The kind of the job that sends a message to one recipient."""
_ROOM: Final = "at most {limit} messages of an account wait to be sent"
SUPPRESSED: Final = "the address is suppressed"


class Draft(NamedTuple):
    """A message that is not yet accepted."""

    id: str
    account_id: str
    region: str
    sender: Mailbox
    to: Sequence[Mailbox]
    cc: Sequence[Mailbox]
    bcc: Sequence[Mailbox]
    subject: str
    template: Template | None
    sealed: bytes
    """The sealed content."""


class Accepted(NamedTuple):
    """An accepted message."""

    message: Message
    recipients: Sequence[Recipient]


def check_recipients(draft: Draft) -> None:
    """Raise `InvalidInput` if a message has no recipient, or too many."""
    count = len(draft.to) + len(draft.cc) + len(draft.bcc)
    if not 0 < count <= MOST_RECIPIENTS:
        words = f"to: a message has 1 to {MOST_RECIPIENTS} recipients, with cc and bcc"
        raise InvalidInput(words, field="to", reason="out_of_range")


def accept(
    tx: Connection, draft: Draft, terms: SendingTerms, now: int, *, checks_room: bool
) -> Accepted:
    """Store a message, and schedule its delivery to the recipients that are not suppressed.

    If `checks_room` is False, the quota of unsent messages is not checked.

    Raises:
        InvalidInput: the account has no verified identity for the sender.
        EmailRateExceeded: the identity has sent too many messages in this second.
        QuotaExceeded: too many messages of the account wait to be sent.

    """
    account_id, region = draft.account_id, draft.region
    identity = for_sender(tx, account_id, region, draft.sender.address)
    most = terms.most_a_second
    if not rows.count_rate(tx, account_id, identity.id, most, now):
        raise EmailRateExceeded(f"{identity.value} may send {most} messages a second", limit=most)
    use = WAITING_MESSAGES.check(tx, account_id, _ROOM) if checks_room else None
    pool_id = None if identity.ip_pool is None else identity.ip_pool.id
    given = _from_sources(tx, _recipients(tx, draft, now), pool_id, now)
    status = status_of(each.status for each in given)
    message = Message(
        id=draft.id,
        account_id=account_id,
        region=region,
        created_at=now,
        updated_at=now,
        sender=str(draft.sender),
        to=[str(each) for each in draft.to],
        cc=[str(each) for each in draft.cc],
        bcc=[str(each) for each in draft.bcc],
        subject=draft.subject,
        status=status,
        identity=identity.value,
        identity_id=identity.id,
        template_id=None if draft.template is None else draft.template.id,
        template_name=None if draft.template is None else draft.template.name,
        ended_at=None if status == "queued" else now,
    )
    rows.add(tx, message, given, draft.sealed)
    waiting = [each for each in given if each.status == "queued"]
    for each in waiting:
        job = NewJob(
            SEND,
            {"message_id": message.id, "position": each.position},
            account_id=account_id,
            resource=MESSAGE.crn_of(message),
        )
        enqueue(tx, job, now)
    report(tx, account_id, region, MESSAGES.name, len(waiting), now)
    if use is not None:
        WAITING_MESSAGES.emit_level(tx, account_id, use, now)
    return Accepted(message, given)


def _recipients(tx: Connection, draft: Draft, now: int) -> list[Recipient]:
    """Return the recipients without duplicate addresses, each queued or suppressed."""
    kinds: Sequence[tuple[RecipientKind, Sequence[Mailbox]]] = (
        ("to", draft.to),
        ("cc", draft.cc),
        ("bcc", draft.bcc),
    )
    first: dict[str, tuple[RecipientKind, Mailbox]] = {}
    for kind, mailboxes in kinds:
        for each in mailboxes:
            first.setdefault(each.folded, (kind, each))
    never = suppressed(tx, draft.account_id, draft.region, list(first), now)
    return [
        Recipient(
            message_id=draft.id,
            position=position,
            account_id=draft.account_id,
            region=draft.region,
            address=each.address,
            folded=folded,
            kind=kind,
            status="suppressed" if folded in never else "queued",
            reason=SUPPRESSED if folded in never else None,
            attempts=0,
            last_attempt_at=None,
            source_ip=None,
            next_attempt_at=None if folded in never else now,
        )
        for position, (folded, (kind, each)) in enumerate(first.items())
    ]


def _from_sources(
    tx: Connection, given: Sequence[Recipient], ip_pool_id: str | None, now: int
) -> list[Recipient]:
    """Assign a source IP to each queued recipient; return all recipients."""
    first, waiting = given[0], sum(each.status == "queued" for each in given)
    sources = iter(sources_of(tx, first.account_id, first.region, ip_pool_id, waiting, now))
    return [
        each._replace(source_ip=next(sources)) if each.status == "queued" else each
        for each in given
    ]
