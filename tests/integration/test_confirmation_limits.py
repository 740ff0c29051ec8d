"""Nobody floods the mailbox or the web server of a stranger with requests to confirm."""

from __future__ import annotations

import httpx
import pytest

from cloudcore.resources import confirmations
from cloudcore.resources.confirmations import OF_ACCOUNT, OF_RECIPIENT
from tests.integration.notifications_world import World


def _refused(answer: httpx.Response) -> bool:
    if answer.status_code != 429:
        assert answer.status_code in (201, 202), answer.text
        return False
    assert answer.json()["error"]["code"] == "TOO_MANY_CONFIRMATIONS"
    assert not [name for name in answer.headers if name.startswith("x-ratelimit")]
    assert 0 < int(answer.headers["Retry-After"]) <= OF_RECIPIENT.window_seconds
    return True


async def test_an_endpoint_is_asked_so_often_an_hour_by_whatever_requests(notified: World) -> None:
    topic = await notified.topic()
    path = f"/v1/topics/{topic['id']}/subscriptions"
    address = {"protocol": "email", "endpoint": "a@example.org"}
    made = await notified.subscribe(topic, **address)
    again = f"{path}/{made.json()['subscription']['id']}/resend-confirmation"
    # Asked again, subscribed anew, by another topic, in another form: it is one mailbox.
    for _ in range(4):
        assert not _refused(await notified.ask("POST", again))
    assert (await notified.ask("DELETE", again.rpartition("/")[0])).status_code == 204
    made = await notified.subscribe(topic, **address)
    assert not _refused(made)
    other = await notified.topic("other")
    for number in range(OF_RECIPIENT.limit - 6):
        tagged = f"A+{number}@Example.org"
        assert not _refused(await notified.subscribe(other, protocol="email", endpoint=tagged))
    assert _refused(await notified.subscribe(other, **address))
    again = f"{path}/{made.json()['subscription']['id']}/resend-confirmation"
    assert _refused(await notified.ask("POST", again))
    # A repeated subscription asks nobody, and other endpoints may be asked.
    assert (await notified.subscribe(topic, **address)).status_code == 201
    assert not _refused(await notified.subscribe(topic))
    await notified.deliver(after=OF_RECIPIENT.window_seconds)
    assert not _refused(await notified.ask("POST", again))


async def test_the_endpoints_of_an_account_are_asked_so_often_an_hour(
    notified: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert OF_ACCOUNT.limit == 300
    few = 20  # three hundred requests take seconds
    monkeypatch.setattr(confirmations, "OF_ACCOUNT", OF_ACCOUNT._replace(limit=few))
    topic = await notified.topic()
    left = few - 1  # every tenant of the tests has a subscription to begin with
    answers = [
        await notified.subscribe(topic, endpoint=f"{notified.hook.url}/{number}")
        for number in range(left + 1)
    ]
    assert [_refused(each) for each in answers] == [False] * left + [True]
    queue = await notified.queue("q")
    assert not _refused(await notified.subscribe(topic, protocol="queue", endpoint=queue))


async def test_a_policy_of_many_retries_is_not_for_who_is_asked_to_confirm(notified: World) -> None:
    topic = await notified.topic(delivery_policy={"max_retries": 100, "min_delay_seconds": 1})
    notified.hook.answer = lambda _got: b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"
    assert (await notified.subscribe(topic)).status_code == 201
    for _ in range(10):
        await notified.deliver(after=20)
    assert len(notified.hook.got) == 4
