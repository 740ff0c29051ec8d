"""``/v1/event-rules``: rules that send events of the account's resources to topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from cloudcore.db.base import Connection
from cloudcore.jobs.faults import Fault
from cloudcore.resource_names import Crn, Uuid
from cloudcore.resources.methods import Methods
from cloudcore.web.answers import RecordAnswers, answer_of, deletes
from cloudcore.web.app import Context, Needs
from cloudcore.web.bodies import FaultRecord, fault_record
from cloudcore.web.caller_kinds import account_of
from cloudcore.web.context import Reply
from cloudcore.web.pagination import PageQuery, read_page
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, or_absent
from registry.metadata.event_rule import EVENT_RULE, EventRule
from registry.metadata.event_rules import EVENT_RULES
from registry.services import events
from registry.services.context import ServiceContext
from registry.services.events import NamedTopic
from registry.services.resource_kinds import PUBLISH

_PATH: Final = EVENT_RULE.path
_ONE: Final = EVENT_RULE.path_of_one

EventTypes = Annotated[list[str], Meta(min_length=1, max_length=20)]


class CreateEventRule(RequestBody):
    """A new event rule."""

    topic: Annotated[str, Meta(max_length=512)]
    """Id, name or CRN of a topic of the account, to which the caller must be allowed to publish."""
    event_types: EventTypes
    """Such as ``storage.object.created``; ``registry.tag.*`` matches all events of tags."""
    repository_prefix: str = ""
    """Prefix of the names of repositories; empty: all of the account's, and resources of other
    services."""


class TopicReference(ResponseBody):
    """A reference to a topic, which may have been deleted."""

    crn: str
    name: str
    id: Uuid | UnsetType = UNSET
    """Absent if there is no such topic; see the rule's `faults`."""


class EventRuleAnswer(ResponseBody):
    """An event rule."""

    id: Uuid
    crn: str
    topic: TopicReference
    event_types: Sequence[str]
    repository_prefix: str
    faults: Sequence[FaultRecord]
    """`TOPIC_MISSING`: there is no such topic. Events wait 30 days for a topic of this name; of
    more than 10,000 waiting events, the oldest are dropped. `details` has the numbers."""
    created_at: RFC3339


def _faults(rule: EventRule, topic: NamedTopic) -> list[FaultRecord]:
    if topic.id is not None:
        return []
    first_at = topic.missing_since or rule.created_at
    fault = Fault(
        "TOPIC_MISSING",
        "there is no such topic; events wait for one of its name",
        first_at,
        topic.missing_at or first_at,
        max(1, topic.waiting + topic.dropped),
    )
    dropped = {"dropped": str(topic.dropped)} if topic.dropped else {}
    return [fault_record(fault, "error", {"waiting": str(topic.waiting), **dropped})]


def _answer(rule: EventRule, topic: NamedTopic) -> EventRuleAnswer:
    return answer_of(
        EventRuleAnswer,
        rule,
        crn=EVENT_RULE.crn_of(rule),
        topic=TopicReference(
            id=or_absent(topic.id), crn=rule.topic, name=Crn.parse(rule.topic).name
        ),
        faults=_faults(rule, topic),
    )


_METHODS: Final = Methods(EVENT_RULES)
_RULE: Final = RecordAnswers(EventRuleAnswer, "event_rule", _answer)


@_RULE.creates(_PATH, "registry:PutEventRule", statuses=(404, 409))
async def create_event_rule(
    data: JSONBody[CreateEventRule], ctx: Context, needs: Needs[ServiceContext]
) -> Reply[ResponseBody]:
    """Send events to a topic that exists, to which the caller must be allowed to publish."""
    account_id = account_of(ctx)
    rule_id = ctx.new_id()
    ctx.authorize(EVENT_RULE.crn(ctx.settings.region, account_id, rule_id))
    known = (*events.EVENT_TYPES, *needs.other_event_types)
    events.check_rule(data.event_types, data.repository_prefix, known)
    topic = await ctx.database.read(
        needs.resolve_topic, account_id, data.topic, ctx.right_to(PUBLISH)
    )
    now = ctx.clock()
    rule = EventRule(
        id=rule_id,
        account_id=account_id,
        region=ctx.settings.region,
        topic=topic,
        event_types=tuple(dict.fromkeys(data.event_types)),
        repository_prefix=data.repository_prefix,
        created_at=now,
        updated_at=now,
    )

    def create(tx: Connection) -> tuple[EventRule, NamedTopic]:
        return events.create_rule(tx, rule, needs.find_topics)

    return await ctx.commit(
        create,
        wrap=lambda made: _RULE.one(*made),
        location=lambda made: f"{_PATH}/{made[0].id}",
    )


@_RULE.lists(_PATH, "registry:DescribeEventRules")
async def list_event_rules(ctx: Context, needs: Needs[ServiceContext]) -> ResponseBody:
    """List the account's event rules, the oldest first."""
    account_id, region = account_of(ctx), ctx.settings.region
    ctx.authorize(EVENT_RULE.crn(region, account_id, "*"))
    query, rows, count = ctx.query(PageQuery), EVENT_RULES.list, EVENT_RULES.count
    found, meta = await read_page(
        ctx, query, rows, count, account_id, region, (), key=lambda rule: rule.id
    )
    named = sorted({rule.topic for rule in found})
    topics = await ctx.database.read(needs.find_topics, account_id, named)
    return _RULE.many([_answer(rule, topics[rule.topic]) for rule in found], meta)


@_RULE.gets(_ONE, "registry:DescribeEventRules")
async def get_event_rule(
    event_rule_id: FromPath[str], ctx: Context, needs: Needs[ServiceContext]
) -> ResponseBody:
    """Return an event rule; `faults` tells if its topic was deleted."""
    rule = await _METHODS.authorized(ctx, event_rule_id)
    topics = await ctx.database.read(needs.find_topics, rule.account_id, [rule.topic])
    return _RULE.one(rule, topics[rule.topic])


@deletes(_ONE, "registry:DeleteEventRule")
async def delete_event_rule(event_rule_id: FromPath[str], ctx: Context) -> None:
    """Delete an event rule; events from before the deletion are still delivered."""
    rule = await _METHODS.authorized(ctx, event_rule_id)
    await ctx.database.write(events.delete_rule, rule, ctx.clock())
