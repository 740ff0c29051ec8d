"""end-9, end-10: deleting tags, manifests and blobs."""

from __future__ import annotations

import pytest

from tests.conformance.client import Registry
from tests.conformance.content import Content, blob, config, image_index, image_manifest
from tests.conformance.expect import empty, errors_of, refused

ABSENT = "sha256:" + "0" * 64


def delete_manifest(registry: Registry, repository: str, reference: str) -> None:
    """Delete a tag or manifest that is there; skip where a peer has this disabled (MAY)."""
    response = registry.delete_manifest(repository, reference)
    registry.decline(response, 400, 405, optional="deletion by tag or manifest")
    assert response.status_code == 202


def delete_blob(registry: Registry, repository: str, digest: str) -> None:
    """Delete a blob that is there; skip where a peer has this disabled (MAY)."""
    response = registry.delete_blob(repository, digest)
    registry.decline(response, 400, 405, optional="blob deletion")
    assert response.status_code == 202


def test_delete_tag(registry: Registry, repository: str) -> None:
    """§ Deleting tags (end-9): MUST be 202, or 400/405 if disabled; then GET returns 404."""
    image = registry.push_image(repository, "gone")
    registry.push_manifest(repository, image, "kept")
    delete_manifest(registry, repository, "gone")
    assert registry.get_manifest(repository, "gone").status_code == 404
    assert registry.head_manifest(repository, "gone").status_code == 404
    assert registry.get_manifest(repository, "kept").content == image.body
    assert registry.list_tags(repository).json()["tags"] == ["kept"]


def test_delete_manifest(registry: Registry, repository: str) -> None:
    """§ Deleting Manifests (end-9): MUST be 202; then digest and every tag at it return 404."""
    image = registry.push_image(repository, "one")
    registry.push_manifest(repository, image, "two")
    other = registry.push_image(repository, "other")
    delete_manifest(registry, repository, image.digest)
    for reference in (image.digest, "one", "two"):
        assert registry.get_manifest(repository, reference).status_code == 404
        assert registry.head_manifest(repository, reference).status_code == 404
    assert registry.get_manifest(repository, "other").content == other.body
    assert registry.list_tags(repository).json()["tags"] == ["other"]


@pytest.mark.parametrize("reference", ["absent", ABSENT])
def test_delete_of_an_absent_manifest(registry: Registry, repository: str, reference: str) -> None:
    """§ Endpoints (end-9): failure is 404 (400 or 405 if disabled)."""
    registry.push_image(repository, "v1")
    assert registry.delete_manifest(repository, reference).status_code in {404, 400, 405}


def test_delete_in_an_absent_repository(registry: Registry, repository: str) -> None:
    """§ Deleting Manifests: if the repository does not exist, MUST be 404."""
    assert registry.delete_manifest(repository, ABSENT).status_code == 404


def test_deleted_manifest_may_be_pushed_again(registry: Registry, repository: str) -> None:
    """§ Content Management: the life-cycle begins anew."""
    image = registry.push_image(repository, "v1")
    delete_manifest(registry, repository, image.digest)
    registry.push_manifest(repository, image, "v1")
    assert registry.get_manifest(repository, "v1").content == image.body


def test_delete_blob(registry: Registry, repository: str) -> None:
    """§ Deleting Blobs (end-10): MUST be 202, or 400/405 if disabled."""
    content = registry.push_blob(repository, blob())
    delete_blob(registry, repository, content.digest)
    assert registry.get_blob(repository, content.digest).status_code == 404
    assert registry.head_blob(repository, content.digest).status_code == 404


def test_delete_of_an_absent_blob(registry: Registry, repository: str) -> None:
    """§ Deleting Blobs: if the blob is not found, MUST be 404."""
    content = registry.push_blob(repository, blob())
    delete_blob(registry, repository, content.digest)
    assert registry.delete_blob(repository, content.digest).status_code == 404
    assert registry.delete_blob(repository, ABSENT).status_code == 404


def test_deleted_blob_may_be_pushed_again(registry: Registry, repository: str) -> None:
    """§ Content Management: deleted, not yet swept, pushed again: it is there."""
    content = registry.push_blob(repository, blob())
    delete_blob(registry, repository, content.digest)
    registry.push_blob(repository, content)
    assert registry.get_blob(repository, content.digest).content == content.body


