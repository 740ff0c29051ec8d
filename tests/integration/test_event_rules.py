"""``/v1/event-rules``: which topics are told of what, and that they are."""

from __future__ import annotations

from typing import Any, Final

import httpx
from msgspec import UNSET
from sqlalchemy import text

from cloudcore.db.statement import Statement
from cloudcore.notifications.publishing import delete_topic
from cloudcore.quotas.limits import EVERY_ACCOUNT, put_limit
from cloudcore.wire import rfc3339
from registry.metadata.event_rule import EVENT_RULE
from registry.services.events import check_rule
from tests.databases import on_both_databases
from tests.integration.pushing import client_of, create, read_all, refused, signed_in
from tests.recount import querying
from tests.tenants import ALLOW_ALL, Install, allow, deny
from tests.topics import add_topics

PATH: Final = "/v1/event-rules"
TOPIC: Final = "crn:notifications:local:acme:topic/images"
PUSHED: Final = "registry.image.pushed"
_MOVE: Final = Statement(text("UPDATE event_rules SET region = 'mars'"))


async def make(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    body = {"topic": TOPIC, "event_types": [PUSHED]} | fields
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["event_rule"]
    assert answer.headers["location"] == f"{PATH}/{found['id']}"
    return found


async def test_a_rule_from_its_making_to_its_end(
    install: Install, client: httpx.AsyncClient
) -> None:
    """It names its topic by id, name or CRN, and is no second time the very same."""
    (topic,) = await add_topics(install.database, "acme", "Images.of_all")
    reference = {"id": topic.id, "crn": topic.crn, "name": topic.name}
    rule = await make(client, topic=topic.crn, event_types=["registry.tag.*", PUSHED, PUSHED])
    assert rule == {
        "id": rule["id"],
        "crn": f"crn:registry:local:{topic.account_id}:event-rule/{rule['id']}",
        "topic": reference,
        "event_types": ["registry.tag.*", PUSHED],
        "repository_prefix": "",
        "faults": [],
        "created_at": rule["created_at"],
    }
    assert (await client.get(f"{PATH}/{rule['id']}")).json() == {"event_rule": rule}
    by_handle = topic.crn.replace(topic.account_id, "acme")
    for number, value in enumerate((topic.id, topic.id.upper(), topic.name, by_handle)):
        second = await make(client, topic=value, repository_prefix=f"r{number}/")
        assert second["topic"] == reference
        body = {"topic": value, "event_types": [PUSHED] * 2, "repository_prefix": f"r{number}/"}
        refused(await client.post(PATH, json=body), 409, "CONFLICT")  # it would tell nothing more
    rows = await read_all(client, PATH, limit=2)
    assert (len(rows), rows[0], rows[-1]) == (5, rule, second)
    body = {"topic": topic.name.lower(), "event_types": [PUSHED]}
    refused(await client.post(PATH, json=body), 404, "NOT_FOUND")

    assert (await client.delete(f"{PATH}/{rule['id']}")).status_code == 204
    refused(await client.get(f"{PATH}/{rule['id']}"), 404, "NOT_FOUND")
    refused(await client.delete(f"{PATH}/{rule['id']}"), 404, "NOT_FOUND")
    assert (await client.get(PATH)).json()["event_rules"] == rows[1:]


@on_both_databases
async def test_a_rule_names_an_existing_topic_and_one_deleted_later_is_a_fault(
    install: Install, client: httpx.AsyncClient
) -> None:
    body = {"topic": TOPIC, "event_types": [PUSHED]}
    answer = await client.post(PATH, json=body)
    refused(answer, 404, "NOT_FOUND")
    assert answer.json()["error"]["params"]["reason"] == "topic_not_found"
    (topic,) = await add_topics(install.database, "acme", "images")
    rule = await make(client)
    now = install.clock()
    await install.database.write(delete_topic, topic, now)
    shown = (await client.get(f"{PATH}/{rule['id']}")).json()["event_rule"]
    at = rfc3339(now)
    fault = {
        "code": "TOPIC_MISSING",
        "severity": "error",
        "message": "there is no such topic; events wait for one of its name",
        "details": {"waiting": "0"},
        "first_at": at,
        "last_at": at,
        "occurrences": 1,
    }
    del rule["topic"]["id"]
    assert shown == rule | {"faults": [fault]}
    assert (await client.get(PATH)).json()["event_rules"] == [shown]
    (again,) = await add_topics(install.database, "acme", "images")
    shown = (await client.get(f"{PATH}/{rule['id']}")).json()["event_rule"]
    assert (shown["topic"]["id"], shown["faults"]) == (again.id, [])


async def test_no_rule_goes_on_unseen_once_the_region_is_renamed(
    install: Install, client: httpx.AsyncClient
) -> None:
    await add_topics(install.database, "acme", "images")
    rule = await make(client)
    await install.database.write(lambda tx: tx.execute(_MOVE))
    found = (await client.get(PATH)).json()
    assert [each["id"] for each in found["event_rules"]] == [rule["id"]]
    assert found["meta"]["total"] == 1
    assert (await client.delete(f"{PATH}/{rule['id']}")).status_code == 204
    assert (await client.get(PATH)).json()["event_rules"] == []


@on_both_databases
async def test_an_account_has_at_most_so_many(install: Install) -> None:
    client, other = await client_of(install, "acme"), await client_of(install, "other")
    for handle in ("acme", "other"):
        await add_topics(install.database, handle, "images")
    assert EVENT_RULE.quota == 50
    await install.database.write(put_limit, EVERY_ACCOUNT, "event_rules", 2, 1)
    made = [await make(client, repository_prefix=f"r{number}") for number in range(2)]
    body = {"topic": TOPIC, "event_types": [PUSHED]}
    params = refused(await client.post(PATH, json=body), 403, "QUOTA_EXCEEDED")
    assert params == {"quota": "event_rules", "limit": 2, "used": 2}
    await make(other, topic=TOPIC.replace("acme", "other"))
    assert (await client.delete(f"{PATH}/{made[1]['id']}")).status_code == 204
    await make(client)


_SERVICE: Final = "crn:notifications"
NO_TOPICS: Final = {
    "an image": "malformed",
    "x" * 513: "out_of_range",
    "crn:registry:local:acme:topic/t": "wrong_service",
    f"{_SERVICE}:local:acme:queue/q": "malformed_crn",
    f"{_SERVICE}:local:acme:topic/a/b": "malformed_crn",
    f"{_SERVICE}:local:acme:topic/*": "malformed_crn",
    f"{_SERVICE}:mars:acme:topic/t": "foreign_region",
    f"{_SERVICE}::acme:topic/t": "foreign_region",
    f"{_SERVICE}:local:other:topic/t": "foreign_account",
    f"{_SERVICE}:local:nobody:topic/t": "foreign_account",
}
"""What names no topic of the account, and the reason."""
REFUSED: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"topic": UNSET}, "topic"),
    ({"event_types": UNSET}, "event_types"),
    ({"event_types": []}, "event_types"),
    ({"event_types": PUSHED}, "event_types"),
    ({"event_types": [PUSHED] * 21}, "event_types"),
    ({"event_types": [PUSHED, "*"]}, "event_types[1]"),
    *(
        ({"event_types": [wrong]}, "event_types[0]")
        for wrong in (
            *(1, PUSHED.upper(), "registry.image.eaten", "registry.im*", "registry.none.*"),
            *("registry.*.pushed", "storage.image.*", "notifications.message.*"),
        )
    ),
    *(({"repository_prefix": wrong}, "repository_prefix") for wrong in ("Web", "%", "/w", "w//")),
    ({"repository_prefix": None}, "repository_prefix"),
    ({"prefix": "web"}, "prefix"),
)
"""What is asked for beside a good topic and type, or in place of one; and the field at fault."""


