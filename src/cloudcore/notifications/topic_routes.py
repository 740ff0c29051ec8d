"""``/v1/topics``: the standard methods, and publishing."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from litestar import delete, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta, field

from cloudcore.notifications import publishing
from cloudcore.notifications.needs import NotificationNeeds
from cloudcore.notifications.topic import TOPIC, check_message
from cloudcore.notifications.topics import TOPICS
from cloudcore.resource_names import Uuid
from cloudcore.web.app import Context, Needs
from cloudcore.web.context import Reply
from cloudcore.wire import RequestBody, ResponseBody

_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_QUOTED: Final = r'"[ !#-\[\]-~]*"'
ContentType = Annotated[
    str,
    Meta(
        max_length=256,
        pattern=rf"^{_WORD}/{_WORD}(?: *; *{_WORD}=(?:{_WORD}|{_QUOTED}))*$(?!\n)",
    ),
]
"""A media type with parameters (RFC 9110 §8.3.1)."""


class Message(RequestBody):
    """A message to publish."""

    message: Annotated[str, Meta(min_length=1)]
    """As JSON, with subject and attributes, at most 245,760 bytes."""
    subject: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    """The values that filters of subscriptions compare; at most 20."""
    content_type: ContentType | None = None
    """Media type under which webhooks get it raw; `text/plain` if it has none."""


class Published(ResponseBody):
    """The id of a message that will be delivered."""

    message_id: Uuid


@delete(TOPIC.path_of_one, opt={"action": "notifications:DeleteTopic"})
async def delete_topic(topic_id: FromPath[str], ctx: Context) -> None:
    """Delete a topic with its subscriptions; messages that are not delivered yet are dropped."""
    topic = await TOPICS.authorized(ctx, topic_id)
    await publishing.drop_messages(ctx.database, topic)
    await ctx.database.write(publishing.delete_topic, topic, ctx.clock())


@post(
    TOPIC.path_of_one + "/messages",
    status_code=202,
    opt={"action": "notifications:Publish", "idempotent": True},
)
async def publish_message(
    topic_id: FromPath[str], data: JSONBody[Message], ctx: Context, needs: Needs[NotificationNeeds]
) -> Reply[Published]:
    """Publish a message: it is delivered, at least once, to each subscription whose filter matches.

    It is refused while 200,000 deliveries, or 1 GiB, wait for the account's subscriptions.
    """
    check_message(data.message, data.subject, data.attributes)
    topic = await TOPICS.authorized(ctx, topic_id)
    now = ctx.clock()
    # Messages pass by the thousand; the audit log has who made, changed and deleted their topic.
    with needs.room.checking(topic.account_id, now) as is_counted:
        return await ctx.commit(
            partial(publishing.publish, content_type=data.content_type, checks_room=is_counted),
            topic,
            data.message,
            data.subject,
            data.attributes,
            now,
            wrap=lambda made: Published(message_id=made),
            details=lambda _: None,
        )