def test_deleted_blob_stays_in_other_repositories(registry: Registry, repository: str) -> None:
    """§ Deleting Blobs: `<name>` is the namespace from which the blob goes, no other."""
    content = registry.push_blob(repository, blob())
    other = registry.new_repository()
    registry.push_blob(other, content)
    delete_blob(registry, repository, content.digest)
    assert registry.get_blob(other, content.digest).content == content.body


@pytest.mark.entrepot
def test_deleted_tag_leaves_its_manifest(registry: Registry, repository: str) -> None:
    """Ours: the manifest stays, untagged; again is 404 `MANIFEST_UNKNOWN`."""
    image = registry.push_image(repository, "v1")
    empty(registry.delete_manifest(repository, "v1"), 202)
    assert registry.get_manifest(repository, image.digest).content == image.body
    refused(registry.delete_manifest(repository, "v1"), 404, "MANIFEST_UNKNOWN")
    refused(registry.get_manifest(repository, "v1"), 404, "MANIFEST_UNKNOWN")


@pytest.mark.entrepot
def test_absences_have_their_own_codes(registry: Registry, repository: str) -> None:
    """Ours: `NAME_UNKNOWN` without a repository, else what is absent in it."""
    refused(registry.delete_manifest(repository, ABSENT), 404, "NAME_UNKNOWN")
    refused(registry.delete_manifest(repository, "v1"), 404, "NAME_UNKNOWN")
    refused(registry.delete_blob(repository, ABSENT), 404, "NAME_UNKNOWN")
    registry.push_image(repository)
    refused(registry.delete_manifest(repository, ABSENT), 404, "MANIFEST_UNKNOWN")
    refused(registry.delete_blob(repository, ABSENT), 404, "BLOB_UNKNOWN")


@pytest.mark.entrepot
@pytest.mark.parametrize("part", ["config", "layer"])
def test_referenced_blob_is_kept(registry: Registry, repository: str, part: str) -> None:
    """Ours: a blob that a manifest here references is 405 `UNSUPPORTED`; free again, it goes.

    A 405 names the methods that would do (RFC 9110 §15.5.6).
    """
    parts = {"config": config(), "layer": blob()}
    for content in parts.values():
        registry.push_blob(repository, content)
    image = registry.push_manifest(repository, image_manifest(parts["config"], [parts["layer"]]))
    digest = parts[part].digest
    response = registry.delete_blob(repository, digest)
    refused(response, 405, "UNSUPPORTED")
    assert response.headers["allow"] == "GET, HEAD"
    assert registry.get_blob(repository, digest).content == parts[part].body
    empty(registry.delete_manifest(repository, image.digest), 202)
    empty(registry.delete_blob(repository, digest), 202)


@pytest.mark.entrepot
def test_child_of_an_index_is_kept(registry: Registry, repository: str) -> None:
    """Ours: a child of an index here is 405 `UNSUPPORTED`, its parents in the detail."""
    child = registry.push_image(repository, "child")
    parents = [
        registry.push_manifest(repository, image_index([child], annotations={"n": str(number)}))
        for number in range(2)
    ]
    response = registry.delete_manifest(repository, child.digest)
    refused(response, 405, "UNSUPPORTED")
    assert response.headers["allow"] == "GET, HEAD, PUT"
    detail = str(errors_of(response)[0]["detail"])
    assert all(parent.digest in detail for parent in parents)
    assert registry.get_manifest(repository, "child").content == child.body
    for parent in parents:
        empty(registry.delete_manifest(repository, parent.digest), 202)
    empty(registry.delete_manifest(repository, child.digest), 202)


@pytest.mark.entrepot
def test_tag_of_a_child_may_go(registry: Registry, repository: str) -> None:
    """Ours: only the manifest is guarded, its tag is not."""
    child = registry.push_image(repository, "child")
    registry.push_manifest(repository, image_index([child]), "parent")
    empty(registry.delete_manifest(repository, "child"), 202)
    assert registry.get_manifest(repository, child.digest).content == child.body


@pytest.mark.entrepot
def test_delete_by_another_digest_of_the_same(registry: Registry, repository: str) -> None:
    """Ours: an alias deletes what it names."""
    image = registry.push_image(repository, "v1")
    alias = Content(image.body, image.media_type, "sha512")
    registry.push_manifest(repository, alias)
    empty(registry.delete_manifest(repository, alias.digest), 202)
    for reference in ("v1", image.digest, alias.digest):
        refused(registry.get_manifest(repository, reference), 404, "MANIFEST_UNKNOWN")
