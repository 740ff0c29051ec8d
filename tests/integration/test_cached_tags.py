"""The tags of cached repositories: the upstream's, and those that are here."""

from __future__ import annotations

import asyncio

import pytest

from registry.metadata.pull_through import lookups
from registry.metadata.pull_through.lookups import KeptTags, find_tags, keep_tags
from registry.oci.reference import Name
from registry.upstream.base import HiddenUpstream, UpstreamUnreachable
from tests.databases import on_both_databases
from tests.inprocess import Answer
from tests.integration.mirror_world import APP, HANDLE, NEGATIVE_TTL, TTL, CachedWorld

pytestmark = on_both_databases
DOWN = UpstreamUnreachable("the connection was reset")
UNREACHABLE = '299 - "upstream unreachable"'


@pytest.fixture
def cached(cached: CachedWorld) -> CachedWorld:
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


async def test_they_are_the_upstreams_before_and_after_the_first_pull(cached: CachedWorld) -> None:
    assert await tags(cached) == ["1", "2", "v10", "v9"]
    assert cached.rows("SELECT count(*) FROM repositories") == [(0,)]
    assert (await cached.pull("1")).status == 200
    assert await tags(cached) == ["1", "2", "v10", "v9"]
    assert cached.upstream.count("TAGS") == 1


async def test_a_list_is_told_by_all_workers_for_the_rules_time(cached: CachedWorld) -> None:
    await tags(cached)
    cached.upstream.add_image(APP, "3")
    cached.clock.advance(TTL - 1)
    assert "3" not in await tags(cached, worker=1)
    cached.clock.advance(1)
    assert "3" in await tags(cached, worker=1)
    assert "3" in await tags(cached)
    assert cached.upstream.count("TAGS") == 2


async def test_many_who_ask_at_once_are_one_question(cached: CachedWorld) -> None:
    cached.upstream.go_on.clear()
    asking = [asyncio.create_task(tags(cached)) for _ in range(20)]
    await cached.upstream.was_asked.wait()
    cached.upstream.go_on.set()
    assert {len(found) for found in await asyncio.gather(*asking)} == {4}
    assert cached.upstream.count("TAGS") == 1


async def test_what_is_here_alone_is_listed_too(cached: CachedWorld) -> None:
    for tag in ("1", "v9"):
        assert (await cached.pull(tag)).status == 200
    del cached.upstream.manifests[APP, "1"], cached.upstream.manifests[APP, "v9"]
    cached.upstream.add_image(APP, "zeta")
    assert await tags(cached) == ["1", "2", "v10", "v9", "zeta"]


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_pages_are_of_both(cached: CachedWorld, size: int) -> None:
    for tag in ("2", "v9"):
        assert (await cached.pull(tag)).status == 200
    del cached.upstream.manifests[APP, "v9"]
    found: list[str] = []
    path = f"tags/list?n={size}"
    while path:
        answer = await cached.ask("GET", path)
        names = answer.json()["tags"]
        assert len(names) <= size
        found += names
        link = answer.headers.get("link", "")
        path = link.partition("/tags/")[2].partition(">")[0]
        path = f"tags/{path}" if path else ""
        assert bool(link) == (found != ["1", "2", "v10", "v9"])
    assert found == ["1", "2", "v10", "v9"]
    assert await tags(cached, "?n=0") == []
    assert await tags(cached, "?last=v") == ["v10", "v9"]


async def test_an_old_list_is_told_as_such_when_the_upstream_is_away(cached: CachedWorld) -> None:
    await tags(cached)
    cached.upstream.failure = DOWN
    cached.clock.advance(TTL + 5)
    answer = await cached.ask("GET", "tags/list?n=3")
    assert answer.json()["tags"] == ["1", "2", "v10"]
    assert (answer.headers["warning"], answer.headers["age"]) == (UNREACHABLE, str(TTL + 5))
    assert "link" in answer.headers
    cached.upstream.failure = None
    assert "warning" not in (await cached.ask("GET", "tags/list")).headers


