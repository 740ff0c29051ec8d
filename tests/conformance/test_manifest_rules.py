"""What we take for a manifest, and what we say when it is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.client import Repository, location_of
from tests.conformance.content import (
    DOCKER_MANIFEST_LIST,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    Content,
    blob,
    config,
    digest_of,
    document,
    image_index,
    image_manifest,
    padded,
)
from tests.conformance.expect import empty, errors_of, refused

pytestmark = pytest.mark.entrepot

LIMIT = 4 << 20


@pytest.fixture
def image(repository: Repository) -> Content:
    """Return an image manifest whose blobs are pushed, itself not yet."""
    parts = [repository.push_blob(part) for part in (config(), blob())]
    return image_manifest(parts[0], parts[1:])


def fields_of(manifest: Content) -> dict[str, Any]:
    """Return a manifest as a dictionary to be changed."""
    fields: dict[str, Any] = json.loads(manifest.body)
    return fields


def test_headers_of_a_pushed_manifest(repository: Repository, image: Content) -> None:
    """Ours: `Location` by digest even after a push by tag; no body; no `OCI-Subject`."""
    response = repository.put_manifest(image, "v1")
    empty(response, 201)
    assert response.headers["location"] == f"/v2/{repository}/manifests/{image.digest}"
    assert response.headers["docker-content-digest"] == image.digest
    assert "oci-subject" not in response.headers
    assert "oci-tag" not in response.headers


def test_exactly_the_limit_is_accepted(repository: Repository, image: Content) -> None:
    """Ours: up to 4 194 304 bytes."""
    repository.push_manifest(padded(image, LIMIT), "large")


@pytest.mark.parametrize("known_length", [True, False])
def test_one_byte_more_is_413(
    repository: Repository, image: Content, *, known_length: bool
) -> None:
    """Ours: 413 `MANIFEST_INVALID`, by `Content-Length` or while reading."""
    body = padded(image, LIMIT + 1).body
    response = repository.http.put(
        f"/v2/{repository}/manifests/large",
        content=body if known_length else iter([body]),
        headers={"content-type": OCI_MANIFEST},
    )
    refused(response, 413, "MANIFEST_INVALID")


@pytest.mark.parametrize("content_type", [None, "application/json", "application/octet-stream"])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", [OCI_MANIFEST, OCI_INDEX])
def test_type_is_found_without_content_type(
    repository: Repository,
    image: Content,
    kind: str,
    content_type: str | None,
    *,
    named: bool,
) -> None:
    """Ours: without a telling header `mediaType` decides, without both the fields."""
    pushed = repository.push_manifest(image)
    fields = fields_of(image_index([pushed]) if kind == OCI_INDEX else image)
    if not named:
        del fields["mediaType"]
    headers = {} if content_type is None else {"content-type": content_type}
    url = f"/v2/{repository}/manifests/v1"
    response = repository.http.put(url, content=json.dumps(fields).encode(), headers=headers)
    assert response.status_code == 201, response.text
    assert repository.get_manifest("v1").headers["content-type"] == kind


@pytest.mark.parametrize(
    "media_type",
    [
        "application/vnd.docker.distribution.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
        "application/vnd.oci.artifact.manifest.v1+json",
        "application/vnd.example+json",
        "text/html",
    ],
)
def test_other_types_are_refused(repository: Repository, image: Content, media_type: str) -> None:
    """Ours: OCI and Docker schema 2 only, image or list; anything else is 400."""
    fields = {**fields_of(image), "mediaType": media_type}
    response = repository.put_manifest(document(fields, media_type), "v1")
    refused(response, 400, "MANIFEST_INVALID")


def test_every_absent_blob_is_named(repository: Repository) -> None:
    """Ours: 404 with one `MANIFEST_BLOB_UNKNOWN` for each digest, the config's included."""
    present, absent = repository.push_blob(blob()), [config(), blob(), blob()]
    manifest = image_manifest(absent[0], [present, *absent[1:], absent[1]])
    response = repository.put_manifest(manifest, "v1")
    refused(response, 404, "MANIFEST_BLOB_UNKNOWN")
    text = json.dumps(errors_of(response))
    assert len(errors_of(response)) == 3
    assert all(part.digest in text for part in absent)
    assert present.digest not in text


def test_absent_child_is_named(repository: Repository) -> None:
    """Ours: every child of an index must be here: 404 `MANIFEST_BLOB_UNKNOWN`."""
    elsewhere = repository.another().push_image()
    index = image_index([repository.push_image(), elsewhere])
    response = repository.put_manifest(index, "v1")
    refused(response, 404, "MANIFEST_BLOB_UNKNOWN")
    assert elsewhere.digest in response.text


