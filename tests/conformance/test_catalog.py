"""`/v2/_catalog`: not OCI, and expected by tools."""

from __future__ import annotations

import pytest

from tests.conformance.client import Registry, next_page
from tests.conformance.content import image_index

pytestmark = pytest.mark.entrepot


def test_catalog_lists_the_repositories(registry: Registry) -> None:
    """Ours: 200 `{repositories}` in byte order, `last` excluded, a `Link` when there is more."""
    base = registry.new_repository()
    names = [f"{base}/{suffix}" for suffix in ("a", "b", "b0", "c")]
    for name in reversed(names):
        registry[name].push_manifest(image_index(), "v1")
    seen: list[str] = []
    url: str | None = f"/v2/_catalog?n=2&last={base}"
    while url and len(seen) < len(names):
        response = registry.http.get(url)
        assert response.status_code == 200
        assert set(response.json()) == {"repositories"}
        assert len(response.json()["repositories"]) <= 2
        seen += response.json()["repositories"]
        url = next_page(response)
    assert seen[: len(names)] == names


def test_all_pages_are_in_order(registry: Registry) -> None:
    """Ours: followed to the end, each name comes once, in byte order."""
    name = registry.new_repository()
    registry[name].push_manifest(image_index(), "v1")
    seen: list[str] = []
    url: str | None = "/v2/_catalog?n=500"
    while url:
        response = registry.http.get(url)
        seen += response.json()["repositories"]
        url = next_page(response)
    assert name in seen
    assert seen == sorted(set(seen))


def test_n_of_zero(registry: Registry) -> None:
    """Ours: as for tags, an empty list without a `Link`."""
    response = registry.http.get("/v2/_catalog", params={"n": 0})
    assert response.json() == {"repositories": []}
    assert "link" not in response.headers