async def test_what_is_here_is_told_when_the_upstream_never_listed(cached: CachedWorld) -> None:
    assert (await cached.pull("2")).status == 200
    cached.upstream.failure = DOWN
    answer = await cached.ask("GET", "tags/list")
    assert (answer.status, answer.json()["tags"]) == (200, ["2"])
    assert answer.headers["warning"] == UNREACHABLE
    assert "age" not in answer.headers


async def test_nothing_is_known_and_the_upstream_is_away(cached: CachedWorld) -> None:
    cached.upstream.failure = DOWN
    answer = await cached.ask("GET", "tags/list")
    assert answer.status == 503
    assert answer.headers["retry-after"] == "30"


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_what_the_upstream_does_not_have_is_404_and_asked_for_again_later(
    cached: CachedWorld, is_hidden: bool
) -> None:
    other = Name(HANDLE, "hub/team/other")
    cached.upstream.failure = HiddenUpstream("it does not show it") if is_hidden else None
    for _ in range(3):
        answer = await cached.ask("GET", "tags/list", name=other)
        assert code_of(answer) == (404, "NAME_UNKNOWN")
        assert "retry-after" not in answer.headers
    assert cached.upstream.count("TAGS") == 1
    cached.clock.advance(NEGATIVE_TTL)
    cached.upstream.failure = None
    cached.upstream.add_image("team/other", "1")
    answer = await cached.ask("GET", "tags/list", name=other)
    assert answer.json() == {"name": str(other), "tags": ["1"]}


async def test_a_list_that_is_gone_or_hidden_now(cached: CachedWorld) -> None:
    await tags(cached)
    assert (await cached.pull("2")).status == 200
    cached.clock.advance(TTL)
    cached.upstream.failure = HiddenUpstream("it does not show it")  # to this credential, for now
    answer = await cached.ask("GET", "tags/list")
    assert len(answer.json()["tags"]) == 4
    assert answer.headers["warning"] == UNREACHABLE
    cached.upstream.failure = None
    cached.upstream.manifests.clear()
    answer = await cached.ask("GET", "tags/list")
    assert answer.json()["tags"] == ["2"]
    assert "warning" not in answer.headers
    assert cached.rows("SELECT count(*) FROM upstream_tag_lists") == [(0,)]


async def test_a_disabled_rule_tells_what_it_knows(cached: CachedWorld) -> None:
    await tags(cached)
    await cached.switch(on=False)
    cached.clock.advance(TTL)
    assert len(await tags(cached)) == 4
    answer = await cached.ask("GET", "tags/list", name=Name(HANDLE, "hub/team/other"))
    assert code_of(answer) == (404, "NAME_UNKNOWN")
    assert cached.upstream.count("TAGS") == 1


async def test_names_under_no_rule_ask_nobody(cached: CachedWorld) -> None:
    answer = await cached.ask("GET", "tags/list", name=Name(HANDLE, "elsewhere/app"))
    assert code_of(answer) == (404, "NAME_UNKNOWN")
    assert cached.upstream.asked == []


async def test_a_list_that_was_cut_says_so(cached: CachedWorld) -> None:
    cached.upstream.lists_all_tags = False
    for _ in range(2):
        answer = await cached.ask("GET", "tags/list")
        assert answer.headers["warning"] == '299 - "the upstream has more tags than are listed"'
    assert cached.upstream.count("TAGS") == 1


async def test_the_lists_of_a_rule_are_bounded(
    cached: CachedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "MAX_BYTES_OF_RULE", 5000)
    ((rule_id,),) = cached.rows("SELECT id FROM pull_through_cache_rules")
    for number in range(10):
        kept = KeptTags(b"x" * 1000, True, number, number)
        await cached.ctx.database.write(keep_tags, rule_id, f"hub/{number}", kept)
    found = [
        await cached.ctx.database.read(find_tags, rule_id, f"hub/{number}") for number in range(10)
    ]
    assert [each is not None for each in found] == [False] * 7 + [True] * 3


async def test_lists_that_nobody_asked_for_are_forgotten(cached: CachedWorld) -> None:
    await tags(cached)
    week = 7 * 24 * 3600
    cached.clock.advance(TTL + week - 1)
    assert await cached.ctx.database.write(lookups.forget_tags, cached.clock()) == 0
    cached.clock.advance(1)
    assert await cached.ctx.database.write(lookups.forget_tags, cached.clock()) == 1
