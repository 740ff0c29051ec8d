"""Deliver to the endpoint of one subscription; a step of the job `delivery_rows.DELIVER`.

A step reads a few due deliveries, tries them concurrently, and stores the outcomes in one
transaction. If the process dies in between, another process repeats the step: an endpoint may get a
message twice, with the same ``webhook-id``, but always at least once.

Slow endpoints must not occupy all job slots of a worker. A *turn* is the attempts of one step at
its endpoint. An endpoint that was not slow recently may always begin a turn. If the turn lasts
longer than `SLOW_SECONDS`, the endpoint counts as slow for a while, and the turn continues only if
a slot for slow endpoints is free; otherwise the turn gives up. An endpoint that was slow recently
begins a turn only if such a slot is free. So a turn without such a slot frees its job slot after
`SLOW_SECONDS`, and an endpoint that was slow once waits a few seconds at most for its next turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from cloudcore.db.base import Connection
from cloudcore.jobs.backoff import StaggeredRetries
from cloudcore.jobs.kinds import Done, Next
from cloudcore.jobs.queue import Job, later
from cloudcore.notifications import delivery_rows, envelope, subscriptions
from cloudcore.notifications.attempts import (
    BACKLOG_FULL,
    DELIVERED,
    Attempted,
    AttemptOutcome,
    record,
)
from cloudcore.notifications.delivery_policy import Retries, merged
from cloudcore.notifications.delivery_rows import wake
from cloudcore.notifications.envelope import RecipientLinks
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.notifications.sending import mail_of, post
from cloudcore.notifications.topic import (
    MAX_BACKLOG,
    MAX_BACKLOG_BYTES,
    PendingDelivery,
    Subscription,
    Topic,
)
from cloudcore.outbound.mail import MailRefused

SLOW_SECONDS: Final = 1.0
REMEMBERED_TURNS: Final = 5
"""An endpoint that was slow once counts as slow for this many times `SLOW_SECONDS`."""
LONGEST_SECONDS: Final = 300.0
"""How long an endpoint counts as slow at most. The time doubles each time that the endpoint is slow
again."""
MOST_SLOW: Final = 48
"""Concurrent slow turns in a process, which should have some more slots than these."""
MOST_OF_ORIGIN: Final = 4
"""Concurrent slow turns at one origin."""
MOST_OF_ACCOUNT: Final = 24
"""Concurrent slow turns at the endpoints of one account."""
_MOST_REMEMBERED: Final = 10_000


class _Known(NamedTuple):
    until: float
    seconds: float


@dataclass(eq=False, slots=True)
class Turn:
    """The attempts of one step at its endpoint."""

    endpoint: str
    origin: str
    account_id: str | None
    began: float
    is_slow: bool


class EndpointTurns:
    """The current turns at endpoints, and the endpoints that were slow recently."""

    def __init__(
        self,
        *,
        seconds: Callable[[], float] = time.monotonic,
        slow_seconds: float = SLOW_SECONDS,
        most_slow: int = MOST_SLOW,
    ) -> None:
        self.slow_seconds = slow_seconds
        self._seconds = seconds
        self._most_slow = most_slow
        self._slow: set[Turn] = set()
        self._remembered: dict[str, _Known] = {}
        """Endpoints that were slow, and have had no fast turn since; the latest last."""
        self.pause: Final = StaggeredRetries(seconds, slow_seconds).pause
        """Returns the seconds after which the next endpoint without a slot should try again."""

    def begin(self, endpoint: str, origin: str, account_id: str | None) -> Turn | None:
        """Begin a turn; return None if the endpoint is slow and no slot for slow endpoints is free.

        `account_id` is None for an origin that all accounts share, which always counts as slow.
        """
        now = self._seconds()
        known = self._remembered.get(endpoint)
        is_slow = account_id is None or (known is not None and known.until > now)
        if is_slow and not self._has_room(origin, account_id):
            return None
        turn = Turn(endpoint, origin, account_id, now, is_slow)
        if is_slow:
            self._slow.add(turn)
        return turn

    def may_go_on(self, turn: Turn) -> bool:
        """Mark the endpoint of a turn that has lasted `slow_seconds` as slow.

        Return True if the turn has, or gets, a slot for slow endpoints. Return False if the turn
        must give up.
        """
        if turn.account_id is not None:
            self._remember(turn.endpoint)
        if not turn.is_slow and self._has_room(turn.origin, turn.account_id):
            turn.is_slow = True
            self._slow.add(turn)
        return turn.is_slow

    def end(self, turn: Turn) -> None:
        """End a turn; if the turn was fast, its endpoint no longer counts as slow."""
        self._slow.discard(turn)
        if self._seconds() - turn.began < self.slow_seconds:
            self._remembered.pop(turn.endpoint, None)

    def _has_room(self, origin: str, account_id: str | None) -> bool:
        if sum(turn.origin == origin for turn in self._slow) >= MOST_OF_ORIGIN:
            return False
        of_account = sum(turn.account_id == account_id for turn in self._slow)
        return account_id is None or (
            of_account < MOST_OF_ACCOUNT and len(self._slow) < self._most_slow
        )

    def _remember(self, endpoint: str) -> None:
        known = self._remembered.pop(endpoint, None)
        seconds = self.slow_seconds * REMEMBERED_TURNS if known is None else 2 * known.seconds
        seconds = min(seconds, LONGEST_SECONDS)
        self._remembered[endpoint] = _Known(self._seconds() + seconds, seconds)
        if len(self._remembered) > _MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]


BATCH: Final = 8
"""How many deliveries to one endpoint are tried concurrently."""
_IDLE_SECONDS: Final = 3600
"""How long a job stays after its last delivery; otherwise each message would leave a finished
job."""
_NOW_SECONDS: Final = 1e-9
"""A pause that gives up the worker's slot to other jobs that are due."""
_MAIL_SECONDS: Final = 60
_SURPLUS: Final = 100
"""How many deliveries one step gives up at most because too many wait."""
_log = logging.getLogger(__name__)


