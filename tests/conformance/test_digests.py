"""Digests of other algorithms: sha512 of the newer text, blake3, and one identity for all."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository, location_of
from tests.conformance.content import Content, blob, config, image_index, image_manifest
from tests.conformance.expect import pullable, refused

OTHERS = [
    pytest.param("sha512", marks=pytest.mark.newer),
    pytest.param("blake3", marks=pytest.mark.entrepot),
]


@pytest.mark.parametrize("algorithm", OTHERS)
@pytest.mark.parametrize("hinted", [True, False])
@pytest.mark.parametrize("size", [0, 100, 3_000_000])
def test_monolithic_push(
    repository: Repository, algorithm: str, size: int, *, hinted: bool
) -> None:
    """end-4c (newer): `digest-algorithm` SHOULD be sent; a push without it works, too."""
    content = blob(size, algorithm=algorithm)
    query = {"digest-algorithm": algorithm} if hinted else {}
    upload = repository.start_upload(**query)
    response = repository.finish(upload, content.digest, content.body)
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)
    pullable(repository.http, f"/v2/{repository}/blobs/{content.digest}", content.body)


@pytest.mark.parametrize("algorithm", OTHERS)
@pytest.mark.parametrize("hinted", [True, False])
def test_chunked_push(repository: Repository, algorithm: str, *, hinted: bool) -> None:
    """end-4c (newer): the same in chunks, the last one with the PUT."""
    content = blob(3000, algorithm=algorithm)
    query = {"digest-algorithm": algorithm} if hinted else {}
    upload = repository.start_upload(**query)
    for start in (0, 1000):
        response = repository.append(upload, content.body[start : start + 1000], start)
        assert response.status_code == 202
        upload = location_of(response)
    response = repository.finish(upload, content.digest, content.body[2000:], 2000)
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)


@pytest.mark.parametrize("algorithm", OTHERS)
def test_wrong_digest_is_refused(repository: Repository, algorithm: str) -> None:
    """code-4: content that does not match its digest is 400, whatever the algorithm."""
    promised, sent = blob(algorithm=algorithm), blob(algorithm=algorithm)
    upload = repository.start_upload(**{"digest-algorithm": algorithm})
    assert repository.finish(upload, promised.digest, sent.body).status_code == 400
    for content in (promised, sent):
        assert repository.get_blob(content.digest).status_code == 404


@pytest.mark.parametrize("algorithm", OTHERS)
def test_single_post(repository: Repository, algorithm: str) -> None:
    """end-4b with another algorithm."""
    content = blob(algorithm=algorithm)
    response = repository.post(content.body, digest=content.digest)
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)


@pytest.mark.parametrize("algorithm", OTHERS)
def test_manifests_by_digest(repository: Repository, algorithm: str) -> None:
    """§ Pushing Manifests (newer): `Docker-Content-Digest` MUST equal the client's digest."""
    parts = [
        repository.push_blob(Content(part.body, part.media_type, algorithm))
        for part in (config(), blob())
    ]
    image = image_manifest(parts[0], parts[1:], algorithm=algorithm)
    index = image_index([image], algorithm=algorithm)
    for manifest in (image, index):
        response = repository.put_manifest(manifest)
        assert response.status_code == 201
        assert response.headers["docker-content-digest"] == manifest.digest
        assert repository.http.get(location_of(response)).content == manifest.body
        pulled = repository.get_manifest(manifest.digest)
        assert pulled.content == manifest.body
        assert pulled.headers["docker-content-digest"] == manifest.digest


@pytest.mark.parametrize("algorithm", OTHERS)
def test_tags_with_the_manifest(repository: Repository, algorithm: str) -> None:
    """end-7b (newer): the way to tag by another algorithm; by tag, the form it was pushed with."""
    parts = [repository.push_blob(part) for part in (config(), blob())]
    image = image_manifest(parts[0], parts[1:], algorithm=algorithm)
    assert repository.put_manifest(image, tags=["a", "b"]).status_code == 201
    for tag in ("a", "b"):
        response = repository.get_manifest(tag)
        assert response.content == image.body
        assert response.headers["docker-content-digest"] == image.digest


