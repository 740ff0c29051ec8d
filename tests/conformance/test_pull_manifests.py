"""end-3: pulling manifests and asking for them."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository
from tests.conformance.content import (
    DOCKER_MANIFEST,
    DOCKER_MANIFEST_LIST,
    MANIFEST_TYPES,
    OCI_INDEX,
    OCI_MANIFEST,
    config,
    digest_of,
    image_index,
    image_manifest,
)

ABSENT = "sha256:" + "0" * 64


@pytest.mark.parametrize("by", ["tag", "digest"])
def test_get_gives_the_manifest(repository: Repository, by: str) -> None:
    """§ Pulling manifests: GET MUST provide the expected manifest with 200, by tag or digest."""
    image = repository.push_image("v1")
    reference = "v1" if by == "tag" else image.digest
    response = repository.get_manifest(reference)
    assert response.status_code == 200
    assert response.content == image.body


@pytest.mark.parametrize("by", ["tag", "digest"])
def test_content_type_is_the_pushed_one_without_parameters(repository: Repository, by: str) -> None:
    """§ Pulling manifests: `Content-Type` SHOULD be the pushed one, without parameters."""
    image = repository.push_image("v1")
    reference = "v1" if by == "tag" else image.digest
    for response in (
        repository.get_manifest(reference),
        repository.head_manifest(reference),
    ):
        assert response.headers["content-type"] == OCI_MANIFEST


@pytest.mark.parametrize("by", ["tag", "digest"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_answer_carries_the_digest(repository: Repository, method: str, by: str) -> None:
    """§ Pulling manifests: `Docker-Content-Digest` SHOULD be there (a MUST in the newer text)."""
    image = repository.push_image("v1")
    reference = "v1" if by == "tag" else image.digest
    response = repository.http.request(
        method, f"/v2/{repository}/manifests/{reference}", headers={"accept": OCI_MANIFEST}
    )
    assert response.headers["docker-content-digest"] == image.digest


@pytest.mark.parametrize("by", ["tag", "digest"])
def test_head_answers_200_with_the_size(repository: Repository, by: str) -> None:
    """§ Checking if content exists: HEAD MUST return 200; SHOULD carry `Content-Length`."""
    image = repository.push_image("v1")
    reference = "v1" if by == "tag" else image.digest
    response = repository.head_manifest(reference)
    assert response.status_code == 200
    assert response.content == b""
    assert response.headers["content-length"] == str(len(image.body))


@pytest.mark.parametrize("reference", ["absent", ABSENT])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_absent_manifest_is_404(repository: Repository, method: str, reference: str) -> None:
    """§ Pulling manifests: a manifest not found in the repository MUST be 404, for HEAD too."""
    repository.push_image("v1")
    response = repository.http.request(method, f"/v2/{repository}/manifests/{reference}")
    assert response.status_code == 404


@pytest.mark.parametrize("reference", ["latest", ABSENT])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_nonexistent_repository_is_404(repository: Repository, method: str, reference: str) -> None:
    """§ Pushing manifests: to pull a nonexistent repository MUST return 404."""
    response = repository.http.request(method, f"/v2/{repository}/manifests/{reference}")
    assert response.status_code == 404


def test_manifest_of_another_repository_is_404(repository: Repository) -> None:
    """§ Pulling manifests: "not found in the repository" is 404, whatever others hold."""
    image = repository.push_image("v1")
    other = repository.another()
    other.push_image("v1")
    assert other.get_manifest(image.digest).status_code == 404


def test_tag_may_have_128_characters(repository: Repository) -> None:
    """§ Pulling manifests: a tag MUST match `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`."""
    tag = "_" + "aZ0._-" * 21 + "x"
    assert len(tag) == 128
    image = repository.push_image(tag)
    assert repository.get_manifest(tag).content == image.body


@pytest.mark.parametrize("reference", [".INVALID_MANIFEST_NAME", "a" * 129, "a%20b", "-a"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_malformed_reference_is_not_found(
    repository: Repository, method: str, reference: str
) -> None:
    """§ Pulling manifests: a reference MUST NOT be in any other format; 404 (or 400) it is."""
    repository.push_image("v1")
    response = repository.http.request(method, f"/v2/{repository}/manifests/{reference}")
    assert response.status_code in {400, 404}


@pytest.mark.entrepot
@pytest.mark.parametrize(
    "accept",
    [
        None,
        "*/*",
        "text/html",
        OCI_INDEX,
        OCI_MANIFEST,
        DOCKER_MANIFEST,
        "junk;;q=,",
        "a/b," * 4000,
    ],
)
@pytest.mark.parametrize("stored", MANIFEST_TYPES)
def test_accept_converts_nothing(repository: Repository, stored: str, accept: str | None) -> None:
    """Ours: the stored type is returned whatever `Accept` says; never 406."""
    image_config = repository.push_blob(config())
    manifest = image_manifest(image_config, media_type=stored)
    if stored in {OCI_INDEX, DOCKER_MANIFEST_LIST}:
        manifest = image_index([repository.push_image()], media_type=stored)
    repository.push_manifest(manifest, "v1")
    request = repository.http.build_request("GET", f"/v2/{repository}/manifests/v1")
    del request.headers["accept"]
    if accept is not None:
        request.headers["accept"] = accept
    response = repository.http.send(request)
    assert response.status_code == 200
    assert response.content == manifest.body
    assert response.headers["content-type"] == stored


@pytest.mark.entrepot
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_etag_saves_a_second_pull(repository: Repository, method: str) -> None:
    """Ours after RFC 9110 §13.1.2: `ETag` is the digest; `If-None-Match` gives 304."""
    image = repository.push_image("v1")
    path = f"/v2/{repository}/manifests/v1"
    etag = repository.http.request(method, path).headers["etag"]
    assert etag == f'"{image.digest}"'
    for condition in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        response = repository.http.request(method, path, headers={"if-none-match": condition})
        assert response.status_code == 304, condition
        assert response.content == b""
        assert response.headers["etag"] == etag
    changed = repository.http.request(method, path, headers={"if-none-match": '"other"'})
    assert changed.status_code == 200


@pytest.mark.newer
def test_ns_parameter_changes_nothing(repository: Repository) -> None:
    """§ Registry Proxying (newer): a registry MAY ignore `ns`; the answer stays the same."""
    image = repository.push_image("v1")
    response = repository.get_manifest("v1?ns=registry.example.org")
    assert response.status_code == 200
    assert digest_of(response.content) == image.digest
