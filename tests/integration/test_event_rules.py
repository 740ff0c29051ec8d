"""``/v1/event-rules``: which topics are told of what, and that they are."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest
from msgspec import UNSET
from sqlalchemy import text

from cloudcore.db.statement import Statement
from cloudcore.notifications.publishing import delete_topic
from cloudcore.wire import rfc3339
from registry.services.events import check_rule
from tests.databases import on_both_databases
from tests.integration.pushing import client_of, create, pusher, refused, signed_in
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


@on_both_databases
async def test_a_rule_from_its_making_to_its_end(
    install: Install, client: httpx.AsyncClient
) -> None:
    (topic,) = await add_topics(install.database, "acme", "images")
    rule = await make(client, event_types=["registry.tag.*", PUSHED, PUSHED])
    account = rule["topic"]["crn"].split(":")[3]
    crn = TOPIC.replace("acme", account)
    assert rule["topic"] == {"id": topic.id, "crn": crn, "name": crn.rpartition("/")[2]}
    assert rule["faults"] == []
    assert len(account) == 36
    assert rule["crn"] == f"crn:registry:local:{account}:event-rule/{rule['id']}"
    assert rule["event_types"] == ["registry.tag.*", PUSHED]
    assert rule["repository_prefix"] == ""
    assert (await client.get(f"{PATH}/{rule['id']}")).json() == {"event_rule": rule}
    second = await make(client, repository_prefix="web/")
    listed = (await client.get(PATH)).json()
    assert listed["event_rules"] == [rule, second]
    assert listed["meta"]["total"] == 2
    page = (await client.get(f"{PATH}?limit=1")).json()
    rest = (await client.get(f"{PATH}?limit=1&marker={page['meta']['marker']}")).json()
    assert [page["event_rules"], rest["event_rules"]] == [[rule], [second]]
    assert not rest["meta"]["has_more"]

    assert (await client.delete(f"{PATH}/{rule['id']}")).status_code == 204
    refused(await client.get(f"{PATH}/{rule['id']}"), 404, "NOT_FOUND")
    refused(await client.delete(f"{PATH}/{rule['id']}"), 404, "NOT_FOUND")
    assert (await client.get(PATH)).json()["event_rules"] == [second]


async def test_a_rule_names_its_topic_by_id_name_or_crn(
    install: Install, client: httpx.AsyncClient
) -> None:
    await install.add_account("other")
    (topic,) = await add_topics(install.database, "acme", "Images.of_all")
    (others,) = await add_topics(install.database, "other", "images")
    by_handle = topic.crn.replace(topic.account_id, "acme")
    for number, value in enumerate((topic.id, topic.id.upper(), topic.name, topic.crn, by_handle)):
        rule = await make(client, topic=value, repository_prefix=f"r{number}")
        assert rule["topic"] == {"id": topic.id, "crn": topic.crn, "name": topic.name}
    for value, reason in (
        ("an image", "malformed"),
        (topic.crn.replace("topic/", "queue/"), "malformed_crn"),
        (topic.crn.replace("local", "mars"), "foreign_region"),
        (others.crn, "foreign_account"),
    ):
        answer = await client.post(PATH, json={"topic": value, "event_types": [PUSHED]})
        refused(answer, 400, "INVALID_INPUT")
        assert answer.json()["error"]["params"] == {"field": "topic", "reason": reason}
    for value in (others.id, rule["id"], "images", topic.name.lower()):
        answer = await client.post(PATH, json={"topic": value, "event_types": [PUSHED]})
        refused(answer, 404, "NOT_FOUND")


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


async def test_the_very_same_rule_is_refused(install: Install, client: httpx.AsyncClient) -> None:
    """It would tell nobody anything more."""
    await add_topics(install.database, "acme", "images")
    body = {"topic": TOPIC, "event_types": [PUSHED]}
    assert (await client.post(PATH, json=body)).status_code == 201
    for types in ([PUSHED], [PUSHED, PUSHED]):
        answer = await client.post(PATH, json=body | {"event_types": types})
        refused(answer, 409, "CONFLICT")


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
async def test_an_account_has_at_most_fifty(install: Install) -> None:
    client, other = await client_of(install, "acme"), await client_of(install, "other")
    for handle in ("acme", "other"):
        await add_topics(install.database, handle, "images")
    made = [await make(client, repository_prefix=f"r{number}") for number in range(50)]
    body = {"topic": TOPIC, "event_types": [PUSHED]}
    answer = await client.post(PATH, json=body)
    refused(answer, 403, "QUOTA_EXCEEDED")
    assert answer.json()["error"]["params"] == {"quota": "event_rules", "limit": 50, "used": 50}
    await make(other, topic=TOPIC.replace("acme", "other"))
    assert (await client.delete(f"{PATH}/{made[7]['id']}")).status_code == 204
    await make(client)


REFUSED: Final[tuple[tuple[dict[str, Any], str], ...]] = (
    ({"topic": UNSET}, "topic"),
    ({"event_types": UNSET}, "event_types"),
    ({"event_types": []}, "event_types"),
    ({"event_types": PUSHED}, "event_types"),
    ({"event_types": [PUSHED] * 21}, "event_types"),
    ({"event_types": [1]}, "event_types[0]"),
    ({"event_types": ["registry.image.eaten"]}, "event_types[0]"),
    ({"event_types": [PUSHED, "*"]}, "event_types[1]"),
    ({"event_types": ["registry.im*"]}, "event_types[0]"),
    ({"event_types": ["registry.none.*"]}, "event_types[0]"),
    ({"event_types": ["registry.*.pushed"]}, "event_types[0]"),
    ({"event_types": ["storage.image.*"]}, "event_types[0]"),
    ({"event_types": ["notifications.message.*"]}, "event_types[0]"),
    ({"event_types": [PUSHED.upper()]}, "event_types[0]"),
    ({"topic": "an image"}, "topic"),
    ({"topic": "crn:notifications:local:acme:queue/q"}, "topic"),
    ({"topic": "crn:registry:local:acme:topic/t"}, "topic"),
    ({"topic": "crn:notifications:local:acme:topic/a/b"}, "topic"),
    ({"topic": "crn:notifications:local:acme:topic/*"}, "topic"),
    ({"topic": "crn:notifications:mars:acme:topic/t"}, "topic"),
    ({"topic": "crn:notifications::acme:topic/t"}, "topic"),
    ({"topic": "crn:notifications:local:other:topic/t"}, "topic"),
    ({"topic": "crn:notifications:local:nobody:topic/t"}, "topic"),
    ({"topic": "x" * 513}, "topic"),
    ({"repository_prefix": "Web"}, "repository_prefix"),
    ({"repository_prefix": "%"}, "repository_prefix"),
    ({"repository_prefix": "/w"}, "repository_prefix"),
    ({"repository_prefix": "w//"}, "repository_prefix"),
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
    assert (await client.get(PATH)).json()["event_rules"] == []


@pytest.mark.parametrize("prefix", ["", "w", "web/", "web-", "w__", "w_", "1.", "a" * 210])
def test_whatever_a_name_can_begin_with_is_a_prefix(prefix: str) -> None:
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


async def test_what_a_rule_asks_for_is_in_the_outbox_and_nothing_else(
    install: Install, database_url: str
) -> None:
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    client = signed_in(install, program)
    await add_topics(install.database, "acme", "images", "all")
    await make(client, repository_prefix="web/")
    second = TOPIC.replace("images", "all")
    rule = await make(client, topic=second, event_types=["registry.*"], repository_prefix="w")
    await create(client, "web/app")
    await create(client, "db")
    for name in ("web/app", "db"):
        docker = await pusher(install, program, f"acme/{name}")
        await docker.image(b"layer")
    with querying(database_url) as query:
        found = {row[0] for row in query("SELECT type FROM outbox")}
        assert found == {PUSHED, "registry.repository.created"}
        assert query("SELECT count(*) FROM outbox")[0][0] == 2
    assert (await client.delete(f"{PATH}/{rule['id']}")).status_code == 204
    await (await pusher(install, program, "acme/db")).image(b"other")
    with querying(database_url) as query:
        assert query("SELECT count(*) FROM outbox")[0][0] == 2
