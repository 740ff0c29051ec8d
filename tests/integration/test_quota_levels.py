"""An account is told once that it has come to 80 and to 100 per cent of a quota."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from cloudcore.db.base import Connection
from cloudcore.queue.queues import ROWS
from cloudcore.quotas.limits import Counted, level_of, put_limit
from tests.databases import on_both_databases
from tests.integration.notifications_world import World
from tests.recount import querying

pytestmark = on_both_databases
NEARLY, REACHED = "quotas.quota.nearly_reached", "quotas.quota.reached"


def told(url: str) -> list[tuple[str, dict[str, Any]]]:
    """Return type and data of each event of a quota that the outbox has got."""
    with querying(url) as query:
        rows = query("SELECT type, payload FROM outbox WHERE type LIKE ? ORDER BY sequence", "quo%")
    return [(kind, json.loads(payload)["data"]) for kind, payload in rows]


async def limited(world: World, limit: int) -> None:
    await world.served.database.write(put_limit, world.acme.account_id, "queues", limit, 1)


async def used(world: World) -> int:
    shown: int = (await world.ask("GET", "/v1/quotas/queues")).json()["quota"]["used"]
    return shown


async def drop(world: World, queue_id: str) -> None:
    assert (await world.ask("DELETE", f"/v1/queues/{queue_id}")).status_code == 204


@pytest.mark.parametrize(
    ("has", "limit", "level"),
    [
        *((79, 100, 0), (80, 100, 80), (99, 100, 80), (100, 100, 100), (7, 5, 100)),
        *((3, 4, 0), (4, 5, 80), (1, 1, 100), (0, 1, 0), (0, 0, 100)),
    ],
)
def test_a_level_is_reached_and_not_rounded_to(has: int, limit: int, level: int) -> None:
    assert level_of(has, limit) == level


async def test_each_level_is_told_once_and_again_after_it_fell_below(
    notified: World, database_url: str
) -> None:
    there = await used(notified)
    await limited(notified, there + 10)
    level = next(n for n in range(there + 11) if 5 * n >= 4 * (there + 10))
    made = [await notified.queue(f"q{n}") for n in range(level - there - 1)]
    assert told(database_url) == []
    made.append(await notified.queue("nearly"))
    data = {"quota": "queues", "percent": 80, "used": level, "limit": there + 10}
    assert told(database_url) == [(NEARLY, {**data, "principal": None, "source": None})]
    made += [await notified.queue(f"more{n}") for n in range(there + 10 - level)]
    assert [kind for kind, _ in told(database_url)] == [NEARLY, REACHED]
    assert told(database_url)[-1][1]["percent"] == 100
    assert (await notified.ask("POST", "/v1/queues", {"name": "x"})).status_code == 403
    await drop(notified, made.pop())  # from full to one less and back: it never fell below
    made.append(await notified.queue("again"))
    assert len(told(database_url)) == 2
    for _ in range(2):
        await drop(notified, made.pop())
    made.append(await notified.queue("one-less"))
    assert len(told(database_url)) == 2
    made.append(await notified.queue("full"))
    assert [kind for kind, _ in told(database_url)] == [NEARLY, REACHED, REACHED]


async def test_what_fell_far_is_told_by_the_one_addition_that_brings_it_back(
    notified: World, database_url: str
) -> None:
    account_id, counted = notified.acme.account_id, ROWS.counted

    async def add(before: int, added: int) -> int:
        """Tell of an addition to what there was, of 100; return how often was told so far."""

        def tell(tx: Connection) -> None:
            use = _use(tx, counted, account_id)
            counted.tell(tx, account_id, use._replace(used=before, limit=100), 1, added)

        await notified.served.database.write(tell)
        return len(told(database_url))

    assert [await add(*each) for each in ((10, 75), (79, 1), (70, 12), (69, 12))] == [1, 1, 1, 2]
    assert [await add(*each) for each in ((85, 15), (90, 10), (89, 11))] == [3, 3, 4]
    assert [await add(*each) for each in ((20, 1), (79, 1), (80, 20))] == [4, 5, 6]


async def test_a_refused_or_undone_change_tells_nothing(notified: World, database_url: str) -> None:
    await limited(notified, await used(notified) + 1)
    body = {"name": "q", "dead_letter_queue": "nothing"}
    assert (await notified.ask("POST", "/v1/queues", body)).status_code in (400, 404)
    assert told(database_url) == []


async def test_of_many_at_once_one_tells(notified: World, database_url: str) -> None:
    """Even where no lock has them wait for each other, as for bytes in buckets."""
    account_id, counted = notified.acme.account_id, ROWS.counted
    use = await notified.served.database.read(_use, counted, account_id)

    def tell(tx: Connection) -> None:
        counted.tell(tx, account_id, use._replace(used=9, limit=10), 1)

    await asyncio.gather(*(notified.served.database.write(tell) for _ in range(16)))
    assert [kind for kind, _ in told(database_url)] == [REACHED]


def _use(tx: Connection, counted: Counted, account_id: str) -> Any:  # noqa: ANN401
    return counted.read(tx, account_id, region="local")


@pytest.mark.parametrize("many", ["queues", "topics", "buckets", "keys"])
async def test_sixteen_that_race_for_the_last_places_get_no_more(
    notified: World, database_url: str, many: str
) -> None:
    account_id = notified.acme.account_id
    there = (await notified.ask("GET", f"/v1/quotas/{many}")).json()["quota"]["used"]
    await notified.served.database.write(put_limit, account_id, many, there + 3, 1)
    answers = await asyncio.gather(
        *(notified.ask("POST", f"/v1/{many}", {"name": f"racer-{n}"}) for n in range(16))
    )
    assert Counter(each.status_code for each in answers) == {201: 3, 403: 13}
    refused = {str(each.json()["error"]["params"]) for each in answers if each.status_code == 403}
    assert refused == {str({"quota": many, "limit": there + 3, "used": there + 3})}
    assert [data["quota"] for kind, data in told(database_url) if kind == REACHED] == [many]


async def test_far_from_the_limit_nothing_is_written(notified: World, database_url: str) -> None:
    await notified.queue("q")
    with querying(database_url) as query:
        assert query("SELECT count(*) FROM quota_levels")[0][0] == 0


async def test_a_rule_has_it_delivered(notified: World) -> None:
    topic = await notified.topic()
    await notified.confirmed(topic)
    rule = {"topic": topic["crn"], "event_types": ["quotas.*"]}
    assert (await notified.ask("POST", "/v1/event-rules", rule)).status_code == 201
    await limited(notified, await used(notified) + 1)
    await notified.queue("last")
    await notified.deliver()
    (got,) = notified.hook.of("notification")
    message = json.loads(got.envelope["message"])
    assert message["type"] == REACHED
    assert message["data"]["quota"] == "queues"
    assert message["account_id"] == notified.acme.account_id


async def test_waiting_messages_are_counted(notified: World) -> None:
    topic = await notified.topic()
    await notified.confirmed(topic)
    path = "/v1/quotas?limit=200"
    listed = (await notified.ask("GET", path)).json()["quotas"]
    before = {each["name"]: each["used"] for each in listed}
    await notified.publish(topic, "a" * 100)
    shown = (await notified.ask("GET", "/v1/quotas/published_messages")).json()["quota"]
    assert shown["used"] == before["published_messages"] + 1
    notified.hook.answer = lambda _got: b"HTTP/1.1 500 X\r\nConnection: close\r\n\r\n"
    await notified.deliver()
    listed = (await notified.ask("GET", path)).json()["quotas"]
    found = {each["name"]: each["used"] for each in listed}
    assert found["waiting_deliveries"] == before["waiting_deliveries"] + 1
    assert found["waiting_bytes"] >= before["waiting_bytes"] + 100
    uncounted = {each["name"]: each["per"] for each in listed if each["used"] is None}
    assert "account" not in uncounted.values()
