"""``/v1/topics/{topic_id}/subscriptions``: subscriptions, and the signing secrets of webhooks."""

from __future__ import annotations

from typing import Final, NamedTuple

from litestar import delete, get, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, structs

from cloudcore.db.base import Connection
from cloudcore.notifications import envelope, subscribing
from cloudcore.notifications.delivery_policy import stored
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.notifications.subscriptions import (
    SUBSCRIPTIONS,
    DeadLetters,
    NewSubscription,
    SigningSecret,
    Subscribe,
    UpdateSubscription,
    count_subscriptions,
    list_subscriptions,
)
from cloudcore.notifications.topic import (
    SEND_MESSAGE,
    TOPIC,
    WEBHOOKS,
    Subscription,
    bad_endpoint,
    check_filter,
    check_raw,
    mailbox,
    webhook_url,
)
from cloudcore.notifications.topics import TOPICS
from cloudcore.outbound.destinations import NotAllowed
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import ResponseBody, changes_of, rfc3339

PATH: Final = TOPIC.path_of_one + "/subscriptions"
ONE: Final = PATH + "/{subscription_id:str}"


class _OwnQueues(NamedTuple):
    """Finds queues of an account to which the caller may send."""

    ctx: RequestContext
    needs: NotificationNeeds
    account_id: str

    def crn_of(self, tx: Connection, reference: str, field: str) -> str:
        """Return the CRN of the queue that a field of the request refers to."""
        authorize = self.ctx.right_to(SEND_MESSAGE)
        queues = self.needs.queues
        return queues.resolve(tx, self.account_id, reference, authorize, field=field).crn

    def dead_letters(self, tx: Connection, policy: DeadLetters | None) -> str | None:
        """Return the CRN of the dead-letter queue, or None if there is to be none."""
        if policy is None:
            return None
        return self.crn_of(tx, policy.dead_letter_queue, "redrive_policy.dead_letter_queue")


async def _authorized(ctx: RequestContext, topic_id: str, subscription_id: str) -> Subscription:
    """Return a subscription of the caller's account if the route's action is allowed on its topic.

    Raise `SubscriptionMissing` if the topic has no such subscription.
    """
    topic = await TOPICS.authorized(ctx, topic_id)
    return await ctx.database.read(
        subscribing.get_subscription, topic.account_id, topic.id, subscription_id
    )


@post(
    PATH,
    status_code=201,
    opt={"action": "notifications:Subscribe", "idempotent": True, "statuses": (429,)},
)
async def subscribe(
    topic_id: FromPath[str],
    data: JSONBody[Subscribe],
    ctx: Context,
    needs: Needs[NotificationNeeds],
) -> Reply[NewSubscription]:
    """Subscribe an endpoint to a topic; its owner must confirm it, unless it is a queue.

    For a queue, also one for dead letters, the caller needs `queue:SendMessage`. If the topic
    already has a subscription to this endpoint, that subscription is returned unchanged, without
    its secret. A topic has at most 1,000 subscriptions. An endpoint is asked to confirm at most 10
    times an hour, and an account's endpoints 300 times; then it is 429.
    """
    check_raw(data.protocol, is_raw=data.raw_message_delivery)
    check_filter(data.filter_policy)
    topic = await TOPICS.authorized(ctx, topic_id)
    endpoint = await _endpoint(needs, data)
    subscription_id, now = ctx.new_id(), ctx.clock()
    secret = envelope.new_secret() if data.protocol in WEBHOOKS else None
    wanted = Subscription(
        id=subscription_id,
        account_id=topic.account_id,
        region=topic.region,
        topic_id=topic.id,
        protocol=data.protocol,
        endpoint=endpoint,
        status="confirmed",
        filter_policy=data.filter_policy,
        raw_message_delivery=data.raw_message_delivery,
        delivery_policy=stored(data.delivery_policy),
        created_at=now,
        updated_at=now,
        active_since=now,
        signing_secret=envelope.seal_secret(ctx.keyring, subscription_id, secret)
        if secret
        else None,
    )
    if data.protocol != "queue":
        wanted = subscribing.pending(wanted, ctx.keyring, now)

    queues = _OwnQueues(ctx, needs, topic.account_id)

    def finish(tx: Connection, new: Subscription) -> Subscription:
        return structs.replace(new, dead_letter_queue=queues.dead_letters(tx, data.redrive_policy))

    def create(tx: Connection) -> Subscription:
        new = wanted
        if data.protocol == "queue":
            new = structs.replace(wanted, endpoint=queues.crn_of(tx, data.endpoint, "endpoint"))
        return subscribing.find_or_create(tx, topic, new, finish, now)

    def wrap(made: Subscription) -> NewSubscription:
        record = SUBSCRIPTIONS.bodies.shown(SUBSCRIPTIONS.as_of(made, now))
        is_told = made.id == subscription_id and secret is not None
        return NewSubscription(subscription=record, signing_secret=secret if is_told else UNSET)

    path = PATH.replace("{topic_id:str}", topic.id)
    return await ctx.commit(
        create,
        wrap=wrap,
        location=lambda made: f"{path}/{made.id}",
        details=lambda made: {} if made.id == subscription_id else None,
    )


@SUBSCRIPTIONS.answers.lists(PATH, "notifications:ListSubscriptions")
async def list_topic_subscriptions(topic_id: FromPath[str], ctx: Context) -> ResponseBody:
    """List the subscriptions to a topic, oldest first."""
    topic = await TOPICS.authorized(ctx, topic_id)
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        list_subscriptions,
        count_subscriptions,
        topic.account_id,
        topic.id,
        key=lambda each: each.id,
    )
    bodies, now = SUBSCRIPTIONS.bodies, ctx.clock()
    shown = [bodies.shown(SUBSCRIPTIONS.as_of(each, now)) for each in found]
    return bodies.answers.many(shown, meta)


