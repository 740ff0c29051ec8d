"""Send a message to one recipient; a step of the job `submission.SEND`.

The outcome is committed as soon as the recipient's mail server has accepted the message. If the
process dies in between, the message is sent again, with the same ``Message-ID``: it may arrive
twice, but is never lost. A message recorded as sent is never sent again.

A slow destination may use only few of the jobs' slots (`DeliverySlots`), so that other mail is not
delayed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import msgspec

from cloudcore.clock import MICROSECONDS
from cloudcore.db.base import Connection
from cloudcore.email import sender_rows
from cloudcore.email.bounces.bounces import suppress
from cloudcore.email.dedicated_ip import DAY
from cloudcore.email.dkim import open_key, signed
from cloudcore.email.messages import rows
from cloudcore.email.messages.bodies import content_of
from cloudcore.email.messages.mime import MessageHeading, composed, mailbox
from cloudcore.email.messages.rows import Recipient
from cloudcore.email.messages.submission import SEND, SUPPRESSED
from cloudcore.email.needs import EmailNeeds
from cloudcore.email.resources import WAITING, Message, MessageStatus, SendingIdentity
from cloudcore.email.sending_identities import signer_of
from cloudcore.email.suppressions import Unsubscription, suppressed, unsubscribe_headers
from cloudcore.email.warm_up import counted_again, note_outcome
from cloudcore.errors import NotFound
from cloudcore.jobs.backoff import StaggeredRetries, backoff_seconds
from cloudcore.jobs.kinds import OUTBOUND_SLOTS, Done, JobKind, Next
from cloudcore.jobs.queue import Job, later
from cloudcore.outbound.mail import MailRefused
from cloudcore.outbound.mail_transfer import ATTEMPT_SECONDS, Envelope
from cloudcore.threads import DOCUMENTS

FIRST_RETRY_SECONDS: Final = 60.0
LONGEST_RETRY_SECONDS: Final = 4 * 3600.0
"""The pauses between attempts double up to this."""
GIVE_UP_SECONDS: Final = 3 * 24 * 3600
"""A message is not tried again this long after its acceptance."""
MOST_OF_DESTINATION: Final = 8
"""Messages that a process hands over at the same time to the mail servers of one domain."""
MOST_OF_SMARTHOST: Final = 24
MOST_OF_ACCOUNT: Final = 32
_log = logging.getLogger(__name__)


class DeliverySlots:
    """Counts the deliveries under way in this process, by destination and by account."""

    def __init__(self) -> None:
        self._destinations = Counter[str]()
        self._accounts = Counter[str]()
        self.pause: Final = StaggeredRetries(time.monotonic, 1).pause
        """Returns the seconds after which a delivery that found no slot should try again."""

    def begin(self, destination: str, account_id: str) -> bool:
        """Take a slot for a delivery; return False if the destination or the account has too many.

        `destination` is empty for the smarthost.
        """
        most = MOST_OF_DESTINATION if destination else MOST_OF_SMARTHOST
        if self._destinations[destination] >= most or self._accounts[account_id] >= MOST_OF_ACCOUNT:
            return False
        self._destinations[destination] += 1
        self._accounts[account_id] += 1
        return True

    def end(self, destination: str, account_id: str) -> None:
        """Release the slot of a delivery."""
        for counts, key in ((self._destinations, destination), (self._accounts, account_id)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]


class DueMessage(NamedTuple):
    """A message that is due for one recipient, with all that is needed to send it."""

    message: Message
    recipient: Recipient
    sealed: bytes
    identity: SendingIdentity
    signer: SendingIdentity | None
    is_suppressed: bool


class DeliveryOutcome(NamedTuple):
    """The result of an attempt to send a message to one recipient."""

    reason: str | None = None
    """Why the message was not sent; None if it was."""
    is_final: bool = True
    refuses_address: bool = False
    is_suppressed: bool = False
    was_tried: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Postman:
    """Sends messages; one instance per process."""

    needs: EmailNeeds
    turns: DeliverySlots = field(default_factory=DeliverySlots)

    def job_kind(self) -> JobKind:
        """Return the kind of job that sends messages."""
        return JobKind(
            name=SEND,
            step=self.step,
            step_seconds=ATTEMPT_SECONDS + 60,
            slots=OUTBOUND_SLOTS,
            gave_up=self._give_up,
        )

    async def step(self, job: Job) -> Next | Done:
        """Send a message to one recipient, unless it was already sent."""
        assert job.account_id is not None
        where = job.account_id, job.arguments["message_id"], job.arguments["position"]
        due = await self.needs.database.read(_find_due, *where, self.needs.clock())
        if due is None:
            return Done()
        sender = self.needs.sending.sender
        destination = "" if sender is None else sender.destination_of(due.recipient.address)
        if not self.turns.begin(destination, job.account_id):
            return Next(None, delay_seconds=self.turns.pause())
        try:
            outcome = await self._attempt(due)
        finally:
            self.turns.end(destination, job.account_id)
        return self._recorded(due, outcome)

    async def _counted_today(self, due: DueMessage) -> DueMessage:
        """Count a recipient against today's cap (UTC) of a dedicated IP, unless already counted.

        Recipients are counted at acceptance, and on each later day with an attempt. Return the
        message, whose source address may have changed.
        """
        now, message, to = self.needs.clock(), due.message, due.recipient
        counted_at = message.created_at if to.last_attempt_at is None else to.last_attempt_at
        if to.source_ip is None or counted_at // DAY == now // DAY:
            return due
        pool = due.identity.ip_pool
        pool_id = None if pool is None else pool.id
        changed = await self.needs.database.write(counted_again, to, pool_id, now)
        return due._replace(recipient=changed)

    async def _attempt(self, due: DueMessage) -> DeliveryOutcome:
        if due.is_suppressed:
            return DeliveryOutcome(SUPPRESSED, is_suppressed=True, was_tried=False)
        if due.identity.status != "verified":
            return DeliveryOutcome("its sending identity is not verified any more", is_final=False)
        if self.needs.sending.sender is None:
            return DeliveryOutcome("this install sends no mail of accounts", is_final=False)
        try:
            due = await self._counted_today(due)
            envelope = await DOCUMENTS.run(due.message.account_id, self._envelope, due)
            await self.needs.sending.sender.send(envelope)
        except MailRefused as error:
            return DeliveryOutcome(str(error), error.is_permanent, error.refuses_address)
        except Exception:  # noqa: BLE001 - the attempt must be recorded
            _log.exception("an attempt to send message %s failed", due.message.id)
            return DeliveryOutcome("the attempt failed unexpectedly", is_final=False)
        return DeliveryOutcome()

    def _envelope(self, due: DueMessage) -> Envelope:
        """Return the signed message for one recipient, with its envelope."""
        message, to, keyring = due.message, due.recipient, self.needs.keyring
        heading = msgspec.convert(message, MessageHeading, from_attributes=True)
        content = content_of(keyring, message.id, due.sealed)
        who = Unsubscription(message.account_id, message.region, message.id, to.address)
        body = composed(heading, content, unsubscribe_headers(keyring, self.needs.url, who))
        if due.signer is not None:
            body = signed(body, due.signer, partial(open_key, keyring))
        ours = self.needs.return_path(message.id, to.position)
        sender = ours or mailbox(message.sender, "from").address
        return Envelope(sender, to.address, body, to.source_ip)

    def _recorded(self, due: DueMessage, outcome: DeliveryOutcome) -> Next | Done:
        """Return `Next` for a retry, or `Done` if the outcome is final or the message too old.

        Both store the outcome when they are committed.
        """
        now = self.needs.clock()
        attempts = due.recipient.attempts + outcome.was_tried
        store = partial(record, needs=self.needs, to=due.recipient, now=now)
        if outcome.reason is None or outcome.is_final:
            return Done(partial(store, outcome=outcome, due_at=None))
        pause = backoff_seconds(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, attempts - 1)
        due_at = later(now, pause)
        if due_at > due.message.created_at + GIVE_UP_SECONDS * MICROSECONDS:
            given_up = outcome._replace(reason=f"given up: {outcome.reason}", is_final=True)
            return Done(partial(store, outcome=given_up, due_at=None))
        return Next(None, partial(store, outcome=outcome, due_at=due_at), delay_seconds=pause)

    def _give_up(self, tx: Connection, job: Job) -> None:
        """Store that a message was not sent because the platform itself failed at every attempt."""
        assert job.account_id is not None
        where = job.account_id, job.arguments["message_id"], job.arguments["position"]
        found = rows.find_recipient(tx, *where)
        if found is not None:
            failed = DeliveryOutcome("the platform failed at every attempt", was_tried=False)
            record(tx, self.needs, found, failed, None, self.needs.clock())


def record(
    tx: Connection,
    needs: EmailNeeds,
    to: Recipient,
    outcome: DeliveryOutcome,
    due_at: int | None,
    now: int,
) -> None:
    """Store the outcome of an attempt; `due_at` is when the next attempt is due, or None.

    Do nothing if the message is deleted, or the recipient no longer waits, because a report about
    the delivery was stored before.
    """
    try:
        rows.ROWS.lock(tx, to.account_id, to.message_id)
    except NotFound:
        return
    found = rows.find_recipient(tx, to.account_id, to.message_id, to.position)
    if found is None or found.status not in WAITING:
        return
    changed = found._replace(
        status=_status(outcome, due_at),
        reason=outcome.reason,
        attempts=found.attempts + outcome.was_tried,
        last_attempt_at=now if outcome.was_tried else found.last_attempt_at,
        next_attempt_at=due_at,
    )
    rows.change_recipient(tx, changed, now)
    note_outcome(tx, needs.events, changed, now)
    if outcome.refuses_address:
        suppress(tx, needs, changed, "auto_bounce", now)


def _status(outcome: DeliveryOutcome, due_at: int | None) -> MessageStatus:
    if outcome.reason is None:
        return "sent"
    if outcome.is_suppressed:
        return "suppressed"
    return "bounced" if due_at is None else "deferred"


def _find_due(
    tx: Connection, account_id: str, message_id: str, position: int, now: int
) -> DueMessage | None:
    message = rows.ROWS.find(tx, account_id, message_id)
    to = rows.find_recipient(tx, account_id, message_id, position)
    sealed = rows.find_content(tx, account_id, message_id)
    if message is None or to is None or sealed is None or to.status not in WAITING:
        return None
    # An identity is not deleted while a message from it waits.
    identity = sender_rows.IDENTITY_ROWS.get(tx, account_id, message.region, message.identity_id)
    never = suppressed(tx, account_id, message.region, [to.folded], now)
    signer = signer_of(tx, identity)
    return DueMessage(message, to, sealed, identity, signer, to.folded in never)
