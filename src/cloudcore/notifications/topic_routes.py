"""``/v1/topics``: create, show, change and delete topics, and publish to them."""

from __future__ import annotations

from typing import Final

from litestar import delete, get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import UNSET

from cloudcore.db.base import Connection
from cloudcore.notifications import topics
from cloudcore.notifications.delivery_policy import stored
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.notifications.records import Topic, topic_crn
from cloudcore.notifications.rules import check_message, check_topic_name
from cloudcore.notifications.topic_rows import count_topics, list_topics
from cloudcore.notifications.topic_shapes import (
    CreateTopic,
    ManyTopics,
    Message,
    OneTopic,
    Published,
    UpdateTopic,
    one_topic,
    topic_record,
)
from cloudcore.resource_names import check_tags
from cloudcore.web.app import Needs
from cloudcore.web.callers import account_of
from cloudcore.web.context import Reply, RequestContext
from cloudcore.web.listing import read_page
from cloudcore.web.pagination import PageQuery
from cloudcore.wire import changes_of

PATH: Final = "/v1/topics"
ONE: Final = PATH + "/{topic_id:str}"


async def authorized_topic(ctx: RequestContext, topic_id: str) -> Topic:
    """Return a topic of the caller's account; raise `AccessDenied` if policies refuse."""
    region = ctx.settings.region
    found = await ctx.database.read(topics.get_topic, account_of(ctx), region, topic_id)
    ctx.authorize(found.crn)
    return found


@post(
    PATH,
    status_code=201,
    opt={"action": "notifications:CreateTopic", "idempotent": True, "statuses": (409,)},
)
async def create_topic(
    data: JSONBody[CreateTopic], ctx: NamedDependency[RequestContext]
) -> Reply[OneTopic]:
    """Create a topic. An account has at most 1,000."""
    account_id, region = account_of(ctx), ctx.settings.region
    check_topic_name(data.name)
    check_tags(data.tags)
    ctx.authorize(topic_crn(region, account_id, data.name))
    now = ctx.clock()
    topic = Topic(
        id=ctx.new_id(),
        account_id=account_id,
        region=region,
        name=data.name,
        description=data.description,
        tags=data.tags,
        delivery_policy=stored(data.delivery_policy),
        created_at=now,
        updated_at=now,
    )
    return await ctx.commit(
        topics.create_topic, topic, wrap=one_topic, location=lambda made: f"{PATH}/{made.id}"
    )


@get(PATH, opt={"action": "notifications:ListTopics", "query": PageQuery})
async def list_account_topics(ctx: NamedDependency[RequestContext]) -> ManyTopics:
    """List the account's topics, oldest first."""
    account_id, region = account_of(ctx), ctx.settings.region
    ctx.authorize(topic_crn(region, account_id, "*"))
    found, meta = await read_page(
        ctx,
        ctx.query(PageQuery),
        list_topics,
        count_topics,
        account_id,
        region,
        key=lambda topic: topic.id,
    )
    return ManyTopics(topics=[topic_record(each) for each in found], meta=meta)


@get(ONE, opt={"action": "notifications:GetTopic"})
async def get_topic(topic_id: FromPath[str], ctx: NamedDependency[RequestContext]) -> OneTopic:
    """Return a topic."""
    return one_topic(await authorized_topic(ctx, topic_id))


@patch(ONE, opt={"action": "notifications:UpdateTopic"})
async def update_topic(
    topic_id: FromPath[str], data: JSONBody[UpdateTopic], ctx: NamedDependency[RequestContext]
) -> Reply[OneTopic]:
    """Change the description, the tags or the delivery policy of a topic."""
    topic = await authorized_topic(ctx, topic_id)
    changes = changes_of(data)
    if data.tags is not UNSET:
        check_tags(data.tags)
    if data.delivery_policy is not UNSET:
        changes["delivery_policy"] = stored(data.delivery_policy)
    return await ctx.commit(topics.update_topic, topic, changes, ctx.clock(), wrap=one_topic)


@delete(ONE, opt={"action": "notifications:DeleteTopic"})
async def delete_topic(
    topic_id: FromPath[str],
    ctx: NamedDependency[RequestContext],
    needs: Needs[NotificationNeeds],
) -> None:
    """Delete a topic with its subscriptions; what is not delivered yet is dropped."""
    topic = await authorized_topic(ctx, topic_id)
    await topics.drop_messages(needs.database, topic)
    await ctx.database.write(topics.delete_topic, topic, ctx.clock())


@post(
    ONE + "/messages",
    status_code=202,
    opt={"action": "notifications:Publish", "idempotent": True},
)
async def publish_message(
    topic_id: FromPath[str],
    data: JSONBody[Message],
    ctx: NamedDependency[RequestContext],
    needs: Needs[NotificationNeeds],
) -> Reply[Published]:
    """Publish a message: it is delivered, at least once, to each subscription whose filter fits.

    It is refused while 200,000 deliveries, or 1 GiB, wait for the account's subscriptions.
    """
    check_message(data.message, data.subject, data.attributes)
    topic = await authorized_topic(ctx, topic_id)
    now = ctx.clock()

    is_counted = needs.room.is_due(topic.account_id, now)

    def publish(tx: Connection) -> str:
        return topics.publish(
            tx,
            topic,
            data.message,
            data.subject,
            data.attributes,
            now,
            content_type=data.content_type,
            checks_room=is_counted,
        )

    # Messages pass by the thousand; the audit log has who made, changed and deleted their topic.
    reply = await ctx.commit(
        publish, wrap=lambda made: Published(message_id=made), told=lambda _: None
    )
    if is_counted:
        needs.room.note(topic.account_id, now)
    return reply


HANDLERS: Final = (
    create_topic,
    list_account_topics,
    get_topic,
    update_topic,
    delete_topic,
    publish_message,
)
