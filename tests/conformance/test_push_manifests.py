"""end-7a: pushing manifests."""

from __future__ import annotations

import pytest

from tests.conformance.client import Registry, location_of
from tests.conformance.content import (
    DOCKER_MANIFEST,
    DOCKER_MANIFEST_LIST,
    EMPTY,
    MANIFEST_TYPES,
    OCI_INDEX,
    OCI_MANIFEST,
    Content,
    blob,
    config,
    digest_of,
    document,
    image_index,
    image_manifest,
    padded,
    unique_annotations,
)
from tests.conformance.expect import codes_of

FOUR_MEGABYTES = 4_000_000


@pytest.fixture
def image(registry: Registry, repository: str) -> Content:
    """Return an image manifest whose blobs are pushed, itself not yet."""
    parts = [registry.push_blob(repository, part) for part in (config(), blob(), blob())]
    return image_manifest(parts[0], parts[1:])


@pytest.mark.parametrize("by", ["tag", "digest"])
def test_put_stores_the_manifest(
    registry: Registry, repository: str, image: Content, by: str
) -> None:
    """§ Pushing Manifests: MUST be 201 with a `Location` from which the manifest is pullable."""
    response = registry.put_manifest(repository, image, "v1" if by == "tag" else image.digest)
    assert response.status_code == 201
    pulled = registry.http.get(location_of(response), headers={"accept": ", ".join(MANIFEST_TYPES)})
    assert pulled.status_code == 200
    assert pulled.content == image.body


def test_bytes_are_kept(registry: Registry, repository: str, image: Content) -> None:
    """§ Pushing Manifests: MUST store the exact byte representation, blanks and order included."""
    odd = Content(b"\n " + image.body.replace(b'"layers"', b'   "layers"') + b"\n\n", OCI_MANIFEST)
    registry.push_manifest(repository, odd, "odd")
    for reference in ("odd", odd.digest):
        assert registry.get_manifest(repository, reference).content == odd.body


@pytest.mark.parametrize("by", ["tag", "digest"])
def test_digest_header_is_the_clients(
    registry: Registry, repository: str, image: Content, by: str
) -> None:
    """§ Pushing Manifests: `Docker-Content-Digest` MUST be equal to the client provided digest."""
    response = registry.put_manifest(repository, image, "v1" if by == "tag" else image.digest)
    assert response.headers["docker-content-digest"] == image.digest


def test_wrong_digest_is_refused(registry: Registry, repository: str, image: Content) -> None:
    """§ Pushing Manifests: a digest in the path that is not the bytes' is 400."""
    wrong = digest_of(image.body + b" ")
    assert registry.put_manifest(repository, image, wrong).status_code == 400
    assert registry.get_manifest(repository, wrong).status_code == 404


def test_tag_moves_to_what_is_pushed_last(
    registry: Registry, repository: str, image: Content
) -> None:
    """§ Pushing Manifests: the tag names the manifest pushed last; the first stays by digest."""
    first = registry.push_image(repository, "moving")
    registry.push_manifest(repository, image, "moving")
    assert registry.get_manifest(repository, "moving").content == image.body
    assert registry.get_manifest(repository, first.digest).content == first.body


def test_same_manifest_twice(registry: Registry, repository: str, image: Content) -> None:
    """§ Pushing Manifests: to push the same bytes again, also under another tag, is 201."""
    for reference in ("v1", "v1", "v2", None):
        registry.push_manifest(repository, image, reference)
    assert registry.get_manifest(repository, "v2").content == image.body


def test_content_type_parameters_are_ignored(
    registry: Registry, repository: str, image: Content
) -> None:
    """§ Pushing Manifests: the registry SHOULD ignore parameters on `Content-Type`."""
    sent = Content(image.body, f"{OCI_MANIFEST}; charset=utf-8")
    assert registry.put_manifest(repository, sent, "v1").status_code == 201
    assert registry.get_manifest(repository, "v1").headers["content-type"] == OCI_MANIFEST


def test_list_of_blobs_may_be_empty(registry: Registry, repository: str) -> None:
    """§ Pushing Manifests: the list of blobs MAY be empty."""
    manifest = image_manifest(registry.push_blob(repository, config()))
    registry.push_manifest(repository, manifest, "empty")
    assert registry.get_manifest(repository, "empty").content == manifest.body