@pytest.mark.parametrize(
    "media_type",
    [
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ],
)
def test_foreign_layers_need_not_be_here(repository: Repository, media_type: str) -> None:
    """image-spec, Non-Distributable Layers: SHOULD NOT be pushed; so their absence is fine."""
    image_config = repository.push_blob(config())
    repository.push_manifest(image_manifest(image_config, [blob(9, media_type)]), "v1")


def test_urls_do_not_excuse_a_layer(repository: Repository) -> None:
    """Ours: `urls` never decides, and is never fetched."""
    layer = {**blob().descriptor, "urls": ["http://192.0.2.1/layer"]}
    manifest = image_manifest(repository.push_blob(config()))
    fields = {**fields_of(manifest), "layers": [layer]}
    response = repository.put_manifest(document(fields, OCI_MANIFEST), "v1")
    refused(response, 404, "MANIFEST_BLOB_UNKNOWN")


@pytest.mark.parametrize("layer_type", ["nondistributable", "plain"])
def test_other_digest_algorithms_pass_where_nothing_is_stored(
    repository: Repository, layer_type: str
) -> None:
    """Ours: a foreign layer, or a subject, may have a digest that we cannot compute."""
    unknown = {"mediaType": OCI_MANIFEST, "size": 7, "digest": "sha384:" + "0" * 96}
    foreign = f"application/vnd.oci.image.layer.{layer_type}.v1.tar"
    manifest = image_manifest(repository.push_blob(config()))
    fields = {**fields_of(manifest), "layers": [{**unknown, "mediaType": foreign}]}
    image = document({**fields, "subject": unknown}, OCI_MANIFEST)
    response = repository.put_manifest(image, "v1")
    if layer_type == "plain":
        refused(response, 400, "MANIFEST_INVALID")
        return
    assert response.status_code == 201
    assert "oci-subject" not in response.headers  # so that clients list it by a tag
    assert repository.get_manifest("v1").content == image.body


@pytest.mark.parametrize("index_type", [OCI_INDEX, DOCKER_MANIFEST_LIST])
@pytest.mark.parametrize("media_type", [OCI_LAYER, OCI_MANIFEST, "application/x-anything"])
def test_an_index_may_list_blobs(repository: Repository, index_type: str, media_type: str) -> None:
    """Ours: build caches and checkpoints list blobs in an index, which are kept with it."""
    listed = [repository.push_blob(blob(media_type=media_type)) for _ in range(2)]
    index = image_index([*listed, repository.push_image()], media_type=index_type)
    repository.push_manifest(index, "cache")
    assert repository.get_manifest("cache").content == index.body
    for each in listed:
        assert repository.get_blob(each.digest).content == each.body
        refused(repository.delete_blob(each.digest), 405, "UNSUPPORTED")
    assert repository.delete_manifest(index.digest).status_code == 202
    assert repository.delete_blob(listed[0].digest).status_code == 202


def test_each_absent_entry_of_an_index_is_named(repository: Repository) -> None:
    """Ours: what an entry is, its digest decides: no manifest and no blob here is a 404."""
    here, elsewhere, late = repository.push_blob(blob()), blob(), blob()
    index = image_index([here, elsewhere, late])
    response = repository.put_manifest(index, "cache")
    refused(response, 404, "MANIFEST_BLOB_UNKNOWN")
    named = {error["detail"]["digest"] for error in response.json()["errors"]}
    assert named == {elsewhere.digest, late.digest}
    for each in (elsewhere, late):
        repository.push_blob(each)
    repository.push_manifest(index, "cache")


def test_empty_index(repository: Repository) -> None:
    """Ours: an index of nothing is accepted, and creates the repository."""
    index = image_index(annotations={"org.example.empty": "yes"})
    repository.push_manifest(index, "none")
    assert repository.get_manifest("none").content == index.body


def test_wrong_descriptor_size_is_warned_of(repository: Repository, image: Content) -> None:
    """Ours, in the form of § Warnings: accepted, `Warning: 299 - "descriptor size differs …"`."""
    fields = fields_of(image)
    fields["layers"][0]["size"] += 1
    response = repository.put_manifest(document(fields, OCI_MANIFEST), "v1")
    assert response.status_code == 201
    warning = response.headers["warning"]
    assert warning.startswith('299 - "descriptor size differs')
    assert warning.endswith('"')
    assert len(warning) <= 4096
    assert fields["layers"][0]["digest"] in warning
    assert "warning" not in repository.put_manifest(image, "v1").headers
    assert repository.http.get(location_of(response)).content == document(fields, OCI_MANIFEST).body


def test_digest_of_other_bytes_is_400(repository: Repository, image: Content) -> None:
    """Ours: 400 `DIGEST_INVALID`, and nothing is stored under either digest."""
    wrong = digest_of(b"other")
    refused(repository.put_manifest(image, wrong), 400, "DIGEST_INVALID")
    refused(repository.get_manifest(wrong), 404, "MANIFEST_UNKNOWN")
    refused(repository.get_manifest(image.digest), 404, "MANIFEST_UNKNOWN")
