"""What gives a subscription a delivery locks its job first, as each step does: no deadlocks."""

from __future__ import annotations

from tests.integration.notifications_world import World


async def test_the_job_of_a_subscription_is_locked_before_the_subscription(
    notified: World,
) -> None:
    topic = await notified.topic()
    confirmed = await notified.confirmed(topic)
    other = (await notified.subscribe(topic, endpoint=f"{notified.hook.url}/2")).json()
    noted = notified.served.database.noted
    noted.clear()
    await notified.publish(topic)
    await notified.deliver()
    # The foreign key of a delivery locks the subscription.
    assert _comes_first(notified, confirmed["id"], "INSERT INTO deliveries")
    noted.clear()
    other_id = other["subscription"]["id"]
    path = f"/v1/topics/{topic['id']}/subscriptions/{other_id}/resend-confirmation"
    assert (await notified.ask("POST", path)).status_code == 202
    assert _comes_first(notified, other_id, "FOR UPDATE")


def _comes_first(world: World, subscription_id: str, lock: str) -> bool:
    """Return True if the job of a subscription is locked before a statement with `lock`."""
    texts = [
        each.statement.postgresql
        for each in world.served.database.noted
        if subscription_id in each.texts
    ]
    job, other = (
        next(place for place, text in enumerate(texts) if words in text)
        for words in ("INSERT INTO jobs", lock)
    )
    return job < other