class DueDeliveries(NamedTuple):
    """The deliveries that are due now, with their subscription and topic."""

    subscription: Subscription
    topic: Topic
    deliveries: list[PendingDelivery]
    is_too_much: bool = False
    """True if too many deliveries wait for the endpoint; then `deliveries` are to be given up."""

    @property
    def retries(self) -> Retries:
        """Return the retry settings of the subscription."""
        return merged(self.topic.delivery_policy, self.subscription.delivery_policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverer:
    """Delivers to endpoints; one instance per process."""

    needs: NotificationNeeds
    turns: EndpointTurns = field(default_factory=EndpointTurns)

    async def step(self, job: Job) -> Next | Done:
        """Try the due deliveries of a subscription; the step of the job `DELIVER`."""
        assert job.account_id is not None
        account_id, subscription_id = job.account_id, job.arguments["subscription_id"]
        now = self.needs.clock()
        due = await self.needs.database.read(_list_due, account_id, subscription_id, now)
        if due is None:
            return Done()
        if not due.deliveries:
            is_idle = job.cursor == "idle"
            again = partial(_look_again, account_id, subscription_id, now)
            return Done(again) if is_idle else Next("idle", again, delay_seconds=_IDLE_SECONDS)
        if due.is_too_much:
            failed = [each._replace(outcome=BACKLOG_FULL) for each in self._unsent(due)]
            return self._recorded(due, failed, 0)
        if due.subscription.protocol == "queue":
            return self._recorded(due, self._unsent(due), 0)
        turn = self._turn(due.subscription)
        if turn is None:
            return Next(None, delay_seconds=self.turns.pause())
        try:
            attempts = await self._try(due, turn)
        finally:
            self.turns.end(turn)
        has_given_up = len(attempts) < len(due.deliveries)
        return self._recorded(due, attempts, self.turns.pause() if has_given_up else 0)

    def _recorded(self, due: DueDeliveries, attempts: Sequence[Attempted], pause: float) -> Next:
        """Return the result of a step; when the result is committed, it stores the attempts.

        The job runs again after `pause` seconds. If `pause` is 0, it runs again at once if more
        deliveries may be due, and otherwise after `_IDLE_SECONDS`.
        """
        queues, now = self.needs.queues, self.needs.clock()
        not_before = later(now, pause)
        if not pause:
            pause = _NOW_SECONDS if len(due.deliveries) >= BATCH else _IDLE_SECONDS

        def recorded(tx: Connection) -> None:
            record(tx, queues, due.subscription, due.retries, attempts, now, not_before)

        return Next(None, recorded, delay_seconds=pause)

    def _turn(self, subscription: Subscription) -> Turn | None:
        """Begin a turn at an endpoint, or return None if there is no slot.

        All mail has the same origin, as one server accepts all of it.
        """
        if subscription.protocol == "email":
            return self.turns.begin(subscription.id, "email", None)
        origin = "/".join(subscription.endpoint.split("/", 3)[:3])
        return self.turns.begin(subscription.id, origin, subscription.account_id)

    async def _try(self, due: DueDeliveries, turn: Turn) -> list[Attempted]:
        """Try deliveries; return the attempts that ended before the turn had to give up."""
        unsent = self._unsent(due)
        if due.subscription.protocol == "email":
            return await self._send_mails(due, unsent)
        return await self._post_all(due, unsent, turn)

    async def _post_all(
        self, due: DueDeliveries, unsent: Sequence[Attempted], turn: Turn
    ) -> list[Attempted]:
        """Post deliveries to a webhook concurrently.

        Return the attempts that ended before the turn had to give up.
        """
        under_way = [asyncio.create_task(self._one(self._post, due, each)) for each in unsent]
        try:
            _, waiting = await asyncio.wait(under_way, timeout=self.turns.slow_seconds)
            if waiting and self.turns.may_go_on(turn):
                await asyncio.wait(waiting)
        finally:
            for task in under_way:
                task.cancel()
            ended = await asyncio.gather(*under_way, return_exceptions=True)
        return [each for each in ended if isinstance(each, Attempted)]

    async def _send_mails(self, due: DueDeliveries, unsent: Sequence[Attempted]) -> list[Attempted]:
        """Send mails one after another, as a turn uses one connection to the mail server.

        No mail is begun after `_MAIL_SECONDS`. A mail that was begun is finished, as the server may
        already have accepted it.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + _MAIL_SECONDS
        return [await self._one(self._send_mail, due, each) for each in unsent if loop.time() < end]

    async def _one(self, send: _Send, due: DueDeliveries, unsent: Attempted) -> Attempted:
        try:
            return unsent._replace(outcome=await send(due, unsent))
        except Exception:  # noqa: BLE001 - otherwise it would block the subscription's other deliveries
            _log.exception("an attempt to deliver %s failed", unsent.delivery.id)
            outcome = AttemptOutcome("retry", "INTERNAL_ERROR", "the attempt failed unexpectedly")
            return unsent._replace(outcome=outcome)

    async def _post(self, due: DueDeliveries, unsent: Attempted) -> AttemptOutcome:
        raw = unsent.delivery.publication if due.subscription.raw_message_delivery else None
        seconds = due.retries.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await post(self.needs, due.subscription, unsent.envelope, raw)
        except TimeoutError:
            return AttemptOutcome(
                "retry", "ENDPOINT_TIMEOUT", f"no answer within {seconds} seconds"
            )

    async def _send_mail(self, due: DueDeliveries, unsent: Attempted) -> AttemptOutcome:
        mail = self.needs.mail
        if mail is None:
            return AttemptOutcome("retry", "MAIL_NOT_CONFIGURED", "this install sends no mail")
        try:
            await mail.send(mail_of(unsent.envelope, due.subscription, mail.sender))
        except MailRefused as error:
            return AttemptOutcome(
                "failed" if error.is_permanent else "retry", "MAIL_REFUSED", str(error)
            )
        return DELIVERED

    def _unsent(self, due: DueDeliveries) -> list[Attempted]:
        return [Attempted(each, self._envelope(due, each), None) for each in due.deliveries]

    def _envelope(self, due: DueDeliveries, delivery: PendingDelivery) -> dict[str, Any]:
        of, links = (
            (due.topic, due.subscription),
            RecipientLinks(self.needs.keyring, self.needs.url),
        )
        if delivery.publication is None:
            return envelope.confirmation(*of, delivery.id, delivery.created_at, links)
        return envelope.notification(*of, delivery.publication, links)


_Send = Callable[[DueDeliveries, Attempted], Awaitable[AttemptOutcome]]


def _list_due(
    tx: Connection, account_id: str, subscription_id: str, now: int
) -> DueDeliveries | None:
    found = subscriptions.find_with_topic(tx, account_id, subscription_id)
    if found is None:
        return None
    count, size = delivery_rows.backlog(tx, account_id, subscription_id, MAX_BACKLOG + _SURPLUS)
    surplus = max(count - MAX_BACKLOG, BATCH if size > MAX_BACKLOG_BYTES else 0)
    if surplus > 0:
        due = delivery_rows.list_oldest(tx, account_id, subscription_id, surplus)
    else:
        due = delivery_rows.list_due(tx, account_id, subscription_id, now, BATCH)
    if found[0].status == "confirmed":
        due = [each for each in due if each.publication is not None]
    return DueDeliveries(*found, due, is_too_much=surplus > 0)


def _look_again(account_id: str, subscription_id: str, now: int, tx: Connection) -> None:
    """Wake the job if deliveries are left, as some may have been inserted meanwhile."""
    due_at = delivery_rows.first_due(tx, account_id, subscription_id)
    if due_at is not None:
        wake(tx, account_id, subscription_id, now, due_at)