async def test_what_cannot_be_a_rule_is_refused(install: Install) -> None:
    await install.add_account("other")
    client = await client_of(install, "acme")
    for changes, field in REFUSED:
        body = {"topic": TOPIC, "event_types": [PUSHED], **changes}
        asked = {name: value for name, value in body.items() if value is not UNSET}
        answer = await client.post(PATH, json=asked)
        refused(answer, 400, "INVALID_INPUT", field, about=changes)
    for wrong, reason in NO_TOPICS.items():
        answer = await client.post(PATH, json={"topic": wrong, "event_types": [PUSHED]})
        params = refused(answer, 400, "INVALID_INPUT", about=wrong)
        assert params == {"field": "topic", "reason": reason}, wrong
    assert (await client.get(PATH)).json()["event_rules"] == []


def test_whatever_a_name_can_begin_with_is_a_prefix() -> None:
    for prefix in ("", "w", "web/", "web-", "w__", "w_", "1.", "a" * 210):
        check_rule([PUSHED], prefix)


async def test_who_may_not_publish_may_not_have_others_publish(install: Install) -> None:
    account = await install.add_account("acme")
    await add_topics(install.database, "acme", "images")
    put = allow("registry:PutEventRule")
    topic = TOPIC.replace("acme", account.id)
    body = {"topic": TOPIC, "event_types": [PUSHED]}
    for number, (status, statements) in enumerate(
        [
            (403, [put]),
            (403, [allow("notifications:Publish")]),
            (403, [put, allow("notifications:Publish", on=f"{topic}-2")]),
            (403, [ALLOW_ALL, deny("notifications:Publish", on=topic)]),
            (201, [put, allow("notifications:Publish", on=topic)]),
        ]
    ):
        program = await install.add_program(account, f"p{number}", *statements)
        client = signed_in(install, program)
        answer = await client.post(PATH, json=body)
        assert answer.status_code == status, (statements, answer.text)


async def test_a_deleted_rule_tells_nothing_more(
    install: Install, client: httpx.AsyncClient, sqlite_database: str
) -> None:
    await add_topics(install.database, "acme", "images")
    rule = await make(client, event_types=["registry.*"], repository_prefix="w")
    for name in ("web/app", "db"):
        await create(client, name)
    assert (await client.delete(f"{PATH}/{rule['id']}")).status_code == 204
    await create(client, "web/other")
    with querying(sqlite_database) as query:
        assert query("SELECT type FROM outbox") == [("registry.repository.created",)]
