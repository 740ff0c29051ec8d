"""end-7b: a manifest with several tags at once; tags moved under a condition."""

from __future__ import annotations

import pytest

from tests.conformance.client import Registry, location_of
from tests.conformance.content import Content, config, image_manifest
from tests.conformance.expect import pullable, refused


@pytest.fixture
def image(registry: Registry, repository: str) -> Content:
    """Return an image manifest whose blobs are pushed, itself not yet."""
    return image_manifest(registry.push_blob(repository, config()))


def tags_named(header: str) -> list[str]:
    """Return the tags in the (joined) `OCI-Tag` headers."""
    return [tag.strip() for tag in header.split(",")]


@pytest.mark.newer
@pytest.mark.parametrize("count", [1, 2, 10])
def test_tags_come_with_the_manifest(
    registry: Registry, repository: str, image: Content, count: int
) -> None:
    """§ Pushing Manifests (newer): at least 10 tags SHOULD go, each MUST be in `OCI-Tag`."""
    tags = [f"1.{number}" for number in range(count)]
    response = registry.put_manifest(repository, image, tags=tags)
    assert response.status_code == 201
    assert sorted(tags_named(response.headers["oci-tag"])) == sorted(tags)
    pullable(registry.http, location_of(response), image.body)
    for tag in tags:
        assert registry.get_manifest(repository, tag).content == image.body


@pytest.mark.entrepot
def test_fifty_tags_and_no_more(registry: Registry, repository: str, image: Content) -> None:
    """Ours: 50 tags go; over 50 is 400, and nothing is stored."""
    tags = [f"t{number}" for number in range(51)]
    response = registry.put_manifest(repository, image, tags=tags)
    refused(response, 400, "UNSUPPORTED")
    refused(registry.put_manifest(repository, image, tags=["t"] * 51), 400, "UNSUPPORTED")
    assert registry.get_manifest(repository, image.digest).status_code == 404
    assert registry.put_manifest(repository, image, tags=tags[:50]).status_code == 201
    assert registry.list_tags(repository).json()["tags"] == sorted(tags[:50])


@pytest.mark.entrepot
def test_all_tags_or_none(registry: Registry, repository: str, image: Content) -> None:
    """Ours: one bad tag refuses the whole push."""
    registry.push_image(repository, "kept")
    response = registry.put_manifest(repository, image, tags=["good", "kept", ".bad"])
    refused(response, 400, "MANIFEST_INVALID")
    assert registry.list_tags(repository).json()["tags"] == ["kept"]
    assert registry.get_manifest(repository, "kept").content != image.body
    assert registry.get_manifest(repository, image.digest).status_code == 404


@pytest.mark.entrepot
def test_tag_query_is_ignored_with_a_tag_reference(
    registry: Registry, repository: str, image: Content
) -> None:
    """Ours: `?tag=` belongs to a digest reference."""
    response = registry.put_manifest(repository, image, "v1", tags=["v2"])
    assert response.status_code == 201
    assert "oci-tag" not in response.headers
    assert registry.list_tags(repository).json()["tags"] == ["v1"]


@pytest.mark.entrepot
def test_if_none_match_creates_only(registry: Registry, repository: str, image: Content) -> None:
    """Ours after RFC 9110 §13.1.2: `If-None-Match: *` succeeds for a new tag, else 412 `DENIED`."""
    condition = {"if-none-match": "*"}
    assert registry.put_manifest(repository, image, "v1", **condition).status_code == 201
    other = image_manifest(registry.push_blob(repository, config()))
    refused(registry.put_manifest(repository, other, "v1", **condition), 412, "DENIED")
    assert registry.get_manifest(repository, "v1").content == image.body
    assert registry.get_manifest(repository, other.digest).status_code == 404


@pytest.mark.entrepot
def test_if_match_moves_what_was_seen(registry: Registry, repository: str, image: Content) -> None:
    """Ours after RFC 9110 §13.1.1: `If-Match` with the tag's digest moves it, else 412 `DENIED`."""
    first = registry.push_image(repository, "v1")
    seen = {"if-match": f'"{first.digest}"'}
    assert registry.put_manifest(repository, image, "v1", **seen).status_code == 201
    other = image_manifest(registry.push_blob(repository, config()))
    refused(registry.put_manifest(repository, other, "v1", **seen), 412, "DENIED")
    refused(registry.put_manifest(repository, other, "new", **seen), 412, "DENIED")
    assert registry.get_manifest(repository, "v1").content == image.body
    assert registry.list_tags(repository).json()["tags"] == ["v1"]
