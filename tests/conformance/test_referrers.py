"""end-12a, end-12b, and `subject` on end-7a: what refers to a manifest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.client import Registry, next_page
from tests.conformance.content import (
    EMPTY,
    OCI_CONFIG,
    OCI_INDEX,
    OCI_MANIFEST,
    Content,
    blob,
    image_index,
    image_manifest,
    subject_of,
    unique_annotations,
)
from tests.conformance.expect import refused

SBOM = "application/vnd.example.sbom.v1"
SIGNATURE = "application/vnd.example.signature.v1"


def push_artifact(
    registry: Registry, repository: str, subject: Content, artifact_type: str = SBOM
) -> Content:
    """Push an artifact with `artifact_type` that refers to `subject`."""
    registry.push_blob(repository, EMPTY)
    artifact = image_manifest(
        EMPTY,
        [EMPTY],
        artifactType=artifact_type,
        annotations=unique_annotations(),
        **subject_of(subject),
    )
    return registry.push_manifest(repository, artifact)


def referrers_of(
    registry: Registry, repository: str, subject: Content, **query: str
) -> list[dict[str, Any]]:
    """Return the descriptors that refer to `subject`, of the first page."""
    response = registry.list_referrers(repository, subject.digest, **query)
    assert response.status_code == 200, response.text
    descriptors: list[dict[str, Any]] = response.json()["manifests"]
    return descriptors


def test_subject_is_acknowledged(registry: Registry, repository: str) -> None:
    """§ Pushing Manifests with Subject: MUST answer `OCI-Subject: <subject digest>`."""
    image = registry.push_image(repository)
    registry.push_blob(repository, EMPTY)
    artifact = image_manifest(EMPTY, artifactType=SBOM, **subject_of(image))
    response = registry.put_manifest(repository, artifact)
    assert response.status_code == 201
    assert response.headers["oci-subject"] == image.digest


def test_subject_may_come_later(registry: Registry, repository: str) -> None:
    """§ Push: MUST initially accept a `subject` that does not exist; either order will do."""
    parts = [registry.push_blob(repository, part) for part in (EMPTY, blob())]
    image = image_manifest(parts[0], parts[1:])
    artifact = push_artifact(registry, repository, image)
    assert [entry["digest"] for entry in referrers_of(registry, repository, image)] == [
        artifact.digest
    ]
    registry.push_manifest(repository, image)
    assert [entry["digest"] for entry in referrers_of(registry, repository, image)] == [
        artifact.digest
    ]


def test_list_is_an_image_index(registry: Registry, repository: str) -> None:
    """§ Listing Referrers: MUST be 200, an image index, its media type in `Content-Type`."""
    image = registry.push_image(repository)
    artifact = push_artifact(registry, repository, image)
    response = registry.list_referrers(repository, image.digest)
    assert response.status_code == 200
    assert response.headers["content-type"] == OCI_INDEX
    assert response.json()["schemaVersion"] == 2
    assert response.json()["mediaType"] == OCI_INDEX
    [entry] = response.json()["manifests"]
    assert entry["digest"] == artifact.digest
    assert entry["size"] == len(artifact.body)
    assert entry["mediaType"] == OCI_MANIFEST


def test_artifact_type_is_the_manifests(registry: Registry, repository: str) -> None:
    """§ Listing Referrers: descriptors MUST include the manifest's `artifactType`."""
    image = registry.push_image(repository)
    push_artifact(registry, repository, image, SIGNATURE)
    [entry] = referrers_of(registry, repository, image)
    assert entry["artifactType"] == SIGNATURE


@pytest.mark.parametrize("fields", [{}, {"artifactType": ""}], ids=["missing", "empty"])
def test_artifact_type_falls_back_to_the_config(
    registry: Registry, repository: str, fields: dict[str, object]
) -> None:
    """§ Listing Referrers: empty or missing in an image: MUST be the config's `mediaType`."""
    image = registry.push_image(repository)
    registry.push_image(repository, None, 1, **fields, **subject_of(image))
    [entry] = referrers_of(registry, repository, image)
    assert entry["artifactType"] == OCI_CONFIG


@pytest.mark.parametrize("artifact_type", [None, "", SBOM])
def test_index_may_refer(registry: Registry, repository: str, artifact_type: str | None) -> None:
    """§ Listing Referrers: an index's `artifactType` MUST be there, or omitted when it has none."""
    image = registry.push_image(repository)
    fields = {} if artifact_type is None else {"artifactType": artifact_type}
    index = image_index([image], **fields, **subject_of(image))
    response = registry.put_manifest(repository, index)
    assert response.headers["oci-subject"] == image.digest
    [entry] = referrers_of(registry, repository, image)
    assert entry["mediaType"] == OCI_INDEX
    assert entry["digest"] == index.digest
    assert entry.get("artifactType") == (artifact_type or None)
    assert ("artifactType" in entry) == bool(artifact_type)


