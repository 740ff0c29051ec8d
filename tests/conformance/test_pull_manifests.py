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
    Content,
    config,
    digest_of,
    image_index,
    image_manifest,
)

ABSENT = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def image(shared: Repository) -> Content:
    """Return an image that has the tag ``v1``."""
    return shared.push_image("v1")


@pytest.mark.parametrize("by", ["tag", "digest"])
def test_get_gives_the_manifest_and_head_its_size(
    shared: Repository, image: Content, by: str
) -> None:
    """§ Pulling manifests: GET MUST provide the expected manifest with 200, by tag or digest.

    § Checking if content exists: HEAD MUST return 200; SHOULD carry `Content-Length`.
    `Content-Type` SHOULD be the pushed one, without parameters; `Docker-Content-Digest` SHOULD be
    there (a MUST in the newer text).
    """
    reference = "v1" if by == "tag" else image.digest
    got, asked = shared.get_manifest(reference), shared.head_manifest(reference)
    assert (got.content, asked.content) == (image.body, b"")
    for response in (got, asked):
        assert response.status_code == 200
        assert response.headers["content-type"] == OCI_MANIFEST
        assert response.headers["docker-content-digest"] == image.digest
        assert response.headers["content-length"] == str(len(image.body))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_absent_manifest_is_404(shared: Repository, image: Content, method: str) -> None:
    """§ Pulling manifests: a manifest not found in the repository MUST be 404, for HEAD too.

    Whatever other repositories hold, and in one that does not exist.
    """
    other, none = shared.another(), shared.another()
    other.push_image("v1")
    for repository, reference in (
        *((shared, "absent"), (shared, ABSENT)),
        (other, image.digest),
        *((none, "latest"), (none, ABSENT)),
    ):
        response = shared.http.request(method, f"/v2/{repository}/manifests/{reference}")
        assert response.status_code == 404


def test_tag_may_have_128_characters(repository: Repository) -> None:
    """§ Pulling manifests: a tag MUST match `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`."""
    tag = "_" + "aZ0._-" * 21 + "x"
    assert len(tag) == 128
    image = repository.push_image(tag)
    assert repository.get_manifest(tag).content == image.body


@pytest.mark.parametrize("reference", [".INVALID_MANIFEST_NAME", "a" * 129, "a%20b", "-a"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_malformed_reference_is_not_found(
    shared: Repository, image: Content, method: str, reference: str
) -> None:
    """§ Pulling manifests: a reference MUST NOT be in any other format; 404 (or 400) it is."""
    response = shared.http.request(method, f"/v2/{shared}/manifests/{reference}")
    assert response.status_code in {400, 404}


ACCEPTED = (
    *(None, "*/*", "text/html", OCI_INDEX, OCI_MANIFEST, DOCKER_MANIFEST),
    *("junk;;q=,", "a/b," * 4000),
)


@pytest.mark.entrepot
@pytest.mark.parametrize("stored", MANIFEST_TYPES)
def test_accept_converts_nothing(repository: Repository, stored: str) -> None:
    """Ours: the stored type is returned whatever `Accept` says; never 406."""
    image_config = repository.push_blob(config())
    manifest = image_manifest(image_config, media_type=stored)
    if stored in {OCI_INDEX, DOCKER_MANIFEST_LIST}:
        manifest = image_index([repository.push_image()], media_type=stored)
    repository.push_manifest(manifest, "v1")
    for accept in ACCEPTED:
        request = repository.http.build_request("GET", f"/v2/{repository}/manifests/v1")
        del request.headers["accept"]
        if accept is not None:
            request.headers["accept"] = accept
        response = repository.http.send(request)
        assert response.status_code == 200, accept
        assert response.content == manifest.body
        assert response.headers["content-type"] == stored


@pytest.mark.entrepot
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_etag_saves_a_second_pull(shared: Repository, image: Content, method: str) -> None:
    """Ours after RFC 9110 §13.1.2: `ETag` is the digest; `If-None-Match` gives 304."""
    path = f"/v2/{shared}/manifests/v1"
    etag = shared.http.request(method, path).headers["etag"]
    assert etag == f'"{image.digest}"'
    for condition in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        response = shared.http.request(method, path, headers={"if-none-match": condition})
        assert response.status_code == 304, condition
        assert response.content == b""
        assert response.headers["etag"] == etag
    changed = shared.http.request(method, path, headers={"if-none-match": '"other"'})
    assert changed.status_code == 200


@pytest.mark.newer
def test_ns_parameter_changes_nothing(shared: Repository, image: Content) -> None:
    """§ Registry Proxying (newer): a registry MAY ignore `ns`; the answer stays the same."""
    response = shared.get_manifest("v1?ns=registry.example.org")
    assert response.status_code == 200
    assert digest_of(response.content) == image.digest
