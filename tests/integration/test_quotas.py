"""Quotas: what an account has and may have, what an operator sets, and when a limit is near."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import httpx
import pytest

from cloudcore.db.base import Connection
from cloudcore.queue.queues import ROWS
from cloudcore.quotas.limits import (
    EVERY_ACCOUNT,
    REACHED_PERCENT,
    Counted,
    put_limit,
    reached_level,
    remove_limit,
)
from registry.composition.families import FAMILIES
from tests.databases import on_both_databases
from tests.integration.notifications_world import World
from tests.integration.served_world import Served
from tests.recount import querying
from tests.tenants import allow


async def ask(served: Served, method: str, path: str, body: object = None) -> httpx.Response:
    return await served.ask(method, path, body, token=served.acme.program_token)


async def quota_of(served: Served, name: str) -> dict[str, Any]:
    answer = await ask(served, "GET", f"/v1/quotas/{name}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["quota"])


async def test_an_account_sees_its_own_limits_and_what_it_uses(served: Served) -> None:
    account_id = served.acme.account_id
    await served.database.write(put_limit, served.globex.account_id, "queues", 0, 1)  # another's
    before = await quota_of(served, "queues")
    assert (before["limit"], before["default"]) == (1000, 1000)
    assert before["crn"] == f"crn:quotas:local:{account_id}:quota/queues"
    await served.database.write(put_limit, EVERY_ACCOUNT, "queues", 7, 1)
    await served.database.write(put_limit, account_id, "queues", before["used"] + 1, 1)
    assert (await ask(served, "POST", "/v1/queues", {"name": "one"})).status_code == 201
    refused = await ask(served, "POST", "/v1/queues", {"name": "two"})
    most = before["used"] + 1
    assert refused.status_code == 403
    assert refused.json()["error"]["params"] == {"quota": "queues", "limit": most, "used": most}
    found = await quota_of(served, "queues")
    assert (found["limit"], found["default"], found["used"]) == (most, 7, most)
    assert await served.database.write(remove_limit, account_id, "queues")
    assert not await served.database.write(remove_limit, account_id, "queues")
    assert (await ask(served, "POST", "/v1/queues", {"name": "two"})).status_code == 201
    assert (await quota_of(served, "queues"))["limit"] == 7


async def test_all_quotas_are_listed_in_pages(served: Served) -> None:
    every = (await ask(served, "GET", "/v1/quotas?limit=200")).json()
    names = [each["name"] for each in every["quotas"]]
    wanted = {each.name for family in FAMILIES for each in family.quotas}
    assert names == sorted(wanted)
    first = (await ask(served, "GET", "/v1/quotas?limit=4")).json()
    rest = (await ask(served, "GET", f"/v1/quotas?marker={first['meta']['marker']}")).json()
    assert [*first["quotas"], *rest["quotas"]] == every["quotas"]
    assert first["meta"]["total"] == len(wanted)
    counted = {each["name"] for each in every["quotas"] if each["used"] is not None}
    many = {each.many for family in FAMILIES for each in family.resources}
    assert counted >= many & wanted
    assert (await ask(served, "GET", "/v1/quotas/nothing")).status_code == 404


async def test_an_operator_sets_what_another_account_may_have(served: Served) -> None:
    globex = served.globex.account_id
    body = {"limit": 3, "account": "globex"}
    done = await ask(served, "PUT", "/v1/quotas/topics", body)
    assert (done.status_code, done.json()) == (
        200,
        {"quota": {"name": "topics", "account": "globex", "limit": 3}},
    )
    shown = await ask(served, "GET", "/v1/quotas/topics?account=globex")
    assert shown.json()["quota"]["crn"] == f"crn:quotas:local:{globex}:quota/topics"
    listed = await ask(served, "GET", f"/v1/quotas?limit=200&account={globex}")
    found = {each["name"]: each["limit"] for each in listed.json()["quotas"]}
    assert (shown.json()["quota"]["limit"], found["topics"]) == (3, 3)
    assert (await quota_of(served, "topics"))["limit"] == 1000  # the operator's own
    token = served.globex.program_token
    own = await served.ask("GET", "/v1/quotas/topics", token=token)
    assert own.json()["quota"]["limit"] == 3
    events = await served.ask("GET", "/v1/audit-events?action=quotas:SetQuota", token=token)
    (event,) = events.json()["events"]
    assert event["details"] == {"name": "topics", "account": globex, "limit": 3}

    gone = await ask(served, "DELETE", "/v1/quotas/topics?account=globex")
    assert (gone.status_code, gone.content) == (204, b"")
    again = await ask(served, "DELETE", "/v1/quotas/topics?account=globex")
    assert (again.status_code, again.json()["error"]["params"]) == (404, {"reason": "not_set"})


async def test_an_operator_sets_what_all_accounts_may_have(served: Served) -> None:
    token = served.globex.program_token
    for name, default, per in (("queues", 1000, "account"), ("organizations", 10, "person")):
        path = f"/v1/quotas/{name}"
        assert (await ask(served, "PUT", path, {"limit": 8})).status_code == 200
        own = (await served.ask("GET", path, token=token)).json()["quota"]
        assert (own["limit"], own["default"], own["per"]) == (8, 8, per)
        assert (await ask(served, "DELETE", path)).status_code == 204
        assert (await quota_of(served, name))["limit"] == default
    assert (await quota_of(served, "organizations"))["used"] is None


async def test_an_account_that_is_near_its_new_limit_is_told(
    served: Served, metadata_url: str
) -> None:
    used = (await quota_of(served, "keys"))["used"]
    body = {"limit": used, "account": served.acme.account_id}
    assert (await ask(served, "PUT", "/v1/quotas/keys", body)).status_code == 200
    with querying(metadata_url) as query:
        of_acme = "SELECT name, percent FROM quota_levels WHERE account_id = ?"
        assert [*query(of_acme, served.acme.account_id)] == [("keys", REACHED_PERCENT)]


async def test_what_is_no_limit_is_refused(served: Served) -> None:
    for path, body, status, reason in (
        ("queues", {"limit": -1}, 400, None),
        ("queues", {"limit": 2**62 + 1}, 400, None),
        ("queues", {"limit": 1.5}, 400, None),
        ("queues", {}, 400, None),
        ("queues", {"limit": 1, "account": ""}, 400, None),
        ("organizations", {"limit": 1, "account": "globex"}, 400, "not_of_account"),
        ("queues", {"limit": 1, "account": "nobody"}, 404, None),
        ("nothing", {"limit": 1}, 404, None),
    ):
        answer = await ask(served, "PUT", f"/v1/quotas/{path}", body)
        assert answer.status_code == status, (path, body, answer.text)
        if reason:
            assert answer.json()["error"]["params"]["reason"] == reason, (path, body)


async def test_an_account_that_is_no_operator_sets_and_sees_nothing_else(served: Served) -> None:
    for account in ("acme", "globex", "nobody", None):
        query = f"?account={account}" if account else ""
        body = {"limit": 10**9, **({"account": account} if account else {})}
        asked = [
            ("PUT", "/v1/quotas/queues", body),
            ("PUT", "/v1/quotas/nothing", body),
            ("DELETE", f"/v1/quotas/queues{query}", None),
        ]
        if account:
            asked += [("GET", f"/v1/quotas{query}", None)]
            asked += [("GET", f"/v1/quotas/queues{query}", None)]
        for method, path, each in asked:
            answer = await served.ask(method, path, each, token=served.globex.program_token)
            assert answer.status_code == 403, (method, path, answer.text)
            assert answer.json()["error"]["code"] == "ACCESS_DENIED"


async def test_the_right_is_needed_also_in_the_account_of_an_operator(served: Served) -> None:
    token = await served.token_that_may(allow("quotas:GetQuota"))
    answer = await served.ask("PUT", "/v1/quotas/queues", {"limit": 1}, token=token)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ACCESS_DENIED")


NEARLY, REACHED = "quotas.quota.nearly_reached", "quotas.quota.reached"


def told(url: str) -> list[tuple[str, dict[str, Any]]]:
    """Return type and data of each event of a quota that the outbox has got."""
    with querying(url) as query:
        rows = query("SELECT type, payload FROM outbox WHERE type LIKE ? ORDER BY sequence", "quo%")
    return [(kind, json.loads(payload)["data"]) for kind, payload in rows]


async def limited(world: World, limit: int) -> None:
    await world.served.database.write(put_limit, world.acme.account_id, "queues", limit, 1)


async def used(world: World) -> int:
    return int((await world.ask("GET", "/v1/quotas/queues")).json()["quota"]["used"])


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
    assert reached_level(has, limit) == level


@on_both_databases
async def test_a_level_is_told_again_after_a_fall_below_it(
    notified: World, metadata_url: str
) -> None:
    there = await used(notified)
    await limited(notified, there + 10)
    level = next(n for n in range(there + 11) if 5 * n >= 4 * (there + 10))
    made = [await notified.queue(f"q{n}") for n in range(level - there - 1)]
    assert told(metadata_url) == []
    made.append(await notified.queue("nearly"))
    data = {"quota": "queues", "percent": 80, "used": level, "limit": there + 10}
    assert told(metadata_url) == [(NEARLY, {**data, "principal": None, "source": None})]
    made += [await notified.queue(f"more{n}") for n in range(there + 10 - level)]
    assert [kind for kind, _ in told(metadata_url)] == [NEARLY, REACHED]
    assert told(metadata_url)[-1][1]["percent"] == 100
    assert (await notified.ask("POST", "/v1/queues", {"name": "x"})).status_code == 403
    await drop(notified, made.pop())  # from full to one less and back: it never fell below
    made.append(await notified.queue("again"))
    assert len(told(metadata_url)) == 2
    for _ in range(2):
        await drop(notified, made.pop())
    made.append(await notified.queue("one-less"))
    assert len(told(metadata_url)) == 2
    made.append(await notified.queue("full"))
    assert [kind for kind, _ in told(metadata_url)] == [NEARLY, REACHED, REACHED]


async def test_a_level_far_below_is_told_by_one_addition(
    notified: World, metadata_url: str
) -> None:
    account_id, counted = notified.acme.account_id, ROWS.counted

    async def add(before: int, added: int) -> int:
        """Tell of an addition to what there was, of 100; return how often was told so far."""

        def tell(tx: Connection) -> None:
            use = _use(tx, counted, account_id)
            counted.emit_level(tx, account_id, use._replace(used=before, limit=100), 1, added)

        await notified.served.database.write(tell)
        return len(told(metadata_url))

    assert [await add(*each) for each in ((10, 75), (79, 1), (70, 12), (69, 12))] == [1, 1, 1, 2]
    assert [await add(*each) for each in ((85, 15), (90, 10), (89, 11))] == [3, 3, 4]
    assert [await add(*each) for each in ((20, 1), (79, 1), (80, 20))] == [4, 5, 6]


async def test_a_change_that_is_refused_or_far_from_the_limit_tells_nothing(
    notified: World, metadata_url: str
) -> None:
    await notified.queue("q")
    with querying(metadata_url) as query:
        assert query("SELECT count(*) FROM quota_levels")[0][0] == 0
    await limited(notified, await used(notified) + 1)
    body = {"name": "other", "dead_letter_queue": "nothing"}
    assert (await notified.ask("POST", "/v1/queues", body)).status_code in (400, 404)
    assert told(metadata_url) == []


@on_both_databases
async def test_of_many_at_once_one_tells(notified: World, metadata_url: str) -> None:
    """Even where no lock has them wait for each other, as for bytes in buckets."""
    account_id, counted = notified.acme.account_id, ROWS.counted
    use = await notified.served.database.read(_use, counted, account_id)

    def tell(tx: Connection) -> None:
        counted.emit_level(tx, account_id, use._replace(used=9, limit=10), 1)

    await asyncio.gather(*(notified.served.database.write(tell) for _ in range(16)))
    assert [kind for kind, _ in told(metadata_url)] == [REACHED]


def _use(tx: Connection, counted: Counted, account_id: str) -> Any:  # noqa: ANN401
    return counted.read(tx, account_id, region="local")


@on_both_databases
@pytest.mark.parametrize("many", ["queues", "topics", "buckets", "keys"])
async def test_sixteen_racers_get_the_last_places_only(
    notified: World, metadata_url: str, many: str
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
    assert [data["quota"] for kind, data in told(metadata_url) if kind == REACHED] == [many]


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


@on_both_databases
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
