"""Lists of cached repositories: their tags, and the referrers of their images."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.metadata.pull_through import lookups
from registry.metadata.pull_through.lookups import KeptTags, find_tags, keep_tags
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from registry.oci.reference import Name
from registry.services.pull_through import concurrency
from registry.upstream.base import HiddenUpstream, NotUpstream, UpstreamUnreachable
from tests.databases import on_both_databases
from tests.inprocess import Answer, Client
from tests.integration.mirror_world import APP, HANDLE, NAME, NEGATIVE_TTL, TTL, CachedWorld
from tests.manifest_upstream import described

DOWN = UpstreamUnreachable("the connection was reset")
UNREACHABLE = '299 - "upstream unreachable"'


@pytest.fixture
def tagged(cached: CachedWorld) -> CachedWorld:
    """Return workers whose upstream has some tags."""
    cached.upstream.add_image(APP, "1", "2", "v10", "v9")
    return cached


async def tags(cached: CachedWorld, query: str = "", *, worker: int = 0) -> list[str]:
    """Return the tags of a successful list."""
    answer = await cached.ask("GET", f"tags/list{query}", worker=worker)
    assert answer.status == 200, answer
    listed: list[str] = answer.json()["tags"]
    return listed


def code_of(answer: Answer) -> tuple[int, str]:
    """Return the status and the code of an error."""
    return answer.status, answer.json()["errors"][0]["code"]


async def test_they_are_the_upstreams_before_and_after_the_first_pull(tagged: CachedWorld) -> None:
    assert await tags(tagged) == ["1", "2", "v10", "v9"]
    assert tagged.rows("SELECT count(*) FROM repositories") == [(0,)]
    assert (await tagged.pull("1")).status == 200
    assert await tags(tagged) == ["1", "2", "v10", "v9"]
    assert tagged.upstream.count("TAGS") == 1


@on_both_databases
async def test_a_list_is_told_by_all_workers_for_the_rules_time(tagged: CachedWorld) -> None:
    await tags(tagged)
    tagged.upstream.add_image(APP, "3")
    tagged.clock.advance(TTL - 1)
    assert "3" not in await tags(tagged, worker=1)
    tagged.clock.advance(1)
    assert "3" in await tags(tagged, worker=1)
    assert "3" in await tags(tagged)
    assert tagged.upstream.count("TAGS") == 2


async def test_many_who_ask_at_once_are_one_question(tagged: CachedWorld) -> None:
    tagged.upstream.go_on.clear()
    asking = [asyncio.create_task(tags(tagged)) for _ in range(20)]
    await tagged.upstream.was_asked.wait()
    tagged.upstream.go_on.set()
    assert {len(found) for found in await asyncio.gather(*asking)} == {4}
    assert tagged.upstream.count("TAGS") == 1


async def test_pages_are_of_what_is_here_and_what_is_there(tagged: CachedWorld) -> None:
    for tag in ("2", "v9"):
        assert (await tagged.pull(tag)).status == 200
    del tagged.upstream.manifests[APP, "v9"]
    for size in (1, 2, 3):
        found: list[str] = []
        path = f"tags/list?n={size}"
        while path:
            answer = await tagged.ask("GET", path)
            names = answer.json()["tags"]
            assert len(names) <= size
            found += names
            link = answer.headers.get("link", "")
            path = link.partition("/tags/")[2].partition(">")[0]
            path = f"tags/{path}" if path else ""
            assert bool(link) == (found != ["1", "2", "v10", "v9"])
        assert found == ["1", "2", "v10", "v9"]
    assert await tags(tagged, "?n=0") == []
    assert await tags(tagged, "?last=v") == ["v10", "v9"]
    tagged.upstream.add_image(APP, "zeta")
    tagged.clock.advance(TTL)
    assert await tags(tagged) == ["1", "2", "v10", "v9", "zeta"]


async def test_an_old_list_is_told_as_such_when_the_upstream_is_away(tagged: CachedWorld) -> None:
    await tags(tagged)
    tagged.upstream.failure = DOWN
    tagged.clock.advance(TTL + 5)
    answer = await tagged.ask("GET", "tags/list?n=3")
    assert answer.json()["tags"] == ["1", "2", "v10"]
    assert (answer.headers["warning"], answer.headers["age"]) == (UNREACHABLE, str(TTL + 5))
    assert "link" in answer.headers
    tagged.upstream.failure = None
    assert "warning" not in (await tagged.ask("GET", "tags/list")).headers


async def test_what_is_here_is_told_when_the_upstream_never_listed(tagged: CachedWorld) -> None:
    tagged.upstream.failure = DOWN
    answer = await tagged.ask("GET", "tags/list")
    assert (answer.status, answer.headers["retry-after"]) == (503, "30"), "nothing is known"
    tagged.upstream.failure = None
    assert (await tagged.pull("2")).status == 200
    tagged.upstream.failure = DOWN
    answer = await tagged.ask("GET", "tags/list")
    assert (answer.status, answer.json()["tags"]) == (200, ["2"])
    assert answer.headers["warning"] == UNREACHABLE
    assert "age" not in answer.headers


async def test_while_too_much_is_asked_of_upstreams_what_is_here_is_told(
    tagged: CachedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = await tagged.pulled("v1")
    for bound in ("MOST_AT_ONCE", "MOST_WAITING"):
        monkeypatch.setattr(concurrency, bound, 0)
    tagged.clock.advance(TTL)
    tagged.upstream.asked.clear()
    answer = await tagged.pull("v1")
    assert (answer.status, answer.headers["docker-content-digest"]) == (200, digest)
    assert await tags(tagged) == ["v1"]
    for path in ("tags/list", "manifests/v1"):
        answer = await tagged.ask("GET", path, name=Name(HANDLE, "hub/team/other"))
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert tagged.upstream.asked == []


async def test_what_the_upstream_does_not_have_is_404_and_asked_for_again_later(
    tagged: CachedWorld,
) -> None:
    for repository, failure in (("none", None), ("hidden", HiddenUpstream("it does not show it"))):
        other = Name(HANDLE, f"hub/team/{repository}")
        tagged.upstream.asked.clear()
        tagged.upstream.failure = failure
        for _ in range(3):
            answer = await tagged.ask("GET", "tags/list", name=other)
            assert code_of(answer) == (404, "NAME_UNKNOWN")
            assert "retry-after" not in answer.headers
        assert tagged.upstream.count("TAGS") == 1
        tagged.clock.advance(NEGATIVE_TTL)
        tagged.upstream.failure = None
        tagged.upstream.add_image(f"team/{repository}", "1")
        answer = await tagged.ask("GET", "tags/list", name=other)
        assert answer.json() == {"name": str(other), "tags": ["1"]}


async def test_a_list_that_is_gone_or_hidden_now(tagged: CachedWorld) -> None:
    await tags(tagged)
    assert (await tagged.pull("2")).status == 200
    tagged.clock.advance(TTL)
    tagged.upstream.failure = HiddenUpstream("it does not show it")  # to this credential, for now
    answer = await tagged.ask("GET", "tags/list")
    assert len(answer.json()["tags"]) == 4
    assert answer.headers["warning"] == UNREACHABLE
    tagged.upstream.failure = None
    tagged.upstream.manifests.clear()
    answer = await tagged.ask("GET", "tags/list")
    assert answer.json()["tags"] == ["2"]
    assert "warning" not in answer.headers
    assert tagged.rows("SELECT count(*) FROM upstream_tag_lists") == [(0,)]


async def test_a_disabled_rule_tells_what_it_knows(tagged: CachedWorld) -> None:
    await tags(tagged)
    under_no_rule = await tagged.ask("GET", "tags/list", name=Name(HANDLE, "elsewhere/app"))
    assert code_of(under_no_rule) == (404, "NAME_UNKNOWN")
    await tagged.switch(on=False)
    tagged.clock.advance(TTL)
    assert len(await tags(tagged)) == 4
    other = await tagged.ask("GET", "tags/list", name=Name(HANDLE, "hub/team/other"))
    assert code_of(other) == (404, "NAME_UNKNOWN")
    assert [each.method for each in tagged.upstream.asked] == ["TAGS"]


async def test_a_list_that_was_cut_says_so(tagged: CachedWorld) -> None:
    tagged.upstream.lists_all_tags = False
    for _ in range(2):
        answer = await tagged.ask("GET", "tags/list")
        assert answer.headers["warning"] == '299 - "the upstream has more tags than are listed"'
    assert tagged.upstream.count("TAGS") == 1


@on_both_databases
async def test_the_lists_of_a_rule_are_bounded(
    tagged: CachedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "MAX_BYTES_OF_RULE", 5000)
    ((rule_id,),) = tagged.rows("SELECT id FROM pull_through_cache_rules")
    for number in range(10):
        kept = KeptTags(b"x" * 1000, True, number, number)
        await tagged.ctx.database.write(keep_tags, rule_id, f"hub/{number}", kept)
    found = [
        await tagged.ctx.database.read(find_tags, rule_id, f"hub/{number}") for number in range(10)
    ]
    assert [each is not None for each in found] == [False] * 7 + [True] * 3


@on_both_databases
async def test_lists_that_nobody_asked_for_are_forgotten(tagged: CachedWorld) -> None:
    await tags(tagged)
    week = 7 * 24 * 3600
    tagged.clock.advance(TTL + week - 1)
    assert await tagged.ctx.database.write(lookups.forget_tags, tagged.clock()) == 0
    tagged.clock.advance(1)
    assert await tagged.ctx.database.write(lookups.forget_tags, tagged.clock()) == 1


def signature(kind: str = "application/signature") -> dict[str, Any]:
    return described(kind.encode(), OCI_MANIFEST) | {
        "artifactType": kind,
        "annotations": {"made": "once"},
    }


def index(*descriptors: dict[str, Any]) -> bytes:
    listed = [{**each, "urls": ["https://evil.example"]} for each in descriptors]
    return json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}).encode()


@on_both_databases
async def test_an_upstream_is_asked_once_while_its_answer_is_fresh(cached: CachedWorld) -> None:
    subject = await cached.pulled()
    cached.upstream.referrers[subject] = index(signature(), signature("application/sbom"))
    for _ in range(2):
        answer = await cached.ask("GET", f"referrers/{subject}")
        assert answer.status == 200
        assert answer.headers["content-type"] == OCI_INDEX
        assert answer.json()["manifests"] == [signature(), signature("application/sbom")]
    some = await cached.ask("GET", f"referrers/{subject}?artifactType=application/sbom")
    assert some.json()["manifests"] == [signature("application/sbom")]
    assert some.headers["oci-filters-applied"] == "artifactType"
    assert cached.upstream.count("REFERRERS") == 1
    cached.upstream.referrers[subject] = index()
    cached.clock.advance(TTL)
    assert await cached.referrers(subject) == []
    assert cached.upstream.count("REFERRERS") == 2


@pytest.mark.parametrize("failure", [DOWN, HiddenUpstream()], ids=["down", "hidden"])
async def test_stale_referrers_tell_their_age(cached: CachedWorld, failure: Exception) -> None:
    subject = await cached.pulled()
    cached.upstream.referrers[subject] = index(signature())
    await cached.referrers(subject)
    cached.clock.advance(TTL)
    cached.upstream.failure = failure
    answer = await cached.ask("GET", f"referrers/{subject}")
    assert answer.json()["manifests"] == [signature()]
    assert answer.headers["warning"] == UNREACHABLE
    assert int(answer.headers["age"]) >= TTL
    await cached.switch(on=False)
    assert "warning" not in (await cached.ask("GET", f"referrers/{subject}")).headers


@pytest.mark.parametrize(("failure", "times"), [(HiddenUpstream(), 2), (NotUpstream(), 1)])
async def test_referrers_that_an_upstream_does_not_show_are_none(
    cached: CachedWorld, failure: Exception, times: int
) -> None:
    """What is not there is told for a while, what may be hidden from this rule is asked again."""
    subject = await cached.pulled()
    cached.upstream.failure = failure
    for _ in range(2):
        assert await cached.referrers(subject) == []
    assert cached.upstream.count("REFERRERS") == times


async def test_without_an_answer_from_before_a_failure_is_a_503(cached: CachedWorld) -> None:
    subject = await cached.pulled()
    cached.upstream.failure = DOWN
    answer = await cached.ask("GET", f"referrers/{subject}")
    assert answer.status == 503
    assert "retry-after" in answer.headers
    cached.upstream.failure = None
    cached.upstream.referrers[subject] = b"<html>"
    assert (await cached.ask("GET", f"referrers/{subject}")).status == 503


async def test_where_the_api_is_missing_the_tag_of_the_digest_has_them(
    cached: CachedWorld,
) -> None:
    cached.upstream.has_referrers = False
    subject = await cached.pulled()
    assert await cached.referrers(subject) == []
    signed = cached.upstream.add_image(APP, layers=(b"signature",), artifactType="a/signature")
    cached.upstream.add_index(APP, subject.replace(":", "-"), of=(signed,))
    cached.clock.advance(TTL)
    listed = await cached.referrers(subject)
    assert [each["digest"] for each in listed] == [signed]
    assert (await cached.pull(signed)).status == 200
    await cached.check()


async def test_signatures_by_cosigns_tags_are_tags(cached: CachedWorld) -> None:
    subject = cached.upstream.add_image(APP, "v1")
    tag = f"{subject.replace(':', '-')}.sig"
    assert (await cached.pull(tag)).status == 404
    cached.upstream.add_image(APP, tag, layers=(b"signature",))
    cached.clock.advance(TTL)
    assert (await cached.pull(tag)).status == 200


async def test_what_is_asked_before_the_first_pull_makes_no_repository(cached: CachedWorld) -> None:
    null = b'{"schemaVersion": 2, "manifests": null}'
    for layer, listed, found in (
        (b"1", index(signature()), [signature()]),
        (b"2", null, []),
    ):
        subject = cached.upstream.add_image(APP, layers=(layer,))
        cached.upstream.referrers[subject] = listed
        assert await cached.referrers(subject) == found
    assert cached.rows("SELECT name FROM repositories") == []


async def test_nothing_is_kept_of_what_is_not_here(cached: CachedWorld) -> None:
    subject = await cached.pulled()
    for number in range(3):
        other = digest_of(b"%d" % number)
        assert await cached.referrers(other) == []
    assert cached.rows("SELECT subject FROM cached_referrers") == []
    await cached.ask("GET", f"referrers/{subject}")
    assert cached.rows("SELECT subject FROM cached_referrers") == [(subject,)]


async def test_without_an_upstream_those_that_are_cached_are_listed(cached: CachedWorld) -> None:
    subject = cached.upstream.add_image(APP, "v1")
    signed = cached.upstream.add_image(
        APP, layers=(b"s",), subject=described(cached.upstream.manifests[APP, "v1"], OCI_MANIFEST)
    )
    await cached.pull("v1")
    await cached.pull(signed)
    client = Client(DataPlane(replace(cached.ctx, upstream=None), OpenAccess(HANDLE)))
    answer = await client.request("GET", f"/v2/{NAME}/referrers/{subject}")
    assert [each["digest"] for each in answer.json()["manifests"]] == [signed]
