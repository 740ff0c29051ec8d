"""A cache of a real server, over an upstream on another port: its fetches, and its lists."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.live_signed_in import serving
from tests.scripted_upstream import Answer, Asked, ScriptedUpstream, scripted_upstream

BLOB: Final = random.Random(3).randbytes(3_000_000)
PULLS: Final = 100
NAME: Final = "acme/hub/team/app"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedUpstream]:
    """Return an upstream that servers of this test may ask."""
    with scripted_upstream() as served:
        monkeypatch.setenv("ENTREPOT_UPSTREAM_ALLOWED", served.url)
        yield served


@contextmanager
def cached(
    data: Path, upstream: ScriptedUpstream, *options: str
) -> Iterator[tuple[str, dict[str, str]]]:
    """Serve a cache of an upstream; return the URL of a repository, and the header of a pull."""
    with serving(data, *options) as signed_in:
        rule = {"prefix": "hub", "upstream_url": upstream.url}
        signed_in.call(signed_in.acme, "POST", "/v1/pull-through-cache-rules", rule)
        bearer = {"Authorization": f"Bearer {signed_in.pull_token(NAME)}"}
        yield f"{signed_in.registry.url}/v2/{NAME}", bearer


def test_a_hundred_pulls_by_several_workers_cost_one_fetch(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    digest = upstream.add_blob(BLOB)
    upstream.add_image("team/app", "1", BLOB)
    with cached(tmp_path / "data", upstream, "--workers", "3") as (url, headers):
        assert httpx.get(f"{url}/manifests/1", headers=headers).is_success

        async def pull(client: httpx.AsyncClient) -> bytes:
            answer = await client.get(f"{url}/blobs/{digest}", headers=headers)
            assert answer.is_success, answer.text
            return answer.content

        async def pull_all() -> list[bytes]:
            limits = httpx.Limits(max_connections=PULLS)
            async with httpx.AsyncClient(timeout=60, limits=limits) as client:
                return await asyncio.gather(*(pull(client) for _ in range(PULLS)))

        assert asyncio.run(pull_all()) == [BLOB] * PULLS
    fetched = [each for each in upstream.asked if digest in each.path and each.method == "GET"]
    assert len(fetched) == 1, upstream.asked


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/v2/team/app", "/v2/team/other"])
def test_a_list_of_tags_whose_next_page_is_elsewhere_counts_as_cut(
    tmp_path: Path, upstream: ScriptedUpstream, place: str
) -> None:
    for tag in ("1", "2", "3"):
        upstream.add_image("team/app", tag, b"layer")
    upstream.most_tags = 2

    def link_elsewhere(asked: Asked) -> Answer | None:
        if not asked.path.endswith("/tags/list"):
            return None
        told = upstream.truth(asked)
        link = f'<{place}/tags/list?last=2>; rel="next"'
        return Answer(told.status, {**told.headers, "Link": link}, told.body)

    upstream.script = link_elsewhere
    with cached(tmp_path / "data", upstream) as (url, headers):
        for _ in range(2):  # from the upstream, and as it is kept
            answer = httpx.get(f"{url}/tags/list", headers=headers)
            assert answer.json()["tags"] == ["1", "2"]
            expected = '299 - "the upstream has more tags than are listed"'
            assert answer.headers["warning"] == expected
        assert httpx.get(f"{url}/manifests/3", headers=headers).is_success
    assert len(upstream.asked_for("GET", "/tags/list")) == 1