def test_annotations_are_included(registry: Registry, repository: str) -> None:
    """§ Listing Referrers: descriptors MUST include the annotations of the manifest or index."""
    image = registry.push_image(repository)
    registry.push_blob(repository, EMPTY)
    texts = [{**unique_annotations(), "org.example.text": 'quoted "ü" \n line'} for _ in range(2)]
    referrers = [
        image_manifest(EMPTY, annotations=texts[0], **subject_of(image)),
        image_index([image], annotations=texts[1], **subject_of(image)),
    ]
    expected = {}
    for referrer, text in zip(referrers, texts, strict=True):
        expected[registry.push_manifest(repository, referrer).digest] = text
    entries = referrers_of(registry, repository, image)
    assert {entry["digest"]: entry["annotations"] for entry in entries} == expected


def test_no_referrers_is_an_empty_list(registry: Registry, repository: str) -> None:
    """§ Listing Referrers: without a match MUST be an empty list, MUST NOT be 404."""
    image = registry.push_image(repository)
    for digest in (image.digest, "sha256:" + "0" * 64):
        response = registry.list_referrers(repository, digest)
        assert response.status_code == 200
        assert response.json()["manifests"] == []
        assert response.headers["content-type"] == OCI_INDEX


@pytest.mark.parametrize("digest", ["nonsense", "sha256:abc", "sha256:" + "G" * 64])
def test_invalid_digest_is_400(registry: Registry, repository: str, digest: str) -> None:
    """§ Listing Referrers: a digest with an invalid syntax MUST be 400."""
    registry.push_image(repository)
    assert registry.list_referrers(repository, digest).status_code == 400


def test_filter_by_artifact_type(registry: Registry, repository: str) -> None:
    """§ Listing Referrers (end-12b): SHOULD filter; then MUST answer `OCI-Filters-Applied`."""
    image = registry.push_image(repository)
    wanted = {push_artifact(registry, repository, image, SBOM).digest for _ in range(2)}
    push_artifact(registry, repository, image, SIGNATURE)
    registry.push_image(repository, **subject_of(image))
    response = registry.list_referrers(repository, image.digest, artifactType=SBOM)
    assert response.headers["oci-filters-applied"] == "artifactType"
    assert {entry["digest"] for entry in response.json()["manifests"]} == wanted
    [plain] = referrers_of(registry, repository, image, artifactType=OCI_CONFIG)
    assert plain["artifactType"] == OCI_CONFIG


@pytest.mark.entrepot
@pytest.mark.parametrize("plus", ["+", "%2B", "%2b"])
def test_a_plus_in_the_filter_is_a_plus(registry: Registry, repository: str, plus: str) -> None:
    """RFC 3986 §2.2: media types end in `+json`, and not every client encodes it."""
    image = registry.push_image(repository)
    wanted = push_artifact(registry, repository, image, "application/vnd.example.sbom+json")
    push_artifact(registry, repository, image, SBOM)
    url = f"/v2/{repository}/referrers/{image.digest}"
    found = registry.http.get(f"{url}?artifactType=application/vnd.example.sbom{plus}json")
    assert [entry["digest"] for entry in found.json()["manifests"]] == [wanted.digest]


def test_filter_without_a_match(registry: Registry, repository: str) -> None:
    """§ Listing Referrers (end-12b): a query without a match MUST be an empty list."""
    image = registry.push_image(repository)
    push_artifact(registry, repository, image, SBOM)
    response = registry.list_referrers(repository, image.digest, artifactType=SIGNATURE)
    assert response.status_code == 200
    assert response.headers["oci-filters-applied"] == "artifactType"
    assert response.json()["manifests"] == []


def test_only_referrers_of_this_digest(registry: Registry, repository: str) -> None:
    """§ Listing Referrers: a descriptor's `subject` specifies this digest, here."""
    first, second = registry.push_image(repository), registry.push_image(repository)
    artifact = push_artifact(registry, repository, first)
    push_artifact(registry, repository, second)
    elsewhere = registry.new_repository()
    push_artifact(registry, elsewhere, first)
    assert [entry["digest"] for entry in referrers_of(registry, repository, first)] == [
        artifact.digest
    ]


def test_deleted_referrer_is_not_listed(registry: Registry, repository: str) -> None:
    """§ Listing Referrers: descriptors are of manifests in the repository."""
    image = registry.push_image(repository)
    artifact = push_artifact(registry, repository, image)
    response = registry.delete_manifest(repository, artifact.digest)
    registry.decline(response, 400, 405, optional="manifest deletion")
    assert response.status_code == 202
    assert referrers_of(registry, repository, image) == []


@pytest.mark.entrepot
def test_unfiltered_list_names_no_filter(registry: Registry, repository: str) -> None:
    """Ours: `OCI-Filters-Applied` only when a filter was."""
    image = registry.push_image(repository)
    assert "oci-filters-applied" not in registry.list_referrers(repository, image.digest).headers


