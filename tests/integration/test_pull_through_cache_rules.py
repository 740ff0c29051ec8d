"""``/v1/pull-through-cache-rules``: their names are their own, and their secrets stay secret."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx
import psycopg
import pytest
from sqlalchemy import bindparam, text

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.rows.accounts import find_account
from cloudcore.quotas.limits import EVERY_ACCOUNT, put_limit
from registry.metadata.pull_through import lookups
from registry.metadata.pull_through.cache_rule import CACHE_RULE
from registry.metadata.pull_through.rules import find_rule_for
from registry.services.pull_through.remote import credential_of
from registry.services.pull_through.rules import update_rule
from registry.services.pull_through.upstream_states import record_failure, record_success
from registry.upstream.base import Credential, RateLimit, UpstreamLimited, UpstreamRefused
from tests.databases import on_both_databases
from tests.integration.pushing import client_of, create, pusher, refused, signed_in
from tests.tenants import ALLOW_ALL, Install, allow

PATH: Final = "/v1/pull-through-cache-rules"
QUAY: Final = "https://quay.io"
CANARY: Final = "canary-0123456789"
_CACHE: Final = Statement(
    text("UPDATE repositories SET source = 'pull_through_cache' WHERE name = :name").bindparams(
        bindparam("name")
    )
)
_MOVE: Final = Statement(text("UPDATE pull_through_cache_rules SET region = 'mars'"))
_NOTE: Final = (
    "INSERT INTO upstream_lookups (rule_id, repository, reference, absent_until, ends_at)"
    " VALUES (%(rule_id)s, 'app', '1', %(until)s, %(until)s)"
)
_LOOKED: Final = Statement(text("UPDATE tags SET fresh_until = 0"))


async def cache(install: Install, name: str) -> None:
    """Make a repository one that the cache has filled."""
    await install.database.write(lambda tx: tx.execute(_CACHE, name=name))
    await install.database.write(lambda tx: tx.execute(_LOOKED))


async def make(client: httpx.AsyncClient, prefix: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    answer = await client.post(PATH, json={"prefix": prefix, "upstream_url": QUAY} | fields)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["pull_through_cache_rule"]
    assert answer.headers["location"] == f"{PATH}/{found['id']}"
    return found


@on_both_databases
async def test_a_rule_is_made_changed_and_deleted(
    install: Install, client: httpx.AsyncClient
) -> None:
    rule = await make(client, "mirrors/quay", keep_unpulled_days=30)
    account = rule["crn"].split(":")[3]
    assert rule["crn"] == f"crn:registry:local:{account}:pull-through-cache-rule/mirrors/quay"
    assert rule["uri"].endswith("/acme/mirrors/quay")
    assert (rule["upstream_url"], rule["upstream_prefix"]) == (QUAY, "")
    assert (rule["tag_ttl_seconds"], rule["negative_ttl_seconds"]) == (3600, 60)
    assert (rule["keep_unpulled_days"], rule["max_bytes"]) == (30, None)
    assert rule["enabled"] is True
    assert (rule["credential"], rule["last_success_at"], rule["faults"]) == (None, None, [])
    assert (rule["stats"]["hits"], rule["stats"]["cached_bytes"]) == (0, 0)
    one = f"{PATH}/{rule['id']}"
    assert (await client.get(one)).json() == {"pull_through_cache_rule": rule}
    first = await make(client, "docker-hub", upstream_url="https://DOCKER.io/")
    assert first["upstream_url"] == "https://registry-1.docker.io"
    page = (await client.get(f"{PATH}?limit=1")).json()
    rest = (await client.get(f"{PATH}?limit=1&marker={page['meta']['marker']}")).json()
    assert page["pull_through_cache_rules"] == [first]
    assert rest["pull_through_cache_rules"] == [rule]
    assert page["meta"]["total"] == 2

    changes = {"tag_ttl_seconds": 60, "keep_unpulled_days": None, "max_bytes": 1000}
    changed = (await client.patch(one, json=changes | {"enabled": False})).json()
    after = changed["pull_through_cache_rule"]
    assert {**after, "updated_at": None} == {
        **rule,
        **changes,
        "enabled": False,
        "updated_at": None,
    }
    refused(await client.patch(one, json={"prefix": "other"}), 400, "INVALID_INPUT")
    found = await install.database.read(find_rule_for, "acme", "mirrors/quay/team/app")
    assert found is not None
    assert (found.id, found.enabled) == (rule["id"], False)
    assert await install.database.read(find_rule_for, "acme", "mirrors/quay") is None

    assert (await client.delete(one)).status_code == 204
    for answer in (
        await client.get(one),
        await client.delete(one),
        await client.patch(one, json={}),
    ):
        refused(answer, 404, "NOT_FOUND")


async def test_a_secret_is_never_shown_nor_sent_to_another_upstream(
    install: Install, client: httpx.AsyncClient
) -> None:
    given = {"username": "robot", "secret": CANARY}
    rule = await make(client, "quay", credential=given)
    assert rule["credential"] == {"username": "robot", "has_secret": True}
    one = f"{PATH}/{rule['id']}"

    async def stored() -> Credential | None:
        found = await install.database.read(find_rule_for, "acme", "quay/app")
        assert found is not None
        assert CANARY.encode() not in (found.secret_sealed or b"")
        return credential_of(install.keyring, found)

    assert await stored() == Credential("robot", CANARY)
    assert CANARY not in repr(await stored())
    elsewhere = {"upstream_url": "https://attacker.example.com"}
    refused(await client.patch(one, json=elsewhere), 400, "INVALID_INPUT", "credential")
    assert await stored() == Credential("robot", CANARY)
    assert (await client.patch(one, json={"upstream_url": QUAY + "/"})).status_code == 200
    texts = [(await client.get(path)).text for path in (one, PATH, "/v1/audit-events")]
    assert not any(CANARY in text for text in texts)
    answer = await client.patch(one, json=elsewhere | {"credential": None})
    assert answer.json()["pull_through_cache_rule"]["credential"] is None
    assert await stored() is None


_WRONG: Final = (
    ("prefix", "a/b/c/d"),
    ("prefix", "Upper"),
    ("prefix", "/a"),
    ("prefix", "a/"),
    ("prefix", "a" * 201),
    ("upstream_url", "http://quay.io"),
    ("upstream_url", "https://127.0.0.1"),
    ("upstream_url", "https://10.0.0.1:5000"),
    ("upstream_url", "https://[::1]"),
    ("upstream_url", "https://user:secret@quay.io"),
    ("upstream_url", "https://quay.io/v2/"),
    ("upstream_url", "https://quay.io?a"),
    ("upstream_url", "quay.io/path"),
    ("upstream_prefix", "/library"),
    ("upstream_prefix", "Library"),
    ("tag_ttl_seconds", 59),
    ("negative_ttl_seconds", -1),
    ("max_bytes", 0),
    ("keep_unpulled_days", 0),
    ("credential.username", {"username": "a:b", "secret": "x"}),
    ("credential.secret", {"username": "a", "secret": "x\r\nHost: b"}),
)


async def test_what_is_no_rule_is_refused(client: httpx.AsyncClient) -> None:
    one = f"{PATH}/{(await make(client, 'mirror'))['id']}"
    for field, value in _WRONG:
        changed = {field.partition(".")[0]: value}
        body = {"prefix": "quay", "upstream_url": QUAY} | changed
        refused(await client.post(PATH, json=body), 400, "INVALID_INPUT", field)
        if field != "prefix":
            refused(await client.patch(one, json=changed), 400, "INVALID_INPUT", field)


@on_both_databases
async def test_prefixes_do_not_overlap(install: Install, client: httpx.AsyncClient) -> None:
    await make(client, "a/b")
    for prefix in ("a/b", "a", "a/b/c"):
        answer = await client.post(PATH, json={"prefix": prefix, "upstream_url": QUAY})
        refused(answer, 409, "CONFLICT")
    for prefix in ("a/bc", "ab", "a/c"):
        await make(client, prefix)
    await make(await client_of(install, "other"), "a/b")


async def test_a_rule_too_many_is_refused(install: Install, client: httpx.AsyncClient) -> None:
    assert CACHE_RULE.quota == 50
    await install.database.write(put_limit, EVERY_ACCOUNT, "pull_through_cache_rules", 1, 1)
    await make(client, "quay")
    answer = await client.post(PATH, json={"prefix": "ghcr", "upstream_url": QUAY})
    params = refused(answer, 403, "QUOTA_EXCEEDED")
    assert params == {"quota": "pull_through_cache_rules", "limit": 1, "used": 1}


async def test_names_of_a_rule_are_its_own(install: Install) -> None:
    """No rule comes over a pushed repository, and no repository under a rule."""
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    client = signed_in(install, program)
    there = await create(client, "quay/app")
    body = {"prefix": "quay", "upstream_url": QUAY}
    refused(await client.post(PATH, json=body), 409, "CONFLICT")
    assert (await client.delete(f"/v1/repositories/{there['id']}")).status_code == 204
    rule = await make(client, "quay")

    restored = await client.post(f"/v1/repositories/{there['id']}/restore")
    refused(restored, 409, "CONFLICT")
    assert "pull-through" in restored.json()["error"]["message"]
    refused(await client.post("/v1/repositories", json={"name": "quay/x"}), 409, "CONFLICT")
    pushing = await pusher(install, program, "acme/quay/x")
    answer = await pushing.docker.post("/v2/acme/quay/x/blobs/uploads/")
    assert answer.status_code == 405, answer.text
    assert answer.json()["errors"][0]["code"] == "UNSUPPORTED"
    assert (await client.get("/v1/repositories")).json()["repositories"] == []
    for beside in ("quay", "quayside/x", "team/quay/x"):
        await create(client, beside)

    assert (await client.delete(f"{PATH}/{rule['id']}")).status_code == 204
    assert (await client.post(f"/v1/repositories/{there['id']}/restore")).status_code == 200


@on_both_databases
async def test_a_rule_and_a_repository_at_once_never_both_stand(client: httpx.AsyncClient) -> None:
    for number in range(5):
        prefix = f"p{number}"
        answers = await asyncio.gather(
            client.post("/v1/repositories", json={"name": f"{prefix}/app"}),
            client.post(PATH, json={"prefix": prefix, "upstream_url": QUAY}),
        )
        assert sorted(answer.status_code for answer in answers) == [201, 409]


async def test_a_new_rule_takes_over_what_an_earlier_one_cached(install: Install) -> None:
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    client = signed_in(install, program)
    await (await pusher(install, program, "acme/quay/app")).image(b"layer", tag="v1")
    await cache(install, "quay/app")
    rule = await make(client, "quay")
    assert (rule["stats"]["cached_images"], rule["stats"]["cached_bytes"]) == (1, 7)


async def test_no_rule_goes_on_unseen_once_the_region_is_renamed(
    install: Install, client: httpx.AsyncClient
) -> None:
    rule = await make(client, "quay")
    await install.database.write(lambda tx: tx.execute(_MOVE))
    found = (await client.get(PATH)).json()
    assert [each["id"] for each in found["pull_through_cache_rules"]] == [rule["id"]]
    assert found["meta"]["total"] == 1
    assert (await client.delete(f"{PATH}/{rule['id']}")).status_code == 204
    assert await install.database.read(find_rule_for, "acme", "quay/app") is None


@pytest.mark.postgresql
async def test_pulls_store_what_they_learn_while_their_rule_is_changed(
    install: Install, client: httpx.AsyncClient, postgresql_database: str
) -> None:
    rule = await make(client, "quay")
    account_id, now = rule["crn"].split(":")[3], install.clock()

    def change(tx: Connection) -> None:
        update_rule(tx, account_id, rule["id"], {"enabled": False}, now)
        with psycopg.connect(postgresql_database) as other:
            other.execute("SET lock_timeout = '5s'")
            other.execute(_NOTE, {"rule_id": rule["id"], "until": now + 1})

    await install.database.write(change)
    assert await install.database.read(lookups.is_absent, rule["id"], "app", "1", now)


async def test_a_policy_can_name_a_rule_by_its_prefix(install: Install) -> None:
    admin = await client_of(install, "acme")
    account = (await make(admin, "quay"))["crn"].split(":")[3]
    rule = await make(admin, "ghcr")
    found = await install.database.read(find_account, account)
    assert found is not None
    some = allow("registry:*", on=f"crn:registry:*:{account}:pull-through-cache-rule/g*")
    program = await install.add_program(found, "some", some)
    client = signed_in(install, program)
    assert (await client.get(f"{PATH}/{rule['id']}")).status_code == 200
    refused(await client.get(PATH), 403, "ACCESS_DENIED")
    body = {"prefix": "hub", "upstream_url": QUAY}
    refused(await client.post(PATH, json=body), 403, "ACCESS_DENIED")
    assert (await client.post(PATH, json=body | {"prefix": "g2"})).status_code == 201


async def test_an_upstream_that_no_one_finds_is_told(client: httpx.AsyncClient) -> None:
    rule = await make(client, "mirror", upstream_url="https://upstream.invalid")
    asked = f"{PATH}/{rule['id']}/test"
    answer = await client.post(asked)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told.pop("message").startswith("upstream.invalid cannot be reached: its name")
    assert told | {"latency_ms": 0} == {
        "ok": False,
        "stage": "dns",
        "http_status": None,
        "latency_ms": 0,
    }
    for wrong in ({"repository": "UPPER"}, {"repository": "a", "tag": "a b"}):
        refused(await client.post(asked, json=wrong), 400, "INVALID_INPUT")


@on_both_databases
async def test_faults_and_the_budget_of_the_upstream_are_shown(
    install: Install, client: httpx.AsyncClient
) -> None:
    rule = await make(client, "quay")
    refusal = UpstreamRefused("quay.io refuses the credential")
    refusal.http_status = 401
    now = install.clock()
    await install.database.write(record_failure, rule["id"], refusal, now)
    await install.database.write(record_failure, rule["id"], refusal, now + 1_000_000)
    await install.database.write(record_success, rule["id"], RateLimit(100, 7, 21600), now)
    for shown in (
        (await client.get(f"{PATH}/{rule['id']}")).json()["pull_through_cache_rule"],
        (await client.get(PATH)).json()["pull_through_cache_rules"][0],
    ):
        (fault,) = shown["faults"]
        assert (fault["code"], fault["severity"]) == ("UPSTREAM_REFUSED", "error")
        assert fault["message"] == "quay.io refuses the credential"
        assert fault["details"] == {"stage": "auth", "http_status": "401"}
        assert fault["occurrences"] == 2
        assert fault["first_at"] < fault["last_at"]
        assert shown["stats"]["budget_left"] == 7
        assert shown["last_success_at"] is not None


CHANGES: Final[tuple[tuple[dict[str, Any], bool, bool], ...]] = (
    ({"credential": {"username": "me", "secret": CANARY}}, False, False),
    ({"upstream_url": "https://ghcr.io"}, False, False),
    ({"upstream_prefix": "team"}, False, False),
    ({"tag_ttl_seconds": 61}, True, True),
    ({"negative_ttl_seconds": 59}, True, False),
    ({"negative_ttl_seconds": 60}, True, True),
    ({"negative_ttl_seconds": 61}, True, True),
)
"""A change of a rule, and whether its pause and an absence of 60 seconds hold after it."""


async def test_a_limit_holds_for_the_upstream_and_the_credential_that_it_was_told_to(
    install: Install, client: httpx.AsyncClient
) -> None:
    """And what is not upstream is asked for anew once it is to be remembered for less."""
    until = install.clock() + 60_000_000
    limited = UpstreamLimited("quay.io wants fewer requests (status 429)", until)
    for number, (fields, is_paused, is_absent) in enumerate(CHANGES):
        rule_id = (await make(client, f"quay{number}"))["id"]
        absent = rule_id, f"quay{number}/app", "1"
        await install.database.write(record_failure, rule_id, limited, install.clock())
        await install.database.write(lookups.note_absence, *absent, until)
        changed = (await client.patch(f"{PATH}/{rule_id}", json=fields)).json()
        assert (changed["pull_through_cache_rule"]["paused_until"] is not None) == is_paused, fields
        found = await install.database.read(lookups.is_absent, *absent, install.clock())
        assert found == is_absent, fields
