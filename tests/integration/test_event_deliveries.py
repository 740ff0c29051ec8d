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


@on_both_databases
async def test_a_pushed_image_is_posted_to_a_webhook(notified: World) -> None:
    topic = await notified.topic("pushes")
    made = await notified.confirmed(topic, filter_policy={"repository": ["app"]})
    rule = {"topic": topic["crn"], "event_types": ["registry.image.pushed"]}
    assert (await notified.ask("POST", "/v1/event-rules", rule)).status_code == 201
    digest = await push_index(notified.served)
    await notified.deliver()
    (got,) = notified.hook.of("notification")
    event = json.loads(got.envelope["message"])
    assert got.envelope["subject"] == event["type"] == "registry.image.pushed"
    assert event["data"]["digest"] == digest
    attributes = got.envelope["attributes"]
    assert attributes["event_type"] == "registry.image.pushed"
    assert (attributes["repository"], attributes["digest"]) == ("app", digest)
    assert got.envelope["subscription_id"] == made["id"]


async def test_who_is_subscribed_by_a_link_is_told_to_the_topic_that_asks(notified: World) -> None:
    watched = await notified.topic("watched")
    await notified.confirmed(watched)
    rule = {"topic": watched["crn"], "event_types": ["notifications.subscription.*"]}
    assert (await notified.ask("POST", "/v1/event-rules", rule)).status_code == 201
    topic = await notified.topic("other")
    made = await notified.confirmed(topic)
    await notified.deliver()
    told = [json.loads(each.envelope["message"]) for each in notified.hook.of("notification")]
    assert {each["type"] for each in told} == {
        "notifications.subscription.created",
        "notifications.subscription.confirmed",
    }
    reference = {name: topic[name] for name in ("id", "crn", "name")}
    for each in told:
        data = each["data"]
        assert (data["topic"], data["subscription"]) == (reference, {"id": made["id"]})
        assert (data["principal"] is None) == each["type"].endswith(".confirmed")  # by a link


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
    made = await notified.served.make(
        "/v1/repositories", {"name": "new"}, token=notified.acme.program_token
    )
    await notified.confirmed(topic)
    await notified.deliver()
    told = [json.loads(each.envelope["message"]) for each in notified.hook.of("notification")]
    assert {each["type"] for each in told} == {
        *("registry.image.pushed", "registry.repository.created")
    }
    pushed = [each for each in told if each["type"] == "registry.image.pushed"]
    assert [each["data"]["digest"] for each in pushed] == [digest]
    assert made["name"] == "new"
    # From now on nothing waits.
    await notified.served.make(
        "/v1/repositories", {"name": "newer"}, token=notified.acme.program_token
    )
    await notified.deliver()
    last = json.loads(notified.hook.of("notification")[-1].envelope["message"])
    assert last["data"]["repository"]["name"] == "newer"


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
