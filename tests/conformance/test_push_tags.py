"""end-7b: a manifest with several tags at once; tags moved under a condition."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository, location_of
from tests.conformance.content import Content, config, image_manifest
from tests.conformance.expect import pullable, refused


@pytest.fixture
def image(repository: Repository) -> Content:
    """Return an image manifest whose blobs are pushed, itself not yet."""
    return image_manifest(repository.push_blob(config()))


def tags_named(header: str) -> list[str]:
    """Return the tags in the (joined) `OCI-Tag` headers."""
    return [tag.strip() for tag in header.split(",")]


@pytest.mark.newer
@pytest.mark.parametrize("count", [1, 2, 10])
def test_tags_come_with_the_manifest(repository: Repository, image: Content, count: int) -> None:
    """§ Pushing Manifests (newer): at least 10 tags SHOULD go, each MUST be in `OCI-Tag`."""
    tags = [f"1.{number}" for number in range(count)]
    response = repository.put_manifest(image, tags=tags)
    assert response.status_code == 201
    assert sorted(tags_named(response.headers["oci-tag"])) == sorted(tags)
    pullable(repository.http, location_of(response), image.body)
    for tag in tags:
        assert repository.get_manifest(tag).content == image.body


@pytest.mark.entrepot
def test_fifty_tags_and_no_more(repository: Repository, image: Content) -> None:
    """Ours: 50 tags go; over 50 is 400, and nothing is stored."""
    tags = [f"t{number}" for number in range(51)]
    response = repository.put_manifest(image, tags=tags)
    refused(response, 400, "UNSUPPORTED")
    refused(repository.put_manifest(image, tags=["t"] * 51), 400, "UNSUPPORTED")
    assert repository.get_manifest(image.digest).status_code == 404
    assert repository.put_manifest(image, tags=tags[:50]).status_code == 201
    assert repository.list_tags().json()["tags"] == sorted(tags[:50])


@pytest.mark.entrepot
def test_all_tags_or_none(repository: Repository, image: Content) -> None:
    """Ours: one bad tag refuses the whole push."""
    repository.push_image("kept")
    response = repository.put_manifest(image, tags=["good", "kept", ".bad"])
    refused(response, 400, "MANIFEST_INVALID")
    assert repository.list_tags().json()["tags"] == ["kept"]
    assert repository.get_manifest("kept").content != image.body
    assert repository.get_manifest(image.digest).status_code == 404


@pytest.mark.entrepot
def test_tag_query_is_ignored_with_a_tag_reference(repository: Repository, image: Content) -> None:
    """Ours: `?tag=` belongs to a digest reference."""
    response = repository.put_manifest(image, "v1", tags=["v2"])
    assert response.status_code == 201
    assert "oci-tag" not in response.headers
    assert repository.list_tags().json()["tags"] == ["v1"]


@pytest.mark.entrepot
def test_if_none_match_creates_only(repository: Repository, image: Content) -> None:
    """Ours after RFC 9110 §13.1.2: `If-None-Match: *` succeeds for a new tag, else 412 `DENIED`."""
    condition = {"if-none-match": "*"}
    assert repository.put_manifest(image, "v1", **condition).status_code == 201
    other = image_manifest(repository.push_blob(config()))
    refused(repository.put_manifest(other, "v1", **condition), 412, "DENIED")
    assert repository.get_manifest("v1").content == image.body
    assert repository.get_manifest(other.digest).status_code == 404


@pytest.mark.entrepot
def test_if_match_moves_what_was_seen(repository: Repository, image: Content) -> None:
    """Ours after RFC 9110 §13.1.1: `If-Match` with the tag's digest moves it, else 412 `DENIED`."""
    first = repository.push_image("v1")
    seen = {"if-match": f'"{first.digest}"'}
    assert repository.put_manifest(image, "v1", **seen).status_code == 201
    other = image_manifest(repository.push_blob(config()))
    refused(repository.put_manifest(other, "v1", **seen), 412, "DENIED")
    refused(repository.put_manifest(other, "new", **seen), 412, "DENIED")
    assert repository.get_manifest("v1").content == image.body
    assert repository.list_tags().json()["tags"] == ["v1"]