@pytest.mark.newer
@pytest.mark.parametrize("algorithm", ["md5", "sha1", "nonsense", ""])
def test_unsupported_algorithm_is_400(repository: Repository, algorithm: str) -> None:
    """§ Pushing blobs (newer): an unsupported algorithm SHOULD be 400."""
    response = repository.post(**{"digest-algorithm": algorithm})
    assert response.status_code == 400


@pytest.mark.entrepot
@pytest.mark.parametrize("algorithm", ["sha512", "blake3"])
def test_one_blob_under_both_names(repository: Repository, algorithm: str) -> None:
    """Ours: sha256 is always known; the answer echoes the form asked for."""
    content = blob(algorithm=algorithm)
    pushed = repository.finish(repository.start_upload(), content.digest, content.body)
    assert pushed.headers["docker-content-digest"] == content.digest
    for form in (content, Content(content.body)):
        for response in (
            repository.get_blob(form.digest),
            repository.head_blob(form.digest),
        ):
            assert response.status_code == 200
            assert response.headers["docker-content-digest"] == form.digest


@pytest.mark.entrepot
def test_alias_needs_a_proof(repository: Repository) -> None:
    """Ours: only a verified digest becomes a name; nobody pushed this one."""
    unproven = Content(repository.push_image("v1").body, algorithm="blake3")
    refused(repository.get_manifest(unproven.digest), 404, "MANIFEST_UNKNOWN")
    content = repository.push_blob(blob())
    alias = Content(content.body, algorithm="sha512")
    refused(repository.get_blob(alias.digest), 404, "BLOB_UNKNOWN")
    assert repository.post(mount=alias.digest).status_code == 202
    repository.push_blob(alias)
    assert repository.post(mount=alias.digest).status_code == 201
    assert repository.get_blob(alias.digest).content == content.body


@pytest.mark.entrepot
def test_hint_does_not_bind(repository: Repository) -> None:
    """Ours: a session hinted sha512 may be closed with sha256, and the other way round."""
    for hint, algorithm in (("sha512", "sha256"), ("sha256", "sha512"), ("sha512", "blake3")):
        content = blob(algorithm=algorithm)
        upload = repository.start_upload(**{"digest-algorithm": hint})
        assert repository.finish(upload, content.digest, content.body).status_code == 201


@pytest.mark.entrepot
def test_manifest_tagged_in_one_form_read_in_the_other(repository: Repository) -> None:
    """Ours: by digest the form asked for, by tag the form that tag was pushed with."""
    image = repository.push_image("old")
    alias = Content(image.body, image.media_type, "sha512")
    assert repository.put_manifest(alias, tags=["new"]).status_code == 201
    expected = {
        "old": image.digest,
        image.digest: image.digest,
        "new": alias.digest,
        alias.digest: alias.digest,
    }
    for reference, digest in expected.items():
        for response in (
            repository.get_manifest(reference),
            repository.head_manifest(reference),
        ):
            assert response.headers["docker-content-digest"] == digest, reference


@pytest.mark.entrepot
@pytest.mark.parametrize("algorithm", ["sha512", "blake3"])
def test_descriptors_may_use_either_name(repository: Repository, algorithm: str) -> None:
    """Ours: a manifest that names its parts by an alias holds them all the same."""
    parts = [repository.push_blob(blob(algorithm=algorithm)) for _ in range(2)]
    image = repository.push_manifest(image_manifest(parts[0], parts[1:], algorithm=algorithm))
    repository.push_manifest(image_index([image]), "index")
    for part in parts:
        for form in (part, Content(part.body)):
            refused(repository.delete_blob(form.digest), 405, "UNSUPPORTED")
    for form in (image, Content(image.body)):
        refused(repository.delete_manifest(form.digest), 405, "UNSUPPORTED")


@pytest.mark.entrepot
def test_deleted_under_one_name_is_gone_under_all(repository: Repository) -> None:
    """Ours: the names are of one blob; pushed again by one, it answers to that one at least."""
    content = repository.push_blob(blob(algorithm="sha512"))
    plain = Content(content.body)
    assert repository.delete_blob(content.digest).status_code == 202
    for form in (content, plain):
        refused(repository.get_blob(form.digest), 404, "BLOB_UNKNOWN")
        refused(repository.delete_blob(form.digest), 404, "BLOB_UNKNOWN")
    repository.push_blob(plain)
    assert repository.get_blob(plain.digest).content == content.body
