"""Events of the registry on their way to webhooks: by rules, topics and subscriptions."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from tests.databases import on_both_databases
from tests.integration.keyed_requests import push_index
from tests.integration.notifications_world import World


async def rules(notified: World) -> Any:  # noqa: ANN401
    return (await notified.ask("GET", "/v1/event-rules")).json()["event_rules"]


def told(notified: World) -> list[dict[str, Any]]:
    """Return the events that the webhook was told."""
    return [json.loads(each.envelope["message"]) for each in notified.hook.of("notification")]


async def test_a_pushed_image_is_posted_to_a_webhook(notified: World) -> None:
    topic = await notified.topic("pushes")
    made = await notified.confirmed(topic, filter_policy={"repository": ["app"]})
    rule = {"topic": topic["crn"], "event_types": ["registry.image.pushed"]}
    assert (await notified.ask("POST", "/v1/event-rules", rule)).status_code == 201
    digest = await push_index(notified.served)
    await notified.deliver()
    (got,) = notified.hook.of("notification")
    event = json.loads(got.envelope["message"])
    attributes, pushed = got.envelope["attributes"], "registry.image.pushed"
    assert got.envelope["subject"] == event["type"] == attributes["event_type"] == pushed
    assert event["data"]["digest"] == attributes["digest"] == digest
    assert attributes["repository"] == "app"
    assert got.envelope["subscription_id"] == made["id"]


async def test_who_is_subscribed_by_a_link_is_told_to_the_topic_that_asks(notified: World) -> None:
    watched = await notified.topic("watched")
    await notified.confirmed(watched)
    rule = {"topic": watched["crn"], "event_types": ["notifications.subscription.*"]}
    assert (await notified.ask("POST", "/v1/event-rules", rule)).status_code == 201
    topic = await notified.topic("other")
    made = await notified.confirmed(topic)
    await notified.deliver()
    reference = {name: topic[name] for name in ("id", "crn", "name")}
    seen = set()
    for each in told(notified):
        seen.add(each["type"].removeprefix("notifications.subscription."))
        data = each["data"]
        assert (data["topic"], data["subscription"]) == (reference, {"id": made["id"]})
        assert (data["principal"] is None) == each["type"].endswith(".confirmed")  # by a link
    assert seen == {"created", "confirmed"}


@on_both_databases
async def test_events_told_to_a_topic_that_is_gone_are_delivered_when_one_exists(
    notified: World,
) -> None:
    (rule,) = await rules(notified)  # of everything, to the topic "images"
    assert rule["faults"] == []
    path = f"/v1/topics/{rule['topic']['id']}"
    assert (await notified.ask("DELETE", path)).status_code == 204
    digest = await push_index(notified.served)
    other = await notified.topic("other")
    await notified.publish(other)
    await notified.deliver()  # what waits holds up nothing else of the account
    ((fault,),) = [each["faults"] for each in await rules(notified)]
    assert (fault["code"], fault["details"]) == ("TOPIC_MISSING", {"waiting": "1"})
    topic = await notified.topic("images")
    assert (await rules(notified))[0]["faults"] == []
    repositories, token = "/v1/repositories", notified.acme.program_token
    await notified.served.make(repositories, {"name": "new"}, token=token)
    await notified.confirmed(topic)
    await notified.deliver()
    found = told(notified)
    assert {each["type"] for each in found} == {
        *("registry.image.pushed", "registry.repository.created")
    }
    pushed = [each for each in found if each["type"] == "registry.image.pushed"]
    assert [each["data"]["digest"] for each in pushed] == [digest]
    # From now on nothing waits.
    await notified.served.make(repositories, {"name": "newer"}, token=token)
    await notified.deliver()
    assert told(notified)[-1]["data"]["repository"]["name"] == "newer"


async def test_a_destination_that_resolves_to_another_address_later_is_refused_at_delivery(
    notified: World,
) -> None:
    # The first look-up, at the creation, finds a public address or none.
    topic = await notified.topic()
    endpoint = "https://rebinding.invalid/hook"
    made = await notified.subscribe(topic, protocol="https", endpoint=endpoint)
    assert made.status_code == 201, made.text
    looked_up = []

    async def loopback(host: str, _port: int) -> Any:  # noqa: ANN401
        looked_up.append(host)
        return [ip_address("127.0.0.1")]

    served = notified.served
    client = HttpClient(Allowed("ALLOWED", takes_plain_http=True), resolve=loopback)
    served.notifications = replace(served.notifications, client=client)
    await notified.deliver()
    assert looked_up == ["rebinding.invalid"]
    (fault,) = (await notified.show(topic, made.json()["subscription"]))["faults"]
    assert (fault["code"], fault["severity"]) == ("DESTINATION_REFUSED", "error")
    assert not notified.hook.got
