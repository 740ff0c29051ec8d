"""end-7a, end-7b: pushing manifests, with several tags at once, and under a condition."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository, location_of
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
from tests.conformance.expect import codes_of, pullable, refused

FOUR_MEGABYTES = 4_000_000


@pytest.fixture
def image(repository: Repository) -> Content:
    """Return an image manifest whose blobs are pushed, itself not yet."""
    parts = [repository.push_blob(part) for part in (config(), blob(), blob())]
    return image_manifest(parts[0], parts[1:])


@pytest.mark.parametrize("by", ["tag", "digest"])
def test_put_stores_the_manifest(repository: Repository, image: Content, by: str) -> None:
    """§ Pushing Manifests: MUST be 201 with a `Location` from which the manifest is pullable."""
    response = repository.put_manifest(image, "v1" if by == "tag" else image.digest)
    assert response.status_code == 201
    pulled = repository.http.get(
        location_of(response), headers={"accept": ", ".join(MANIFEST_TYPES)}
    )
    assert pulled.status_code == 200
    assert pulled.content == image.body


def test_bytes_are_kept(repository: Repository, image: Content) -> None:
    """§ Pushing Manifests: MUST store the exact byte representation, blanks and order included."""
    odd = Content(b"\n " + image.body.replace(b'"layers"', b'   "layers"') + b"\n\n", OCI_MANIFEST)
    repository.push_manifest(odd, "odd")
    for reference in ("odd", odd.digest):
        assert repository.get_manifest(reference).content == odd.body


@pytest.mark.parametrize("by", ["tag", "digest"])
def test_digest_header_is_the_clients(repository: Repository, image: Content, by: str) -> None:
    """§ Pushing Manifests: `Docker-Content-Digest` MUST be equal to the client provided digest."""
    response = repository.put_manifest(image, "v1" if by == "tag" else image.digest)
    assert response.headers["docker-content-digest"] == image.digest


def test_wrong_digest_is_refused(repository: Repository, image: Content) -> None:
    """§ Pushing Manifests: a digest in the path that is not the bytes' is 400."""
    wrong = digest_of(image.body + b" ")
    assert repository.put_manifest(image, wrong).status_code == 400
    assert repository.get_manifest(wrong).status_code == 404


def test_tag_moves_to_what_is_pushed_last(repository: Repository, image: Content) -> None:
    """§ Pushing Manifests: the tag names the manifest pushed last; the first stays by digest."""
    first = repository.push_image("moving")
    repository.push_manifest(image, "moving")
    assert repository.get_manifest("moving").content == image.body
    assert repository.get_manifest(first.digest).content == first.body


def test_same_manifest_twice(repository: Repository, image: Content) -> None:
    """§ Pushing Manifests: to push the same bytes again, also under another tag, is 201."""
    for reference in ("v1", "v1", "v2", None):
        repository.push_manifest(image, reference)
    assert repository.get_manifest("v2").content == image.body


def test_content_type_parameters_are_ignored(repository: Repository, image: Content) -> None:
    """§ Pushing Manifests: the registry SHOULD ignore parameters on `Content-Type`."""
    sent = Content(image.body, f"{OCI_MANIFEST}; charset=utf-8")
    assert repository.put_manifest(sent, "v1").status_code == 201
    assert repository.get_manifest("v1").headers["content-type"] == OCI_MANIFEST


def test_list_of_blobs_may_be_empty(repository: Repository) -> None:
    """§ Pushing Manifests: the list of blobs MAY be empty."""
    manifest = image_manifest(repository.push_blob(config()))
    repository.push_manifest(manifest, "empty")
    assert repository.get_manifest("empty").content == manifest.body


@pytest.mark.parametrize("media_type", [OCI_MANIFEST, DOCKER_MANIFEST])
def test_image_types(repository: Repository, media_type: str) -> None:
    """§ Definitions: image manifests of OCI, and of Docker, the spec's origin."""
    parts = [repository.push_blob(part) for part in (config(), blob())]
    manifest = image_manifest(parts[0], parts[1:], media_type)
    repository.push_manifest(manifest, "v1")
    pulled = repository.get_manifest("v1")
    assert pulled.content == manifest.body
    assert pulled.headers["content-type"] == media_type


