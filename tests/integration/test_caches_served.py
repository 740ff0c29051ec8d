"""A cache of a real server, over an upstream on another port: its fetches, and its lists."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

import httpx
import pytest

from tests.live_signed_in import SignedIn, serving
from tests.scripted_upstream import Answer, Asked, ScriptedUpstream, scripted_upstream

BLOB: Final = random.Random(3).randbytes(1_500_000)
PULLS: Final = 100

pytestmark = pytest.mark.timeout(240)


class Cache(NamedTuple):
    """A real server with a rule for the names under ``acme/hub``, and the upstream of that."""

    upstream: ScriptedUpstream
    signed_in: SignedIn

    def reach(self, repository: str) -> tuple[str, dict[str, str]]:
        """Return the URL of a cached repository, and the header of a pull."""
        name = f"acme/hub/{repository}"
        bearer = {"Authorization": f"Bearer {self.signed_in.pull_token(name)}"}
        return f"{self.signed_in.registry.url}/v2/{name}", bearer


@pytest.fixture(scope="module")
def served_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    """Serve a cache by three workers."""
    with scripted_upstream() as upstream, pytest.MonkeyPatch.context() as environment:
        environment.setenv("ENTREPOT_UPSTREAM_ALLOWED", upstream.url)
        data = tmp_path_factory.mktemp("cache") / "data"
        with serving(data, "--workers", "3") as signed_in:
            rule = {"prefix": "hub", "upstream_url": upstream.url}
            signed_in.call(signed_in.acme, "POST", "/v1/pull-through-cache-rules", rule)
            yield Cache(upstream, signed_in)


@pytest.fixture
def cache(served_cache: Cache) -> Iterator[Cache]:
    """Return the cache; its upstream has no script of another test."""
    upstream = served_cache.upstream
    script, most_tags = upstream.script, upstream.most_tags
    yield served_cache
    upstream.script, upstream.most_tags = script, most_tags


def test_a_hundred_pulls_by_several_workers_cost_one_fetch(cache: Cache) -> None:
    digest = cache.upstream.add_blob(BLOB)
    cache.upstream.add_image("team/app", "1", BLOB)
    url, headers = cache.reach("team/app")
    assert httpx.get(f"{url}/manifests/1", headers=headers).is_success
    release, under_way = threading.Event(), 0

    def hold(asked: Asked) -> Answer | None:
        if asked.method != "GET" or digest not in asked.path:
            return None
        told = cache.upstream.truth(asked)
        return Answer(told.status, told.headers, [BLOB[:-1], release, BLOB[-1:]])

    cache.upstream.script = hold

    async def trace(event: str, _: object) -> None:
        """Let the upstream send the last byte once the last pull is being answered."""
        nonlocal under_way
        under_way += event == "http11.receive_response_headers.complete"
        if under_way == PULLS:
            release.set()

    async def pull(client: httpx.AsyncClient) -> bytes:
        answer = await client.get(
            f"{url}/blobs/{digest}", headers=headers, extensions={"trace": trace}
        )
        assert answer.is_success, answer.text
        return answer.content

    async def pull_all() -> list[bytes]:
        limits = httpx.Limits(max_connections=PULLS)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            return await asyncio.gather(*(pull(client) for _ in range(PULLS)))

    try:
        assert asyncio.run(pull_all()) == [BLOB] * PULLS
    finally:
        release.set()
    asked = cache.upstream.asked
    fetched = [each for each in asked if digest in each.path and each.method == "GET"]
    assert len(fetched) == 1, asked


@pytest.mark.parametrize(
    ("repository", "place"),
    [("team/one", "http://127.0.0.1:9/v2/team/one"), ("team/two", "/v2/team/other")],
)
def test_a_list_of_tags_whose_next_page_is_elsewhere_counts_as_cut(
    cache: Cache, repository: str, place: str
) -> None:
    upstream = cache.upstream
    for tag in ("1", "2", "3"):
        upstream.add_image(repository, tag, b"layer")
    upstream.most_tags = 2

    def link_elsewhere(asked: Asked) -> Answer | None:
        if not asked.path.endswith("/tags/list"):
            return None
        told = upstream.truth(asked)
        link = f'<{place}/tags/list?last=2>; rel="next"'
        return Answer(told.status, {**told.headers, "Link": link}, told.body)

    upstream.script = link_elsewhere
    url, headers = cache.reach(repository)
    for _ in range(2):  # from the upstream, and as it is kept
        answer = httpx.get(f"{url}/tags/list", headers=headers)
        assert answer.json()["tags"] == ["1", "2"]
        assert answer.headers["warning"] == '299 - "the upstream has more tags than are listed"'
    assert httpx.get(f"{url}/manifests/3", headers=headers).is_success
    assert len(upstream.asked_for("GET", f"/{repository}/tags/list")) == 1
