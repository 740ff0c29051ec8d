"""A hundred pulls of one blob at once, from several workers of a real server: one fetch."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.live_signed_in import serving
from tests.scripted_upstream import scripted_upstream

BLOB: Final = random.Random(3).randbytes(3_000_000)
PULLS: Final = 100

pytestmark = pytest.mark.timeout(120)


def test_many_pulls_cost_one_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_upstream() as upstream:
        digest = upstream.add_blob(BLOB)
        upstream.add_image("team/app", "1", BLOB)
        monkeypatch.setenv("ENTREPOT_UPSTREAM_ALLOWED", upstream.url)
        with serving(tmp_path / "data", "--workers", "3") as signed_in:
            rule = {"prefix": "hub", "upstream_url": upstream.url}
            signed_in.call(signed_in.acme, "POST", "/v1/pull-through-cache-rules", rule)
            name = "acme/hub/team/app"
            headers = {"Authorization": f"Bearer {signed_in.pull_token(name)}"}
            url = f"{signed_in.registry.url}/v2/{name}"
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
