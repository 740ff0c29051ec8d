"""The tags of a cached repository, by a real server from a registry on another port."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.live_signed_in import serving
from tests.scripted_upstream import Answer, Asked, scripted_upstream

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/v2/team/app", "/v2/team/other"])
def test_a_list_whose_next_page_is_elsewhere_counts_as_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with scripted_upstream() as upstream:
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
        monkeypatch.setenv("ENTREPOT_UPSTREAM_ALLOWED", upstream.url)
        with serving(tmp_path / "data") as signed_in:
            rule = {"prefix": "hub", "upstream_url": upstream.url}
            signed_in.call(signed_in.acme, "POST", "/v1/pull-through-cache-rules", rule)
            name = "acme/hub/team/app"
            headers = {"Authorization": f"Bearer {signed_in.pull_token(name)}"}
            url = f"{signed_in.registry.url}/v2/{name}"
            for _ in range(2):  # from the upstream, and as it is kept
                answer = httpx.get(f"{url}/tags/list", headers=headers)
                assert answer.json()["tags"] == ["1", "2"]
                expected = '299 - "the upstream has more tags than are listed"'
                assert answer.headers["warning"] == expected
            assert httpx.get(f"{url}/manifests/3", headers=headers).is_success
        assert len(upstream.asked_for("GET", "/tags/list")) == 1