@pytest.mark.parametrize("media_type", [OCI_INDEX, DOCKER_MANIFEST_LIST])
def test_index_types(repository: Repository, media_type: str) -> None:
    """§ Definitions: an index of manifests, pulled by tag and with its children by digest."""
    children = [repository.push_image() for _ in range(2)]
    index = image_index(children, media_type)
    repository.push_manifest(index, "multi")
    pulled = repository.get_manifest("multi")
    assert pulled.content == index.body
    assert pulled.headers["content-type"] == media_type
    for child in children:
        assert repository.get_manifest(child.digest).content == child.body


def test_nested_index(repository: Repository) -> None:
    """image-spec, Image Index: an index may hold indexes."""
    inner = repository.push_manifest(image_index([repository.push_image()]))
    outer = image_index([inner], annotations=unique_annotations())
    repository.push_manifest(outer, "outer")
    assert repository.get_manifest("outer").content == outer.body


def test_artifact(repository: Repository) -> None:
    """image-spec, Guidelines for Artifact Usage: artifactType, empty config, foreign types."""
    repository.push_blob(EMPTY)
    layer = repository.push_blob(blob(media_type="application/vnd.example.thing+yaml"))
    artifact = image_manifest(
        EMPTY,
        [layer],
        artifactType="application/vnd.example.thing",
        annotations=unique_annotations(),
    )
    repository.push_manifest(artifact, "thing")
    assert repository.get_manifest("thing").content == artifact.body


@pytest.mark.parametrize(
    "config_type",
    ["application/vnd.example.config+json", "application/vnd.cncf.helm.config.v1+json"],
)
def test_unknown_config_type(repository: Repository, config_type: str) -> None:
    """image-spec, Image Manifest: implementations MUST NOT error on an unknown config type."""
    image_config = repository.push_blob(Content(config().body, config_type))
    repository.push_manifest(image_manifest(image_config), "v1")


def test_unknown_fields_are_kept(repository: Repository) -> None:
    """image-spec, Extensibility: unknown properties MUST NOT be an error; bytes are kept."""
    image_config = repository.push_blob(config())
    manifest = image_manifest(image_config, org_example={"deep": [1, 2.5, None, "ü"]})
    repository.push_manifest(manifest, "v1")
    assert repository.get_manifest("v1").content == manifest.body


def test_embedded_data(repository: Repository) -> None:
    """image-spec, Descriptor § Embedded Content: `data` rides along, the blob is pushed as well."""
    repository.push_blob(EMPTY)
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
    repository.push_manifest(manifest, "v1")
    assert repository.get_manifest("v1").content == manifest.body


def test_absent_blobs_are_named_when_refused(repository: Repository) -> None:
    """§ Push: a refusal for unknown content MUST have one or more `MANIFEST_BLOB_UNKNOWN`."""
    manifest = image_manifest(repository.push_blob(config()), [blob()])
    response = repository.put_manifest(manifest, "v1")
    if response.status_code != 201:
        assert response.status_code in {400, 404}
        assert codes_of(response) == {"MANIFEST_BLOB_UNKNOWN"}


def test_four_megabytes_are_accepted(repository: Repository, image: Content) -> None:
    """§ Pushing Manifests: registries SHOULD support manifests of at least 4 megabytes."""
    large = padded(image, FOUR_MEGABYTES)
    repository.push_manifest(large, "large")
    assert repository.get_manifest("large").content == large.body


def test_some_limit_is_enforced(repository: Repository, image: Content) -> None:
    """§ Pushing Manifests: SHOULD enforce some limit, with 413 Payload Too Large."""
    response = repository.put_manifest(padded(image, 16 << 20), "huge")
    assert response.status_code == 413


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
