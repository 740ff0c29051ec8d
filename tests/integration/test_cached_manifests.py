"""Manifests by way of the pull-through cache: fetched once, fresh for a while, stale if need be."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import bindparam, text

from cloudcore.clock import MICROSECONDS
from cloudcore.db.statement import Statement
from cloudcore.keyring import KeyringError
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from cloudcore.quotas.limits import put_limit
from cloudcore.serving.asgi import Message
from cloudcore.serving.kept_answers import EXTENSION as KEEP
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.metadata.pull_through.lookups import begin_fetch
from registry.metadata.pull_through.rules import find_rule_for
from registry.metadata.pull_through.tables import pull_through_cache_rules
from registry.metadata.repositories.repository import find_account
from registry.metadata.tables import repositories
from registry.oci.reference import Name
from registry.services.pull_through import fetched_manifests
from registry.services.pull_through.fetched_manifests import CLAIM_SECONDS
from registry.services.pull_through.upstream_states import REFUSED, UpstreamWatch
from registry.upstream.base import (
    Credential,
    HiddenUpstream,
    UpstreamLimited,
    UpstreamRefused,
    UpstreamUnreachable,
)
from registry.upstream.client import RegistryClient
from tests.databases import on_both_databases
from tests.inprocess import Answer, Client
from tests.integration.counting import CountingDatabase
from tests.integration.mirror_world import (
    APP,
    HANDLE,
    NAME,
    NEGATIVE_TTL,
    TTL,
    CachedWorld,
)
from tests.manifest_upstream import Asked

_CHANGE = Statement(
    pull_through_cache_rules.update().values(
        {name: bindparam(name) for name in ("upstream_url", "upstream_prefix")}
    )
)
_MAKE_IMMUTABLE = Statement(repositories.update().values(tag_mutability=text("'immutable'")))
DOWN = UpstreamUnreachable("the name does not resolve")


@on_both_databases
async def test_a_tag_is_fetched_once_and_asked_for_again_when_it_is_no_longer_fresh(
    cached: CachedWorld,
) -> None:
    digest = cached.upstream.add_image(APP, "v1")
    for _ in range(3):
        answer = await cached.pull("v1")
        assert answer.status == 200
        assert answer.headers["docker-content-digest"] == digest
    assert cached.upstream.asked == [Asked("GET", APP, "v1")]
    assert (await cached.pull(digest)).body == answer.body
    cached.clock.advance(TTL)
    assert (await cached.pull("v1")).status == 200
    assert (await cached.pull("v1")).status == 200
    assert [each.method for each in cached.upstream.asked] == ["GET", "HEAD"]
    cached.clock.advance(TTL)
    cached.upstream.tells_etag = False
    assert (await cached.pull("v1")).status == 200
    assert [each.method for each in cached.upstream.asked] == ["GET", "HEAD", "HEAD"]
    await cached.check()
    source = "SELECT name, source FROM repositories"
    assert cached.rows(source) == [(NAME.repository, "pull_through_cache")]


async def test_a_tag_that_has_moved_follows(cached: CachedWorld) -> None:
    first = cached.upstream.add_image(APP, "v1", layers=(b"one",))
    await cached.pull("v1")
    second = cached.upstream.add_image(APP, "v1", layers=(b"two",))
    assert (await cached.pull("v1")).headers["docker-content-digest"] == first
    cached.clock.advance(TTL)
    assert (await cached.pull("v1")).headers["docker-content-digest"] == second
    assert (await cached.pull(first)).status == 200
    events = cached.rows("SELECT action, digest, principal FROM tag_events ORDER BY sequence")
    assert [event[:2] for event in events] == [("created", first), ("moved", second)]
    assert all("pull-through-cache-rule/" in event[2] for event in events)
    await cached.check()


async def test_without_etag_and_digest_the_manifest_is_fetched_to_compare_it(
    cached: CachedWorld,
) -> None:
    cached.upstream.tells_digest = cached.upstream.tells_etag = False
    digest = await cached.pulled()
    cached.clock.advance(TTL)
    for _ in range(2):
        assert (await cached.pull("v1")).headers["docker-content-digest"] == digest
    assert [each.method for each in cached.upstream.asked] == ["GET", "HEAD", "GET"]


async def test_without_room_for_an_image_a_new_one_is_refused_and_an_old_one_served(
    cached: CachedWorld,
) -> None:
    account = await cached.ctx.database.read(find_account, HANDLE)
    assert account is not None
    old = cached.upstream.add_image(APP, "v1", layers=(b"old",))
    assert (await cached.pull("v1")).status == 200
    await cached.ctx.database.write(put_limit, account.id, "images", 1, 1)
    cached.upstream.add_image(APP, "v2", layers=(b"other",))
    refused = await cached.pull("v2")
    assert (refused.status, refused.codes) == (403, ["DENIED"])
    detail = {"quota": "images", "limit": 1, "used": 1}
    assert refused.json()["errors"][0]["detail"] == detail
    cached.upstream.add_image(APP, "v1", layers=(b"new",))
    cached.clock.advance(TTL)
    stale = await cached.pull("v1")
    assert (stale.status, stale.headers["docker-content-digest"]) == (200, old)
    assert "warning" in stale.headers
    await cached.check()
    await cached.ctx.database.write(put_limit, account.id, "images", 3, 1)
    cached.clock.advance(TTL)
    assert (await cached.pull("v1")).headers["docker-content-digest"] != old
    assert (await cached.pull("v2")).status == 200


async def test_a_stored_digest_and_a_limited_upstream_are_not_asked_again(
    cached: CachedWorld,
) -> None:
    alone = cached.upstream.add_image(APP, layers=(b"alone",))
    assert (await cached.pull(alone)).status == 200
    digest = await cached.pulled()
    cached.clock.advance(100 * TTL)
    cached.upstream.failure = UpstreamLimited("429", cached.clock() + 300 * MICROSECONDS)
    for stored in (digest, alone):
        answer = await cached.pull(stored)
        assert answer.status == 200
        assert "warning" not in answer.headers
    await cached.pull("v1")
    cached.clock.advance(200)
    assert "warning" in (await cached.pull("v1")).headers
    assert [each.method for each in cached.upstream.asked] == ["GET", "GET", "HEAD"]


@on_both_databases
async def test_a_hundred_pulls_of_a_new_tag_are_one_request_upstream(cached: CachedWorld) -> None:
    cached.upstream.add_image(APP, "v1")
    cached.upstream.go_on.clear()
    pulls = [asyncio.create_task(cached.pull("v1")) for _ in range(100)]
    await cached.upstream.was_asked.wait()
    pulls[0].cancel()  # the one that began it leaves
    cached.upstream.go_on.set()
    answers = await asyncio.gather(*pulls[1:])
    assert {answer.status for answer in answers} == {200}
    assert cached.upstream.asked == [Asked("GET", APP, "v1")]


@on_both_databases
async def test_workers_wait_for_the_one_that_fetches(cached: CachedWorld) -> None:
    cached.upstream.add_image(APP, "v1")
    cached.upstream.go_on.clear()
    first = asyncio.create_task(cached.pull("v1"))
    await cached.upstream.was_asked.wait()
    second = asyncio.create_task(cached.pull("v1", worker=1))
    while not cached.contexts[1].manifest_fetches.is_busy:  # noqa: ASYNC110 - an event of ours
        await asyncio.sleep(0)
    cached.upstream.go_on.set()
    assert [(await each).status for each in (first, second)] == [200, 200]
    assert cached.upstream.count("GET") == 1


@on_both_databases
async def test_a_worker_that_died_holds_up_others_for_seconds(cached: CachedWorld) -> None:
    cached.upstream.add_image(APP, "v1")
    rule = await cached.ctx.database.read(find_rule_for, HANDLE, NAME.repository)
    assert rule is not None
    now = cached.clock()
    until = now + CLAIM_SECONDS * MICROSECONDS
    place = (rule.id, NAME.repository, "v1")
    assert await cached.ctx.database.write(begin_fetch, *place, now, until)
    waiting = asyncio.create_task(cached.pull("v1"))
    cached.clock.advance(CLAIM_SECONDS - 1)
    await asyncio.sleep(0.1)
    assert cached.upstream.count("GET") == 0
    cached.clock.advance(1)
    assert (await waiting).status == 200


@on_both_databases
async def test_a_worker_that_fetches_for_long_keeps_its_claim(
    cached: CachedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_manifests, "RENEW_SECONDS", 0.01)
    cached.upstream.add_image(APP, "v1")
    cached.upstream.go_on.clear()
    first = asyncio.create_task(cached.pull("v1"))
    await cached.upstream.was_asked.wait()
    cached.clock.advance(CLAIM_SECONDS - 1)
    kept = "SELECT 1 FROM upstream_lookups WHERE fetching_until > ?"
    while not cached.rows(kept, cached.clock() + MICROSECONDS):  # noqa: ASYNC110 - a row
        await asyncio.sleep(0.01)
    cached.clock.advance(CLAIM_SECONDS - 1)
    second = asyncio.create_task(cached.pull("v1", worker=1))
    await asyncio.sleep(0.1)
    cached.upstream.go_on.set()
    assert [(await each).status for each in (first, second)] == [200, 200]
    assert cached.upstream.count("GET") == 1


@on_both_databases
async def test_one_caller_looks_at_a_tag_and_others_have_the_old_answer(
    cached: CachedWorld,
) -> None:
    old = cached.upstream.add_image(APP, "v1", layers=(b"one",))
    await cached.pull("v1")
    new = cached.upstream.add_image(APP, "v1", layers=(b"two",))
    cached.clock.advance(TTL)
    cached.upstream.go_on.clear()
    cached.upstream.was_asked.clear()
    looking = asyncio.create_task(cached.pull("v1"))
    await cached.upstream.was_asked.wait()
    other = await cached.pull("v1", worker=1)
    assert other.headers["docker-content-digest"] == old
    cached.upstream.go_on.set()
    assert (await looking).headers["docker-content-digest"] == new
    assert cached.upstream.count("HEAD") == 1


async def test_a_stale_answer_tells_its_age(cached: CachedWorld) -> None:
    failures = (DOWN, UpstreamRefused("403"), UpstreamLimited("429", 0), HiddenUpstream())
    for tag, failure in zip("abcd", failures, strict=True):
        digest = await cached.pulled(tag)
        cached.clock.advance(TTL)
        cached.upstream.asked.clear()
        cached.upstream.failure = failure
        for _ in range(2):  # the upstream is not asked at once again
            answer = await cached.pull(tag)
            assert (answer.status, answer.headers["docker-content-digest"]) == (200, digest)
            assert answer.headers["warning"] == '299 - "upstream unreachable"'
            assert TTL <= int(answer.headers["age"]) <= TTL + 1
        assert cached.upstream.count("HEAD") == 1
        cached.upstream.failure = None
        cached.clock.advance(30)
        assert not {"warning", "age"} & (await cached.pull(tag)).headers.keys()
        assert cached.upstream.count("HEAD") == 2


async def test_a_secret_that_does_not_open_is_a_fault_and_no_bug(cached: CachedWorld) -> None:
    def locked(_rule: CacheRule) -> Credential | None:
        raise KeyringError

    digest = await cached.pulled()
    cached.clock.advance(TTL)
    ctx = cached.ctx
    with closing(HttpClient(Allowed("X"))) as http:
        upstream = RegistryClient(http, ctx.clock, UpstreamWatch(ctx.database, ctx.clock))
        ctx = replace(ctx, upstream=upstream, cache_credential=locked)
        client = Client(DataPlane(ctx, OpenAccess(HANDLE)))
        answer = await client.request("GET", f"/v2/{NAME}/manifests/v1")
        assert (answer.status, answer.headers["docker-content-digest"]) == (200, digest)
        assert answer.headers["warning"] == '299 - "upstream unreachable"'
        for path in ("manifests/v2", f"blobs/{digest}", f"referrers/{digest}"):
            answer = await client.request("GET", f"/v2/{NAME}/{path}")
            assert answer.status == 503
            assert b"root key" in answer.body
        assert (await client.request("HEAD", f"/v2/{NAME}/blobs/{digest}")).status == 503
    faults = cached.rows("SELECT code, message FROM upstream_faults")
    assert [(code, "root key" in message) for code, message in faults] == [(REFUSED, True)]


async def test_without_anything_cached_a_failure_is_a_503(cached: CachedWorld) -> None:
    for tag, failure in (
        ("a", DOWN),
        ("b", UpstreamRefused("401")),
        ("c", UpstreamLimited("429", 0)),
    ):
        cached.upstream.failure = failure
        answer = await cached.pull(tag)
        assert (answer.status, answer.codes) == (503, ["UNKNOWN"])
        assert int(answer.headers["retry-after"]) >= 1
        assert cached.rows("SELECT name FROM repositories") == []
    cached.upstream.failure = None
    cached.upstream.add_image(APP, "a")
    assert (await cached.pull("a")).status == 200


@on_both_databases
@pytest.mark.parametrize("failure", [None, HiddenUpstream()], ids=["absent", "hidden"])
async def test_what_an_upstream_does_not_show_is_remembered_for_a_while_by_all_workers(
    cached: CachedWorld, failure: Exception | None
) -> None:
    cached.upstream.failure = failure
    for worker in (0, 1, 0):
        answer = await cached.pull("v1", worker=worker)
        assert (answer.status, answer.codes) == (404, ["MANIFEST_UNKNOWN"])
    assert cached.upstream.count("GET") == 1
    cached.upstream.failure = None
    cached.upstream.add_image(APP, "v1")
    cached.clock.advance(NEGATIVE_TTL)
    assert (await cached.pull("v1", worker=1)).status == 200


@pytest.mark.parametrize("is_moved", [True, False], ids=["moved", "gone"])
async def test_an_immutable_tag_stays_though_the_upstream_has_moved_or_deleted_it(
    cached: CachedWorld, is_moved: bool
) -> None:
    digest = await cached.pulled()
    await cached.ctx.database.write(lambda tx: tx.execute(_MAKE_IMMUTABLE))
    if is_moved:
        cached.upstream.add_image(APP, "v1", layers=(b"another",))
    else:
        del cached.upstream.manifests[APP, "v1"]
    cached.clock.advance(TTL)
    for _ in range(2):
        answer = await cached.pull("v1")
        assert (answer.status, answer.headers["docker-content-digest"]) == (200, digest)
        assert "warning" not in answer.headers
        cached.clock.advance(TTL - 1)
    assert cached.upstream.count("HEAD") == 1, "and is asked for again when it is no longer fresh"
    assert cached.rows("SELECT action FROM tag_events") == [("created",)]
    await cached.check()


async def test_a_tag_that_the_upstream_has_no_more_goes_and_its_image_stays(
    cached: CachedWorld,
) -> None:
    digest = await cached.pulled()
    del cached.upstream.manifests[APP, "v1"]
    cached.clock.advance(TTL)
    assert [(await cached.pull("v1")).status for _ in range(2)] == [404, 404]
    assert cached.upstream.count("HEAD") == 1
    assert (await cached.pull(digest)).status == 200
    await cached.check()


async def test_wrong_bytes_are_not_kept(cached: CachedWorld) -> None:
    digest = cached.upstream.add_image(APP, "v1")
    for wrong in (b"<html>", b"{}", cached.upstream.manifests[APP, "v1"] + b"\n"):
        cached.upstream.instead = wrong
        assert (await cached.pull(digest)).status == 503
    cached.upstream.instead = b"<html>"
    assert (await cached.pull("v1")).status == 503
    assert cached.rows("SELECT digest FROM manifests") == []
    assert cached.rows("SELECT digest FROM manifest_bodies") == []
    cached.upstream.instead = None
    assert (await cached.pull(digest)).status == 200


@pytest.mark.parametrize(
    ("prefix", "pulled", "upstream"),
    [
        ("", "hub/alpine", "library/alpine"),
        ("", "hub/team/app", "team/app"),
        ("bitnami", "hub/redis", "bitnami/redis"),
        ("a/b", "hub/team/app", "a/b/team/app"),
    ],
)
async def test_a_name_at_docker_hub_begins_with_the_rules_prefix_or_library(
    cached: CachedWorld, prefix: str, pulled: str, upstream: str
) -> None:
    hub = {"upstream_url": "https://registry-1.docker.io", "upstream_prefix": prefix}
    await cached.ctx.database.write(lambda tx: tx.execute(_CHANGE, **hub))
    cached.upstream.add_image(upstream, "3")
    assert (await cached.pull("3", name=Name(HANDLE, pulled))).status == 200


@pytest.mark.parametrize("is_cached", [False, True])
async def test_nothing_is_pushed_under_a_rule(cached: CachedWorld, is_cached: bool) -> None:
    digest = cached.upstream.add_image(APP, "v1")
    if is_cached:
        await cached.pull("v1")
    body = cached.upstream.manifests[APP, "v1"]
    kind = {"content-type": "application/vnd.oci.image.manifest.v1+json"}
    session = "blobs/uploads/01890000-0000-7000-8000-000000000000"
    refused = [
        await cached.ask("PUT", "manifests/v2", body, kind),
        await cached.ask("PUT", f"manifests/{digest}", body, kind),
        await cached.ask("POST", "blobs/uploads/"),
        await cached.ask("POST", f"blobs/uploads/?digest={digest}", body),
        await cached.ask("POST", f"blobs/uploads/?mount={digest}&from=dev/other"),
        await cached.ask("PATCH", session, b"bytes"),
        await cached.ask("PUT", f"{session}?digest={digest}"),
    ]
    assert [answer.status for answer in refused] == [405] * 7
    assert [answer.headers["allow"] for answer in refused] == [
        *["GET, HEAD, DELETE"] * 2,
        *[""] * 3,
        *["GET, HEAD, DELETE"] * 2,
    ]
    assert {code for answer in refused for code in answer.codes} == {"UNSUPPORTED"}
    if is_cached:
        assert (await cached.ask("DELETE", "manifests/v1")).status == 202
        assert (await cached.ask("DELETE", f"manifests/{digest}")).status == 202
        assert (await cached.pull("v1")).status == 200
        assert cached.upstream.count("GET") == 2
        await cached.check()


async def test_names_elsewhere_are_as_ever_and_the_catalog_lists_what_is_cached(
    cached: CachedWorld,
) -> None:
    name = Name(HANDLE, "own/app")
    assert (await cached.pull("v1", name=name)).codes == ["NAME_UNKNOWN"]
    assert (await cached.ask("POST", "blobs/uploads/", name=name)).status == 202
    assert (await cached.pull("v1", name=name)).codes == ["MANIFEST_UNKNOWN"]
    assert cached.upstream.asked == []
    cached.upstream.add_image("team/other", "v1")
    await cached.pulled()
    catalog: Answer = await cached.clients[0].request("GET", "/v2/_catalog")
    assert catalog.json()["repositories"] == [str(NAME), str(name)]


async def test_a_disabled_rule_and_a_server_without_upstreams_serve_what_is_cached(
    cached: CachedWorld,
) -> None:
    await cached.pulled()
    await cached.switch(on=False)
    cached.clock.advance(2 * TTL)
    apart = Client(DataPlane(replace(cached.ctx, upstream=None), OpenAccess(HANDLE)))
    for client in (cached.clients[0], apart):
        for tag, status in (("v1", 200), ("v2", 404)):
            answer = await client.request("GET", f"/v2/{NAME}/manifests/{tag}")
            assert answer.status == status
        await cached.switch(on=True)
    assert len(cached.upstream.asked) == 1


@on_both_databases
async def test_a_warm_pull_is_one_statement_as_that_of_pushed_content_is(
    cached: CachedWorld,
) -> None:
    digest = await cached.pulled()
    database = CountingDatabase(cached.ctx.database)
    plane = DataPlane(replace(cached.ctx, database=database), OpenAccess(HANDLE))
    for reference in ("v1", digest):
        database.start()
        answer = await Client(plane).request("GET", f"/v2/{NAME}/manifests/{reference}")
        assert answer.status == 200
        assert len(database.seen) == 1


async def test_an_answer_is_kept_no_longer_than_its_tag_is_fresh(cached: CachedWorld) -> None:
    await cached.pulled()
    (fresh_until,) = cached.rows("SELECT fresh_until FROM tags")[0]
    assert (await kept(cached)).until == fresh_until
    cached.clock.advance(TTL)
    cached.upstream.failure = DOWN
    assert await kept(cached) is None


async def kept(cached: CachedWorld) -> Any:  # noqa: ANN401 - a Keep, or None
    """Return how the server may give the answer to a pull again."""
    started: list[Message] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": f"/v2/{NAME}/manifests/v1".encode(),
        "query_string": b"",
        "headers": [],
        "extensions": {KEEP: {}},
    }
    await DataPlane(cached.ctx, LongAccess(HANDLE))(scope, receive, send)
    return started[0].get(KEEP)


class LongAccess(OpenAccess):
    """Access whose credential outlives every tag's freshness."""

    @property
    def expires_at(self) -> int:  # type: ignore[override]
        return 2**60