@SUBSCRIPTIONS.answers.gets(ONE, "notifications:GetSubscription")
async def get_subscription(
    topic_id: FromPath[str], subscription_id: FromPath[str], ctx: Context
) -> ResponseBody:
    """Return a subscription, with the faults of its deliveries."""
    found = await _authorized(ctx, topic_id, subscription_id)
    return SUBSCRIPTIONS.at(ctx.clock())(found)


@SUBSCRIPTIONS.answers.updates(ONE, "notifications:UpdateSubscription")
async def update_subscription(
    topic_id: FromPath[str],
    subscription_id: FromPath[str],
    data: JSONBody[UpdateSubscription],
    ctx: Context,
    needs: Needs[NotificationNeeds],
) -> Reply[ResponseBody]:
    """Change the settings of a subscription; protocol and endpoint are fixed."""
    found = await _authorized(ctx, topic_id, subscription_id)
    changes = changes_of(data, Subscribe)
    if "filter_policy" in changes:
        check_filter(changes["filter_policy"])
    if data.delivery_policy is not UNSET:
        changes["delivery_policy"] = stored(data.delivery_policy)
    changes.pop("redrive_policy", None)
    now, queues = ctx.clock(), _OwnQueues(ctx, needs, found.account_id)

    def update(tx: Connection) -> Subscription:
        if data.redrive_policy is not UNSET:
            changes["dead_letter_queue"] = queues.dead_letters(tx, data.redrive_policy)
        return SUBSCRIPTIONS.update(tx, found, changes, now)

    return await ctx.commit(
        update, wrap=SUBSCRIPTIONS.at(now), details=SUBSCRIPTIONS.details_if_changed(now)
    )


@delete(ONE, opt={"action": "notifications:DeleteSubscription"})
async def delete_subscription(
    topic_id: FromPath[str], subscription_id: FromPath[str], ctx: Context
) -> None:
    """Delete a subscription: nothing more is delivered, not even messages published before."""
    found = await _authorized(ctx, topic_id, subscription_id)
    await ctx.database.write(subscribing.delete_subscription, found)


async def _endpoint(needs: NotificationNeeds, data: Subscribe) -> str:
    """Return the normalized endpoint; a reference to a queue is returned unchanged.

    Raise `InvalidInput` if the endpoint is malformed, or may not be called.
    """
    if data.protocol == "queue":
        return data.endpoint
    if data.protocol == "email":
        if needs.mail is None:
            raise bad_endpoint("this install sends no mail", "not_available")
        return mailbox(data.endpoint)
    try:
        return webhook_url(data.protocol, await needs.client.check_destination(data.endpoint))
    except NotAllowed as error:
        raise bad_endpoint(str(error), "not_allowed") from None


SECRET: Final = ONE + "/signing-secret"


@get(SECRET, opt={"action": "notifications:GetSigningSecret"})
async def get_signing_secret(
    topic_id: FromPath[str], subscription_id: FromPath[str], ctx: Context
) -> SigningSecret:
    """Return the secrets that sign the deliveries to a webhook."""
    found = await _authorized(ctx, topic_id, subscription_id)
    subscribing.check_has_secret(found)
    return _secret(ctx, found)


@post(
    SECRET + "/rotate",
    status_code=200,
    opt={"action": "notifications:RotateSigningSecret", "idempotent": True},
)
async def rotate_signing_secret(
    topic_id: FromPath[str], subscription_id: FromPath[str], ctx: Context
) -> Reply[SigningSecret]:
    """Give a webhook a new secret; for 24 hours the previous one also signs each delivery."""
    found = await _authorized(ctx, topic_id, subscription_id)
    sealed = envelope.seal_secret(ctx.keyring, found.id, envelope.new_secret())
    return await ctx.commit(
        subscribing.rotate_secret,
        found,
        sealed,
        ctx.clock(),
        wrap=lambda changed: _secret(ctx, changed),
    )


@SUBSCRIPTIONS.answers.changes(
    ONE + "/resend-confirmation",
    "notifications:ResendConfirmation",
    status=202,
    statuses=(409, 429),
)
async def resend_confirmation(
    topic_id: FromPath[str], subscription_id: FromPath[str], ctx: Context
) -> Reply[ResponseBody]:
    """Ask the endpoint again to confirm, with a new token; the previous token becomes invalid.

    An endpoint is asked at most 10 times an hour, and an account's endpoints 300 times; then it is
    429.
    """
    found = await _authorized(ctx, topic_id, subscription_id)
    now = ctx.clock()
    return await ctx.commit(
        subscribing.resend_confirmation, found, ctx.keyring, now, wrap=SUBSCRIPTIONS.at(now)
    )


def _secret(ctx: RequestContext, found: Subscription) -> SigningSecret:
    assert found.signing_secret is not None
    until, previous = found.previous_until, None
    if until is not None and found.previous_secret is not None and until > ctx.clock():
        previous = envelope.open_secret(ctx.keyring, found.id, found.previous_secret)
    return SigningSecret(
        signing_secret=envelope.open_secret(ctx.keyring, found.id, found.signing_secret),
        previous_signing_secret=previous,
        previous_expires_at=None if previous is None or until is None else rfc3339(until),
    )
