"""Deliver to the endpoint of one subscription; a step of the job `waking.DELIVER`.

A step takes a few deliveries that are due, tries them at once, and records what they came to in one
transaction. If the process dies in between, another does the same again: an endpoint may get a
message twice, with one ``webhook-id``, but never not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from cloudcore.clock import Clock
from cloudcore.db.base import Connection, Database
from cloudcore.jobs.kinds import Done, Next
from cloudcore.jobs.queue import Job
from cloudcore.notifications import delivery_rows, envelope, subscription_rows
from cloudcore.notifications.delivery_policy import Retries, merged
from cloudcore.notifications.endpoint_turns import EndpointTurns
from cloudcore.notifications.envelope import Links
from cloudcore.notifications.mail_messages import mail_of
from cloudcore.notifications.outcomes import DELIVERED, Attempted, Outcome, record
from cloudcore.notifications.ports import Mail, MailRefused, Queues
from cloudcore.notifications.records import Delivery, Subscription, Topic
from cloudcore.notifications.waking import wake
from cloudcore.notifications.webhooks import Webhooks

BATCH: Final = 8
"""Deliveries to one endpoint that are tried at once."""
_IDLE_SECONDS: Final = 3600
"""A job stays so long after its last delivery; else each message would leave a finished one."""
_NOW_SECONDS: Final = 1e-9
"""A pause that gives up the worker's slot to others that are due."""
_BUSY_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


class Due(NamedTuple):
    """What is to be delivered now."""

    subscription: Subscription
    topic: Topic
    deliveries: list[Delivery]

    @property
    def retries(self) -> Retries:
        """Return the settings of its retries."""
        return merged(self.topic.delivery_policy, self.subscription.delivery_policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """Delivers to endpoints; one per process."""

    database: Database
    clock: Clock
    links: Links
    webhooks: Webhooks
    queues: Queues
    mail: Mail | None
    turns: EndpointTurns = field(default_factory=EndpointTurns)

    async def step(self, job: Job) -> Next | Done:
        """Try the deliveries of a subscription that are due."""
        assert job.account_id is not None
        account_id, subscription_id = job.account_id, job.arguments["subscription_id"]
        now = self.clock()
        due = await self.database.read(_list_due, account_id, subscription_id, now)
        if due is None:
            return Done()
        if not due.deliveries:
            is_idle = job.cursor == "idle"
            again = partial(_look_again, account_id, subscription_id, now)
            return Done(again) if is_idle else Next("idle", again, delay_seconds=_IDLE_SECONDS)
        with self.turns.take(_origin(due.subscription), account_id) as is_ours:
            if not is_ours:
                return Next(None, delay_seconds=_BUSY_SECONDS)
            attempts = await self._try(due)
        recorded = partial(_record, self.queues, due, attempts, self.clock())
        is_more = len(due.deliveries) == BATCH
        return Next(None, recorded, delay_seconds=_NOW_SECONDS if is_more else _IDLE_SECONDS)

    async def _try(self, due: Due) -> list[Attempted]:
        bodies = [self._envelope(due, each) for each in due.deliveries]
        if due.subscription.protocol == "queue":
            pairs = zip(due.deliveries, bodies, strict=True)
            return [Attempted(delivery, body, None) for delivery, body in pairs]
        send = self._send_mail if due.subscription.protocol == "email" else self._send_webhook
        outcomes = await asyncio.gather(
            *(
                self._one(send, due, each, body)
                for each, body in zip(due.deliveries, bodies, strict=True)
            )
        )
        return [
            Attempted(delivery, body, outcome)
            for delivery, body, outcome in zip(due.deliveries, bodies, outcomes, strict=True)
        ]

    async def _one(
        self, send: _Send, due: Due, delivery: Delivery, body: dict[str, Any]
    ) -> Outcome:
        try:
            async with asyncio.timeout(due.retries.timeout_seconds):
                return await send(due, delivery, body)
        except TimeoutError:
            seconds = due.retries.timeout_seconds
            return Outcome("retry", "ENDPOINT_TIMEOUT", f"no answer within {seconds} seconds")
        except Exception:  # noqa: BLE001 - else it would hold up all others of the subscription
            _log.exception("an attempt to deliver %s failed", delivery.id)
            return Outcome("retry", "INTERNAL_ERROR", "the attempt failed unexpectedly")

    async def _send_webhook(self, due: Due, delivery: Delivery, body: dict[str, Any]) -> Outcome:
        is_raw = due.subscription.raw_message_delivery
        raw = delivery.publication.message if is_raw and delivery.publication else None
        return await self.webhooks.post(due.subscription, body, raw, self.clock())

    async def _send_mail(self, due: Due, _delivery: Delivery, body: dict[str, Any]) -> Outcome:
        if self.mail is None:
            return Outcome("retry", "MAIL_NOT_CONFIGURED", "this install sends no mail")
        try:
            await self.mail.send(mail_of(body, due.subscription, self.mail.sender))
        except MailRefused as error:
            return Outcome("failed" if error.is_permanent else "retry", "MAIL_REFUSED", str(error))
        return DELIVERED

    def _envelope(self, due: Due, delivery: Delivery) -> dict[str, Any]:
        if delivery.publication is None:
            return envelope.confirmation(
                due.topic, due.subscription, delivery.id, delivery.created_at, self.links
            )
        return envelope.notification(due.topic, due.subscription, delivery.publication, self.links)


_Send = Callable[[Due, Delivery, dict[str, Any]], Awaitable[Outcome]]


def _origin(subscription: Subscription) -> str:
    """Return what is asked for a subscription: the origin of its URL, or all mail, or queues."""
    if not subscription.is_webhook:
        return subscription.protocol
    return "/".join(subscription.endpoint.split("/", 3)[:3])


def _list_due(tx: Connection, account_id: str, subscription_id: str, now: int) -> Due | None:
    found = subscription_rows.find_with_topic(tx, account_id, subscription_id)
    if found is None:
        return None
    due = delivery_rows.list_due(tx, account_id, subscription_id, now, BATCH)
    if found[0].status == "confirmed":
        due = [each for each in due if each.publication is not None]
    return Due(*found, due)


def _look_again(account_id: str, subscription_id: str, now: int, tx: Connection) -> None:
    """Wake the job if a delivery was inserted meanwhile, or one is due later."""
    due_at = delivery_rows.first_due(tx, account_id, subscription_id)
    if due_at is not None:
        wake(tx, account_id, subscription_id, now, due_at)


def _record(queues: Queues, due: Due, attempts: list[Attempted], now: int, tx: Connection) -> None:
    record(tx, queues, due.subscription, due.retries, attempts, now)