@pytest.mark.parametrize("media_type", [OCI_MANIFEST, DOCKER_MANIFEST])
def test_image_types(registry: Registry, repository: str, media_type: str) -> None:
    """§ Definitions: image manifests of OCI, and of Docker, the spec's origin."""
    parts = [registry.push_blob(repository, part) for part in (config(), blob())]
    manifest = image_manifest(parts[0], parts[1:], media_type)
    registry.push_manifest(repository, manifest, "v1")
    pulled = registry.get_manifest(repository, "v1")
    assert pulled.content == manifest.body
    assert pulled.headers["content-type"] == media_type


@pytest.mark.parametrize("media_type", [OCI_INDEX, DOCKER_MANIFEST_LIST])
def test_index_types(registry: Registry, repository: str, media_type: str) -> None:
    """§ Definitions: an index of manifests, pulled by tag and with its children by digest."""
    children = [registry.push_image(repository) for _ in range(2)]
    index = image_index(children, media_type)
    registry.push_manifest(repository, index, "multi")
    pulled = registry.get_manifest(repository, "multi")
    assert pulled.content == index.body
    assert pulled.headers["content-type"] == media_type
    for child in children:
        assert registry.get_manifest(repository, child.digest).content == child.body


def test_nested_index(registry: Registry, repository: str) -> None:
    """image-spec, Image Index: an index may hold indexes."""
    inner = registry.push_manifest(repository, image_index([registry.push_image(repository)]))
    outer = image_index([inner], annotations=unique_annotations())
    registry.push_manifest(repository, outer, "outer")
    assert registry.get_manifest(repository, "outer").content == outer.body


def test_artifact(registry: Registry, repository: str) -> None:
    """image-spec, Guidelines for Artifact Usage: artifactType, empty config, foreign types."""
    registry.push_blob(repository, EMPTY)
    layer = registry.push_blob(repository, blob(media_type="application/vnd.example.thing+yaml"))
    artifact = image_manifest(
        EMPTY,
        [layer],
        artifactType="application/vnd.example.thing",
        annotations=unique_annotations(),
    )
    registry.push_manifest(repository, artifact, "thing")
    assert registry.get_manifest(repository, "thing").content == artifact.body


@pytest.mark.parametrize(
    "config_type",
    ["application/vnd.example.config+json", "application/vnd.cncf.helm.config.v1+json"],
)
def test_unknown_config_type(registry: Registry, repository: str, config_type: str) -> None:
    """image-spec, Image Manifest: implementations MUST NOT error on an unknown config type."""
    image_config = registry.push_blob(repository, Content(config().body, config_type))
    registry.push_manifest(repository, image_manifest(image_config), "v1")


def test_unknown_fields_are_kept(registry: Registry, repository: str) -> None:
    """image-spec, Extensibility: unknown properties MUST NOT be an error; bytes are kept."""
    image_config = registry.push_blob(repository, config())
    manifest = image_manifest(image_config, org_example={"deep": [1, 2.5, None, "ü"]})
    registry.push_manifest(repository, manifest, "v1")
    assert registry.get_manifest(repository, "v1").content == manifest.body


def test_embedded_data(registry: Registry, repository: str) -> None:
    """image-spec, Descriptor § Embedded Content: `data` rides along, the blob is pushed as well."""
    registry.push_blob(repository, EMPTY)
    manifest = document(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {**EMPTY.descriptor, "data": "e30="},
            "layers": [{**EMPTY.descriptor, "data": "e30="}],
            "annotations": unique_annotations(),
        },
        OCI_MANIFEST,
    )
    registry.push_manifest(repository, manifest, "v1")
    assert registry.get_manifest(repository, "v1").content == manifest.body


def test_absent_blobs_are_named_when_refused(registry: Registry, repository: str) -> None:
    """§ Push: a refusal for unknown content MUST have one or more `MANIFEST_BLOB_UNKNOWN`."""
    manifest = image_manifest(registry.push_blob(repository, config()), [blob()])
    response = registry.put_manifest(repository, manifest, "v1")
    if response.status_code != 201:
        assert response.status_code in {400, 404}
        assert codes_of(response) == {"MANIFEST_BLOB_UNKNOWN"}


def test_four_megabytes_are_accepted(registry: Registry, repository: str, image: Content) -> None:
    """§ Pushing Manifests: registries SHOULD support manifests of at least 4 megabytes."""
    large = padded(image, FOUR_MEGABYTES)
    registry.push_manifest(repository, large, "large")
    assert registry.get_manifest(repository, "large").content == large.body


def test_some_limit_is_enforced(registry: Registry, repository: str, image: Content) -> None:
    """§ Pushing Manifests: SHOULD enforce some limit, with 413 Payload Too Large."""
    response = registry.put_manifest(repository, padded(image, 16 << 20), "huge")
    assert response.status_code == 413