@pytest.mark.entrepot
@pytest.mark.parametrize("digest", ["nonsense", "md5:" + "0" * 32, "sha256:" + "A" * 64])
def test_unusable_digest(registry: Registry, repository: str, digest: str) -> None:
    """Ours: 400 `DIGEST_INVALID`, with or without the repository."""
    refused(registry.list_referrers(repository, digest), 400, "DIGEST_INVALID")


@pytest.mark.entrepot
def test_unknown_repository_is_an_empty_list(registry: Registry, repository: str) -> None:
    """Ours: even an unknown repository is 200 and empty: clients ask before any push."""
    response = registry.list_referrers(repository, "sha256:" + "0" * 64)
    assert response.status_code == 200
    assert response.headers["content-type"] == OCI_INDEX
    assert response.json() == {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}


@pytest.mark.entrepot
def test_newest_comes_last(registry: Registry, repository: str) -> None:
    """Ours: in the order of their push."""
    image = registry.push_image(repository)
    pushed = [push_artifact(registry, repository, image).digest for _ in range(5)]
    assert [entry["digest"] for entry in referrers_of(registry, repository, image)] == pushed


@pytest.mark.entrepot
def test_subject_matches_through_aliases(registry: Registry, repository: str) -> None:
    """Ours: sha256 and sha512 of one manifest are one subject."""
    image = registry.push_image(repository)
    alias = Content(image.body, image.media_type, "sha512")
    registry.push_manifest(repository, alias)
    artifacts = {push_artifact(registry, repository, form).digest for form in (image, alias)}
    for form in (image, alias):
        entries = referrers_of(registry, repository, form)
        assert {entry["digest"] for entry in entries} == artifacts


@pytest.mark.entrepot
@pytest.mark.parametrize("is_first", [True, False], ids=["subject-first", "referrers-first"])
def test_subject_pushed_by_sha256_is_one_with_its_sha512(
    registry: Registry, repository: str, *, is_first: bool
) -> None:
    """Ours: nobody has to push it by sha512 too; in pages each referrer comes once, in order."""
    config = registry.push_blob(repository, blob())
    image = image_manifest(config, annotations=unique_annotations())
    alias = Content(image.body, image.media_type, "sha512")
    if is_first:
        registry.push_manifest(repository, image)
    pushed = [push_artifact(registry, repository, form).digest for form in (alias, image) * 2]
    other = push_artifact(registry, repository, alias, SIGNATURE).digest
    if not is_first:
        assert [each["digest"] for each in referrers_of(registry, repository, image)] == pushed[
            1::2
        ]
        registry.push_manifest(repository, image)
    for form in (image, alias):
        entries = referrers_of(registry, repository, form)
        assert [each["digest"] for each in entries] == [*pushed, other]
        entries = referrers_of(registry, repository, form, artifactType=SIGNATURE)
        assert [each["digest"] for each in entries] == [other]
    assert registry.get_manifest(repository, alias.digest).content == image.body


@pytest.mark.entrepot
def test_subject_may_learn_its_alias_later(registry: Registry, repository: str) -> None:
    """Ours: referrers by blake3 pushed first, then the subject by sha256, then by blake3."""
    image_config = registry.push_blob(repository, blob())
    image = image_manifest(image_config, annotations=unique_annotations())
    alias = Content(image.body, image.media_type, "blake3")
    artifact = push_artifact(registry, repository, alias)
    assert [entry["digest"] for entry in referrers_of(registry, repository, alias)] == [
        artifact.digest
    ]
    registry.push_manifest(repository, image)
    assert referrers_of(registry, repository, image) == []
    registry.push_manifest(repository, alias)
    for form in (image, alias):
        entries = referrers_of(registry, repository, form)
        assert [entry["digest"] for entry in entries] == [artifact.digest]


@pytest.mark.entrepot
@pytest.mark.parametrize(
    ("count", "annotation"), [(205, 10), (5, 900_000)], ids=["descriptors", "bytes"]
)
def test_pages(registry: Registry, repository: str, count: int, annotation: int) -> None:
    """§ Listing Referrers: a `Link` MUST lead on; ours: a page has 200 descriptors, 3 MiB."""
    image = registry.push_image(repository)
    registry.push_blob(repository, EMPTY)
    pushed = []
    for number in range(count):
        annotations = {"org.example.number": str(number), "org.example.text": "x" * annotation}
        artifact = image_manifest(
            EMPTY, artifactType=SBOM, annotations=annotations, **subject_of(image)
        )
        pushed.append(registry.push_manifest(repository, artifact).digest)
    seen, pages = [], 0
    url: str | None = f"/v2/{repository}/referrers/{image.digest}?artifactType={SBOM}"
    while url:
        response = registry.http.get(url)
        assert response.headers["oci-filters-applied"] == "artifactType"
        entries = response.json()["manifests"]
        assert len(entries) <= 200
        assert len(response.content) <= 3 << 20
        seen += [entry["digest"] for entry in entries]
        pages += 1
        url = next_page(response)
    assert seen == pushed
    assert pages == 2
