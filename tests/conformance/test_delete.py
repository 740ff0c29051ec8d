"""end-9, end-10: deleting tags, manifests and blobs."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository
from tests.conformance.content import Content, blob, config, image_index, image_manifest
from tests.conformance.expect import empty, errors_of, refused

ABSENT = "sha256:" + "0" * 64


def delete_manifest(repository: Repository, reference: str) -> None:
    """Delete a tag or manifest that is there; skip where a peer has this disabled (MAY)."""
    response = repository.delete_manifest(reference)
    repository.decline(response, 400, 405, optional="deletion by tag or manifest")
    assert response.status_code == 202


def delete_blob(repository: Repository, digest: str) -> None:
    """Delete a blob that is there; skip where a peer has this disabled (MAY)."""
    response = repository.delete_blob(digest)
    repository.decline(response, 400, 405, optional="blob deletion")
    assert response.status_code == 202


def test_delete_tag(repository: Repository) -> None:
    """§ Deleting tags (end-9): MUST be 202, or 400/405 if disabled; then GET returns 404."""
    image = repository.push_image("gone")
    repository.push_manifest(image, "kept")
    delete_manifest(repository, "gone")
    assert repository.get_manifest("gone").status_code == 404
    assert repository.head_manifest("gone").status_code == 404
    assert repository.get_manifest("kept").content == image.body
    assert repository.list_tags().json()["tags"] == ["kept"]


def test_delete_manifest(repository: Repository) -> None:
    """§ Deleting Manifests (end-9): MUST be 202; then digest and every tag at it return 404."""
    image = repository.push_image("one")
    repository.push_manifest(image, "two")
    other = repository.push_image("other")
    delete_manifest(repository, image.digest)
    for reference in (image.digest, "one", "two"):
        assert repository.get_manifest(reference).status_code == 404
        assert repository.head_manifest(reference).status_code == 404
    assert repository.get_manifest("other").content == other.body
    assert repository.list_tags().json()["tags"] == ["other"]


@pytest.mark.parametrize("reference", ["absent", ABSENT])
def test_delete_of_an_absent_manifest(repository: Repository, reference: str) -> None:
    """§ Endpoints (end-9): failure is 404 (400 or 405 if disabled)."""
    repository.push_image("v1")
    assert repository.delete_manifest(reference).status_code in {404, 400, 405}


def test_delete_in_an_absent_repository(repository: Repository) -> None:
    """§ Deleting Manifests: if the repository does not exist, MUST be 404."""
    assert repository.delete_manifest(ABSENT).status_code == 404


def test_deleted_manifest_may_be_pushed_again(repository: Repository) -> None:
    """§ Content Management: the life-cycle begins anew."""
    image = repository.push_image("v1")
    delete_manifest(repository, image.digest)
    repository.push_manifest(image, "v1")
    assert repository.get_manifest("v1").content == image.body


def test_delete_blob(repository: Repository) -> None:
    """§ Deleting Blobs (end-10): MUST be 202, or 400/405 if disabled."""
    content = repository.push_blob(blob())
    delete_blob(repository, content.digest)
    assert repository.get_blob(content.digest).status_code == 404
    assert repository.head_blob(content.digest).status_code == 404


def test_delete_of_an_absent_blob(repository: Repository) -> None:
    """§ Deleting Blobs: if the blob is not found, MUST be 404."""
    content = repository.push_blob(blob())
    delete_blob(repository, content.digest)
    assert repository.delete_blob(content.digest).status_code == 404
    assert repository.delete_blob(ABSENT).status_code == 404


def test_deleted_blob_may_be_pushed_again(repository: Repository) -> None:
    """§ Content Management: deleted, not yet swept, pushed again: it is there."""
    content = repository.push_blob(blob())
    delete_blob(repository, content.digest)
    repository.push_blob(content)
    assert repository.get_blob(content.digest).content == content.body


def test_deleted_blob_stays_in_other_repositories(repository: Repository) -> None:
    """§ Deleting Blobs: `<name>` is the namespace from which the blob goes, no other."""
    content = repository.push_blob(blob())
    other = repository.another()
    other.push_blob(content)
    delete_blob(repository, content.digest)
    assert other.get_blob(content.digest).content == content.body


@pytest.mark.entrepot
def test_deleted_tag_leaves_its_manifest(repository: Repository) -> None:
    """Ours: the manifest stays, untagged; again is 404 `MANIFEST_UNKNOWN`."""
    image = repository.push_image("v1")
    empty(repository.delete_manifest("v1"), 202)
    assert repository.get_manifest(image.digest).content == image.body
    refused(repository.delete_manifest("v1"), 404, "MANIFEST_UNKNOWN")
    refused(repository.get_manifest("v1"), 404, "MANIFEST_UNKNOWN")


@pytest.mark.entrepot
def test_absences_have_their_own_codes(repository: Repository) -> None:
    """Ours: `NAME_UNKNOWN` without a repository, else what is absent in it."""
    refused(repository.delete_manifest(ABSENT), 404, "NAME_UNKNOWN")
    refused(repository.delete_manifest("v1"), 404, "NAME_UNKNOWN")
    refused(repository.delete_blob(ABSENT), 404, "NAME_UNKNOWN")
    repository.push_image()
    refused(repository.delete_manifest(ABSENT), 404, "MANIFEST_UNKNOWN")
    refused(repository.delete_blob(ABSENT), 404, "BLOB_UNKNOWN")


@pytest.mark.entrepot
@pytest.mark.parametrize("part", ["config", "layer"])
def test_referenced_blob_is_kept(repository: Repository, part: str) -> None:
    """Ours: a blob that a manifest here references is 405 `UNSUPPORTED`; free again, it goes.

    A 405 names the methods that would do (RFC 9110 §15.5.6).
    """
    parts = {"config": config(), "layer": blob()}
    for content in parts.values():
        repository.push_blob(content)
    image = repository.push_manifest(image_manifest(parts["config"], [parts["layer"]]))
    digest = parts[part].digest
    response = repository.delete_blob(digest)
    refused(response, 405, "UNSUPPORTED")
    assert response.headers["allow"] == "GET, HEAD"
    assert repository.get_blob(digest).content == parts[part].body
    empty(repository.delete_manifest(image.digest), 202)
    empty(repository.delete_blob(digest), 202)


@pytest.mark.entrepot
def test_child_of_an_index_is_kept(repository: Repository) -> None:
    """Ours: a child of an index here is 405 `UNSUPPORTED`, its parents in the detail."""
    child = repository.push_image("child")
    parents = [
        repository.push_manifest(image_index([child], annotations={"n": str(number)}))
        for number in range(2)
    ]
    response = repository.delete_manifest(child.digest)
    refused(response, 405, "UNSUPPORTED")
    assert response.headers["allow"] == "GET, HEAD, PUT"
    detail = str(errors_of(response)[0]["detail"])
    assert all(parent.digest in detail for parent in parents)
    assert repository.get_manifest("child").content == child.body
    for parent in parents:
        empty(repository.delete_manifest(parent.digest), 202)
    empty(repository.delete_manifest(child.digest), 202)


@pytest.mark.entrepot
def test_tag_of_a_child_may_go(repository: Repository) -> None:
    """Ours: only the manifest is guarded, its tag is not."""
    child = repository.push_image("child")
    repository.push_manifest(image_index([child]), "parent")
    empty(repository.delete_manifest("child"), 202)
    assert repository.get_manifest(child.digest).content == child.body


@pytest.mark.entrepot
def test_delete_by_another_digest_of_the_same(repository: Repository) -> None:
    """Ours: an alias deletes what it names."""
    image = repository.push_image("v1")
    alias = Content(image.body, image.media_type, "sha512")
    repository.push_manifest(alias)
    empty(repository.delete_manifest(alias.digest), 202)
    for reference in ("v1", image.digest, alias.digest):
        refused(repository.get_manifest(reference), 404, "MANIFEST_UNKNOWN")
