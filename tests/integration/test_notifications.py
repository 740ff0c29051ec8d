"""Topics and subscriptions: confirmation, secrets, destinations, filters and unsubscribing."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from tests.databases import on_both_databases
from tests.integration.notifications_world import World
from tests.tenants import allow
from tests.webhook_receiver import status

HOUR = 3600


async def test_a_200_to_the_handshake_never_confirms(notified: World) -> None:
    topic = await notified.topic()
    hook = (await notified.subscribe(topic)).json()["subscription"]
    mail = (await notified.subscribe(topic, protocol="email", endpoint="a@example.org")).json()
    assert hook["status"] == mail["subscription"]["status"] == "pending_confirmation"
    await notified.deliver()
    (request,) = notified.hook.of("subscription_confirmation")  # which was answered by a success
    assert (await notified.show(topic, hook))["status"] == "pending_confirmation"
    # Publications made before the confirmation are not sent later, looked at by then or not.
    await notified.publish(topic, "early")
    await notified.deliver()
    await notified.publish(topic, "still in the outbox at the confirmation")
    notified.served.clock.now += 1
    assert (await notified.confirm(request.envelope["token"])).json() == {
        "subscription_id": hook["id"],
        "endpoint": hook["endpoint"],
        "status": "confirmed",
        "topic_name": "t",
    }
    late = await notified.publish(topic, "late")
    await notified.deliver()
    assert [each.envelope["message_id"] for each in notified.hook.of("notification")] == [late]


async def test_a_queue_is_subscribed_at_once_by_name_id_or_crn(notified: World) -> None:
    queue_id = await notified.queue("orders")
    topic = await notified.topic()
    first = (await notified.subscribe(topic, protocol="queue", endpoint="orders")).json()
    assert first["subscription"]["status"] == "confirmed"
    assert "signing_secret" not in first
    # The endpoint of a queue is its CRN, and no answer has the topic.
    crn = first["subscription"]["endpoint"]
    assert crn == f"crn:queue:local:{notified.acme.account_id}:queue/orders"
    assert topic["id"] not in str(first)
    assert topic["crn"] not in str(first)
    for reference in (crn, queue_id, queue_id.upper()):
        again = await notified.subscribe(topic, protocol="queue", endpoint=reference)
        assert again.json() == first
    message_id = await notified.publish(topic, "hi", attributes={"kind": "a"})
    await notified.deliver()
    ((envelope, attributes),) = await notified.queued(queue_id)
    assert attributes == {"kind": "a"}
    assert (envelope["type"], envelope["message_id"]) == ("notification", message_id)


async def test_only_the_first_creation_has_the_secret(notified: World) -> None:
    topic, url = await notified.topic(), notified.hook.url
    first = await notified.subscribe(topic, filter_policy={"a": ["b"]})
    assert first.status_code == 201
    assert first.json()["signing_secret"].startswith("whsec_")
    # Other fields of the body are ignored, also such as name nothing that there is.
    for endpoint in (f"{url}/hook", f"{url.upper().replace('HTTP', 'http', 1)}/hook"):
        fields = {"filter_policy": {}, "redrive_policy": {"dead_letter_queue": "none"}}
        again = await notified.subscribe(topic, endpoint=endpoint, **fields)
        assert again.status_code == 201
        assert again.json() == {"subscription": first.json()["subscription"]}
    literal = "https://192.0.32.8"
    made = await notified.subscribe(topic, protocol="https", endpoint=literal)
    assert made.json()["subscription"]["endpoint"] == f"{literal}/"
    same = await notified.subscribe(topic, protocol="https", endpoint=f"{literal}:443/")
    assert same.json() == {"subscription": made.json()["subscription"]}


@on_both_databases
async def test_equal_subscriptions_at_once_make_one(notified: World) -> None:
    topic = await notified.topic()
    answers = await asyncio.gather(*(notified.subscribe(topic) for _ in range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["subscription"]["id"] for answer in answers}) == 1
    assert sum("signing_secret" in answer.json() for answer in answers) == 1


async def test_hostile_destinations_are_refused_at_creation(notified: World) -> None:
    """More of them are in `tests/unit/test_outbound_destinations.py`. The scheme must fit, too."""
    topic = await notified.topic()
    for protocol, endpoint in (
        ("http", "http://localhost/"),
        ("http", "http://169.254.169.254/latest"),
        ("http", "http://user:password@192.0.32.7/"),
        ("http", "http://192.0.32.7:22/"),
        ("https", f"{notified.hook.url}/hook"),
    ):
        answer = await notified.subscribe(topic, protocol=protocol, endpoint=endpoint)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "INVALID_INPUT"), endpoint
        assert error["params"]["field"] == "endpoint", endpoint
    assert error["params"]["reason"] == "wrong_scheme"
    right = await notified.subscribe(topic, protocol="https", endpoint="https://192.0.32.7/")
    assert right.status_code == 201


async def test_redirects_are_failures(notified: World) -> None:
    dead = await notified.queue("dead")
    topic = await notified.topic()
    made = await notified.confirmed(topic, redrive_policy={"dead_letter_queue": "dead"})
    there = f"Location: {notified.hook.url}/elsewhere"
    notified.hook.answer = lambda _got: status(302, there)
    await notified.publish(topic)
    await notified.deliver()
    assert {each.path for each in notified.hook.got} == {"/hook"}
    ((_, attributes),) = await notified.queued(dead)  # at once: no retry would help
    assert attributes["error_code"] == "ENDPOINT_REFUSED"
    assert attributes["http_status"] == "302"
    faults = (await notified.show(topic, made))["faults"]
    assert [each["code"] for each in faults] == ["ENDPOINT_REFUSED"]


async def test_confirmation_takes_any_or_no_authorization(notified: World) -> None:
    for number, authorization in enumerate(
        ("", f"Bearer {notified.acme.program_token}", "Bearer garbage", "Basic !!")
    ):
        topic = await notified.topic(f"t{number}")
        await notified.subscribe(topic)
        await notified.deliver()
        token = notified.hook.of("subscription_confirmation")[-1].envelope["token"]
        headers = {"Authorization": authorization} if authorization else {}
        assert (await notified.confirm(token, **headers)).status_code == 200


async def test_any_other_confirmation_token_gets_the_same_400(notified: World) -> None:
    topic = await notified.topic()
    made = (await notified.subscribe(topic)).json()["subscription"]
    await notified.deliver()
    path = f"/v1/topics/{topic['id']}/subscriptions/{made['id']}/resend-confirmation"
    assert (await notified.ask("POST", path)).status_code == 202
    await notified.deliver()
    superseded, current = (
        each.envelope["token"] for each in notified.hook.of("subscription_confirmation")
    )
    refusals = [await notified.confirm(each) for each in (superseded, "x" * 43, "", "ü" * 99)]
    notified.served.clock.now += 72 * HOUR * 1_000_000
    refusals.append(await notified.confirm(current))  # expired

    def said(answer: Any) -> Any:  # noqa: ANN401
        error = answer.json()["error"]
        del error["request_id"]
        return answer.status_code, error

    assert {str(said(each)) for each in refusals} == {str(said(refusals[0]))}
    assert said(refusals[0])[0] == 400
    assert said(refusals[0])[1]["code"] == "INVALID_INPUT"
    # An expired link leaves it pending, and it can be asked for again.
    assert (await notified.show(topic, made))["status"] == "pending_confirmation"
    assert (await notified.ask("POST", path)).status_code == 202
    await notified.deliver()
    token = notified.hook.of("subscription_confirmation")[-1].envelope["token"]
    assert (await notified.confirm(token)).status_code == 200
    assert (await notified.ask("POST", path)).status_code == 409


async def test_head_and_the_prefetch_of_a_scanner_do_not_confirm(notified: World) -> None:
    topic = await notified.topic()
    made = (await notified.subscribe(topic, protocol="email", endpoint="a@Example.ORG")).json()
    assert made["subscription"]["endpoint"] == "a@example.org"
    await notified.deliver()
    (mail,) = notified.mailbox.mails
    assert mail["To"] == "a@example.org"
    assert mail["From"] == "news@registry.test"
    text = mail.get_body()
    assert text is not None
    (link,) = [word for word in text.get_content().split() if "/page?token=" in word]
    path = link.removeprefix("http://registry.test")
    for method in ("HEAD", "GET", "GET"):
        answer = await notified.served.ask(method, path)
        assert answer.status_code == 200
        assert "text/html" in answer.headers["content-type"]
    assert (await notified.show(topic, made["subscription"]))["status"] == "pending_confirmation"
    page, _, query = path.partition("?")
    clicked = await notified.served.submit(page, query)
    assert clicked.status_code == 200, clicked.text
    assert (await notified.show(topic, made["subscription"]))["status"] == "confirmed"
    again = await notified.served.submit(page, query)
    assert again.status_code == 400


async def test_a_change_keeps_replaces_and_removes_fields(notified: World) -> None:
    await notified.queue("dead")
    topic = await notified.topic()
    policy = {"kind": ["a", "b"]}
    fields = {"filter_policy": policy, "redrive_policy": {"dead_letter_queue": "dead"}}
    made = (await notified.subscribe(topic, **fields)).json()["subscription"]
    path = f"/v1/topics/{topic['id']}/subscriptions/{made['id']}"

    async def patched(body: object) -> Any:  # noqa: ANN401
        answer = await notified.ask("PATCH", path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()["subscription"]

    kept = await patched({"raw_message_delivery": True})
    assert (kept["filter_policy"], kept["raw_message_delivery"]) == (policy, True)
    assert kept["redrive_policy"] == made["redrive_policy"]
    assert (await patched({"filter_policy": {}}))["filter_policy"] == {}
    assert (await patched({"redrive_policy": None}))["redrive_policy"] is None
    crn = made["redrive_policy"]["dead_letter_queue"]
    again = await patched({"redrive_policy": {"dead_letter_queue": crn}})
    assert again["redrive_policy"] == {"dead_letter_queue": crn}
    assert await patched({}) == again
    seen = await notified.ask("GET", f"/v1/audit-events?limit=200&resource={quote(topic['crn'])}")
    changes = [each["action"] for each in seen.json()["events"]]
    assert changes.count("notifications:UpdateSubscription") == 4  # what changes nothing is none
    refusals: tuple[dict[str, Any], ...] = (
        {"filter_policy": []},
        {"protocol": "https"},
        {"endpoint": "http://192.0.32.7/"},
        {"delivery_policy": {"max_retries": 101}},
        {"filter_policy": {"a": []}},
    )
    for refused in refusals:
        assert (await notified.ask("PATCH", path, refused)).status_code == 400, refused


async def test_a_message_or_filter_beyond_its_limits_is_refused_and_nothing_is_delivered(
    notified: World,
) -> None:
    topic = await notified.topic()
    await notified.confirmed(topic)
    messages: tuple[tuple[str, dict[str, object]], ...] = (
        ("message", {"message": "\n" * 122_900}),  # twice as long in JSON
        ("subject", {"subject": "two\nlines"}),
        ("attributes", {"attributes": {f"a{number}": "x" for number in range(21)}}),
        ("attributes", {"attributes": {"a b": "x"}}),
        ("attributes", {"attributes": {"x": "é" * 513}}),
    )
    for field, fields in messages:
        body = {"message": "hello", **fields}
        answer = await notified.ask("POST", f"/v1/topics/{topic['id']}/messages", body)
        assert answer.status_code == 400, fields
        assert answer.json()["error"]["params"]["field"] == field, answer.text
    for policy in ({"a b": ["x"]}, {key: [str(number) for number in range(76)] for key in "ab"}):
        answer = await notified.subscribe(
            topic, endpoint=f"{notified.hook.url}/b", filter_policy=policy
        )
        assert answer.status_code == 400, policy
        assert answer.json()["error"]["params"]["field"] == "filter_policy", answer.text
    await notified.deliver()
    assert notified.hook.of("notification") == []
    assert len(notified.hook.got) == 1  # the request to confirm


async def test_filters_and_across_names_or_within_values(notified: World) -> None:
    orders = await notified.queue("orders")
    topic = await notified.topic()
    policy = {"kind": ["a", "b"], "size": ["big"]}
    await notified.confirmed(topic, filter_policy=policy)
    fields = {"protocol": "queue", "endpoint": "orders", "filter_policy": policy}
    assert (await notified.subscribe(topic, **fields)).status_code == 201
    wanted = [
        await notified.publish(topic, attributes={"kind": kind, "size": "big", "more": "x"})
        for kind in ("a", "b")
    ]
    for attributes in ({"kind": "a"}, {"kind": "c", "size": "big"}, {"size": "big"}, {}):
        body = '{"kind":"a","size":"big"}'
        await notified.publish(topic, body, attributes=attributes)
    await notified.deliver()
    got = notified.hook.of("notification")
    assert sorted(each.envelope["message_id"] for each in got) == sorted(wanted)
    assert len(await notified.queued(orders)) == len(wanted)  # the same for all protocols


async def test_subscribing_a_queue_needs_the_right_to_send_to_it(notified: World) -> None:
    for name in ("orders", "dead"):
        await notified.queue(name)
    topic, acme = await notified.topic(), notified.acme
    token = await notified.served.token_that_may(allow("notifications:*"))
    path = f"/v1/topics/{topic['id']}/subscriptions"
    queue = {"protocol": "queue", "endpoint": "orders"}
    assert (await notified.ask("POST", path, queue, token)).status_code == 403
    hook = {"protocol": "http", "endpoint": f"{notified.hook.url}/x"}
    redrive = hook | {"redrive_policy": {"dead_letter_queue": "dead"}}
    assert (await notified.ask("POST", path, redrive, token)).status_code == 403
    assert (await notified.ask("POST", path, hook, token)).status_code == 201
    for scope in (f"local:{notified.served.globex.account_id}", f"mars:{acme.account_id}"):
        foreign = queue | {"endpoint": f"crn:queue:{scope}:queue/orders"}
        answer = await notified.ask("POST", path, foreign)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_INPUT")
    assert (await notified.ask("POST", path, queue | {"endpoint": "none"})).status_code == 404


async def test_unsubscribing_is_one_click_and_its_page_changes_nothing(notified: World) -> None:
    topic = await notified.topic()
    made = await notified.confirmed(topic)
    await notified.publish(topic)
    await notified.deliver()
    (got,) = notified.hook.of("notification")
    path = got.envelope["unsubscribe_url"].removeprefix("http://registry.test")
    token = path.partition("token=")[2]
    assert (await notified.confirm(token)).status_code == 400  # another token than to confirm
    for method in ("GET", "HEAD"):
        assert (await notified.served.ask(method, path)).status_code == 200
    assert (await notified.show(topic, made))["status"] == "confirmed"
    click = b"List-Unsubscribe=One-Click"
    forged = path[:-1] + ("A" if path[-1] != "A" else "B")
    refused = await notified.served.submit(forged, click)
    assert refused.status_code == 400
    for _ in range(2):
        done = await notified.served.submit(path, click)
        assert done.status_code == 200, done.text
    listed = await notified.ask("GET", f"/v1/topics/{topic['id']}/subscriptions")
    assert listed.json()["subscriptions"] == []


async def test_the_audit_log_has_confirmations_with_their_address(notified: World) -> None:
    topic = await notified.topic()
    agent = {"User-Agent": "mail/1", "X-Forwarded-For": "203.0.113.9"}
    assert (await notified.subscribe(topic, endpoint=f"{notified.hook.url}/s3cret")).is_success
    assert (await notified.confirm("no token", **agent)).status_code == 400
    await notified.deliver()
    envelope = notified.hook.got[-1].envelope
    confirmed = await notified.confirm(envelope["token"], **agent)
    assert (await notified.confirm(envelope["token"], **agent)).status_code == 400
    path, _, query = envelope["unsubscribe_url"].removeprefix("http://registry.test").partition("?")
    ended = [await notified.served.submit(path, query, **agent) for _ in "12"]
    assert [each.status_code for each in ended] == [200, 200]
    resource = f"&resource={quote(topic['crn'])}"
    found = (await notified.ask("GET", f"/v1/audit-events?limit=200{resource}")).json()["events"]
    of_recipients = [each for each in found if each["user_agent"] == "mail/1"]
    assert [each["action"] for each in of_recipients] == [
        "notifications:Unsubscribe",
        "notifications:ConfirmSubscription",
    ]
    for each, answer in zip(of_recipients, (ended[0], confirmed), strict=True):
        assert each["request_id"] == answer.headers["x-request-id"]
        assert each["principal"] is None
        assert each["source_ip"] == "198.51.100.7"  # not what it says of itself
        assert each["details"] == {
            "topic_id": topic["id"],
            "subscription_id": envelope["subscription_id"],
            "protocol": "http",
            "endpoint": notified.hook.url,
        }
