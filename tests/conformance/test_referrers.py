"""end-12a, end-12b, and `subject` on end-7a: what refers to a manifest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.client import Repository, next_page
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

SBOM = "application/vnd.example.sbom.v1"
SIGNATURE = "application/vnd.example.signature.v1"


def push_artifact(repository: Repository, subject: Content, artifact_type: str = SBOM) -> Content:
    """Push an artifact with `artifact_type` that refers to `subject`."""
    repository.push_blob(EMPTY)
    artifact = image_manifest(
        EMPTY,
        [EMPTY],
        artifactType=artifact_type,
        annotations=unique_annotations(),
        **subject_of(subject),
    )
    return repository.push_manifest(artifact)


def referrers_of(repository: Repository, subject: Content, **query: str) -> list[dict[str, Any]]:
    """Return the descriptors that refer to `subject`, of the first page."""
    response = repository.list_referrers(subject.digest, **query)
    assert response.status_code == 200, response.text
    descriptors: list[dict[str, Any]] = response.json()["manifests"]
    return descriptors


def test_subject_is_acknowledged(repository: Repository) -> None:
    """§ Pushing Manifests with Subject: MUST answer `OCI-Subject: <subject digest>`."""
    image = repository.push_image()
    repository.push_blob(EMPTY)
    artifact = image_manifest(EMPTY, artifactType=SBOM, **subject_of(image))
    response = repository.put_manifest(artifact)
    assert response.status_code == 201
    assert response.headers["oci-subject"] == image.digest


def test_subject_may_come_later(repository: Repository) -> None:
    """§ Push: MUST initially accept a `subject` that does not exist; either order will do."""
    parts = [repository.push_blob(part) for part in (EMPTY, blob())]
    image = image_manifest(parts[0], parts[1:])
    artifact = push_artifact(repository, image)
    assert [entry["digest"] for entry in referrers_of(repository, image)] == [artifact.digest]
    repository.push_manifest(image)
    assert [entry["digest"] for entry in referrers_of(repository, image)] == [artifact.digest]


def test_list_is_an_image_index(repository: Repository) -> None:
    """§ Listing Referrers: MUST be 200, an image index, its media type in `Content-Type`."""
    image = repository.push_image()
    artifact = push_artifact(repository, image)
    response = repository.list_referrers(image.digest)
    assert response.status_code == 200
    assert response.headers["content-type"] == OCI_INDEX
    assert response.json()["schemaVersion"] == 2
    assert response.json()["mediaType"] == OCI_INDEX
    [entry] = response.json()["manifests"]
    assert entry["digest"] == artifact.digest
    assert entry["size"] == len(artifact.body)
    assert entry["mediaType"] == OCI_MANIFEST


def test_artifact_type_is_the_manifests(repository: Repository) -> None:
    """§ Listing Referrers: descriptors MUST include the manifest's `artifactType`."""
    image = repository.push_image()
    push_artifact(repository, image, SIGNATURE)
    [entry] = referrers_of(repository, image)
    assert entry["artifactType"] == SIGNATURE


@pytest.mark.parametrize("fields", [{}, {"artifactType": ""}], ids=["missing", "empty"])
def test_artifact_type_falls_back_to_the_config(
    repository: Repository, fields: dict[str, object]
) -> None:
    """§ Listing Referrers: empty or missing in an image: MUST be the config's `mediaType`."""
    image = repository.push_image()
    repository.push_image(None, 1, **fields, **subject_of(image))
    [entry] = referrers_of(repository, image)
    assert entry["artifactType"] == OCI_CONFIG


@pytest.mark.parametrize("artifact_type", [None, "", SBOM])
def test_index_may_refer(repository: Repository, artifact_type: str | None) -> None:
    """§ Listing Referrers: an index's `artifactType` MUST be there, or omitted when it has none."""
    image = repository.push_image()
    fields = {} if artifact_type is None else {"artifactType": artifact_type}
    index = image_index([image], **fields, **subject_of(image))
    response = repository.put_manifest(index)
    assert response.headers["oci-subject"] == image.digest
    [entry] = referrers_of(repository, image)
    assert entry["mediaType"] == OCI_INDEX
    assert entry["digest"] == index.digest
    assert entry.get("artifactType") == (artifact_type or None)
    assert ("artifactType" in entry) == bool(artifact_type)


def test_annotations_are_included(repository: Repository) -> None:
    """§ Listing Referrers: descriptors MUST include the annotations of the manifest or index."""
    image = repository.push_image()
    repository.push_blob(EMPTY)
    texts = [{**unique_annotations(), "org.example.text": 'quoted "ü" \n line'} for _ in range(2)]
    referrers = [
        image_manifest(EMPTY, annotations=texts[0], **subject_of(image)),
        image_index([image], annotations=texts[1], **subject_of(image)),
    ]
    expected = {}
    for referrer, text in zip(referrers, texts, strict=True):
        expected[repository.push_manifest(referrer).digest] = text
    entries = referrers_of(repository, image)
    assert {entry["digest"]: entry["annotations"] for entry in entries} == expected


def test_no_referrers_is_an_empty_list(repository: Repository) -> None:
    """§ Listing Referrers: without a match MUST be an empty list, MUST NOT be 404."""
    image = repository.push_image()
    for digest in (image.digest, "sha256:" + "0" * 64):
        response = repository.list_referrers(digest)
        assert response.status_code == 200
        assert response.json()["manifests"] == []
        assert response.headers["content-type"] == OCI_INDEX


@pytest.mark.parametrize("digest", ["nonsense", "sha256:abc", "sha256:" + "G" * 64])
def test_invalid_digest_is_400(repository: Repository, digest: str) -> None:
    """§ Listing Referrers: a digest with an invalid syntax MUST be 400."""
    repository.push_image()
    assert repository.list_referrers(digest).status_code == 400


def test_filter_by_artifact_type(repository: Repository) -> None:
    """§ Listing Referrers (end-12b): SHOULD filter; then MUST answer `OCI-Filters-Applied`."""
    image = repository.push_image()
    wanted = {push_artifact(repository, image, SBOM).digest for _ in range(2)}
    push_artifact(repository, image, SIGNATURE)
    repository.push_image(**subject_of(image))
    response = repository.list_referrers(image.digest, artifactType=SBOM)
    assert response.headers["oci-filters-applied"] == "artifactType"
    assert {entry["digest"] for entry in response.json()["manifests"]} == wanted
    [plain] = referrers_of(repository, image, artifactType=OCI_CONFIG)
    assert plain["artifactType"] == OCI_CONFIG


@pytest.mark.entrepot
@pytest.mark.parametrize("plus", ["+", "%2B", "%2b"])
def test_a_plus_in_the_filter_is_a_plus(repository: Repository, plus: str) -> None:
    """RFC 3986 §2.2: media types end in `+json`, and not every client encodes it."""
    image = repository.push_image()
    wanted = push_artifact(repository, image, "application/vnd.example.sbom+json")
    push_artifact(repository, image, SBOM)
    url = f"/v2/{repository}/referrers/{image.digest}"
    found = repository.http.get(f"{url}?artifactType=application/vnd.example.sbom{plus}json")
    assert [entry["digest"] for entry in found.json()["manifests"]] == [wanted.digest]


def test_filter_without_a_match(repository: Repository) -> None:
    """§ Listing Referrers (end-12b): a query without a match MUST be an empty list."""
    image = repository.push_image()
    push_artifact(repository, image, SBOM)
    response = repository.list_referrers(image.digest, artifactType=SIGNATURE)
    assert response.status_code == 200
    assert response.headers["oci-filters-applied"] == "artifactType"
    assert response.json()["manifests"] == []


def test_only_referrers_of_this_digest(repository: Repository) -> None:
    """§ Listing Referrers: a descriptor's `subject` specifies this digest, here."""
    first, second = repository.push_image(), repository.push_image()
    artifact = push_artifact(repository, first)
    push_artifact(repository, second)
    elsewhere = repository.another()
    push_artifact(elsewhere, first)
    assert [entry["digest"] for entry in referrers_of(repository, first)] == [artifact.digest]


def test_deleted_referrer_is_not_listed(repository: Repository) -> None:
    """§ Listing Referrers: descriptors are of manifests in the repository."""
    image = repository.push_image()
    artifact = push_artifact(repository, image)
    response = repository.delete_manifest(artifact.digest)
    repository.decline(response, 400, 405, optional="manifest deletion")
    assert response.status_code == 202
    assert referrers_of(repository, image) == []


@pytest.mark.entrepot
def test_unfiltered_list_names_no_filter(repository: Repository) -> None:
    """Ours: `OCI-Filters-Applied` only when a filter was."""
    image = repository.push_image()
    assert "oci-filters-applied" not in repository.list_referrers(image.digest).headers


@pytest.mark.entrepot
def test_unknown_repository_is_an_empty_list(repository: Repository) -> None:
    """Ours: even an unknown repository is 200 and empty: clients ask before any push."""
    response = repository.list_referrers("sha256:" + "0" * 64)
    assert response.status_code == 200
    assert response.headers["content-type"] == OCI_INDEX
    assert response.json() == {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []}


@pytest.mark.entrepot
def test_newest_comes_last(repository: Repository) -> None:
    """Ours: in the order of their push."""
    image = repository.push_image()
    pushed = [push_artifact(repository, image).digest for _ in range(5)]
    assert [entry["digest"] for entry in referrers_of(repository, image)] == pushed


@pytest.mark.entrepot
def test_subject_matches_through_aliases(repository: Repository) -> None:
    """Ours: sha256 and sha512 of one manifest are one subject."""
    image = repository.push_image()
    alias = Content(image.body, image.media_type, "sha512")
    repository.push_manifest(alias)
    artifacts = {push_artifact(repository, form).digest for form in (image, alias)}
    for form in (image, alias):
        entries = referrers_of(repository, form)
        assert {entry["digest"] for entry in entries} == artifacts


@pytest.mark.entrepot
@pytest.mark.parametrize("is_first", [True, False], ids=["subject-first", "referrers-first"])
def test_subject_pushed_by_sha256_is_one_with_its_sha512(
    repository: Repository, *, is_first: bool
) -> None:
    """Ours: nobody has to push it by sha512 too; in pages each referrer comes once, in order."""
    config = repository.push_blob(blob())
    image = image_manifest(config, annotations=unique_annotations())
    alias = Content(image.body, image.media_type, "sha512")
    if is_first:
        repository.push_manifest(image)
    pushed = [push_artifact(repository, form).digest for form in (alias, image) * 2]
    other = push_artifact(repository, alias, SIGNATURE).digest
    if not is_first:
        assert [each["digest"] for each in referrers_of(repository, image)] == pushed[1::2]
        repository.push_manifest(image)
    for form in (image, alias):
        entries = referrers_of(repository, form)
        assert [each["digest"] for each in entries] == [*pushed, other]
        entries = referrers_of(repository, form, artifactType=SIGNATURE)
        assert [each["digest"] for each in entries] == [other]
    assert repository.get_manifest(alias.digest).content == image.body


@pytest.mark.entrepot
def test_subject_may_learn_its_alias_later(repository: Repository) -> None:
    """Ours: referrers by blake3 pushed first, then the subject by sha256, then by blake3."""
    image_config = repository.push_blob(blob())
    image = image_manifest(image_config, annotations=unique_annotations())
    alias = Content(image.body, image.media_type, "blake3")
    artifact = push_artifact(repository, alias)
    assert [entry["digest"] for entry in referrers_of(repository, alias)] == [artifact.digest]
    repository.push_manifest(image)
    assert referrers_of(repository, image) == []
    repository.push_manifest(alias)
    for form in (image, alias):
        entries = referrers_of(repository, form)
        assert [entry["digest"] for entry in entries] == [artifact.digest]


@pytest.mark.entrepot
@pytest.mark.parametrize(
    ("count", "annotation"), [(205, 10), (5, 900_000)], ids=["descriptors", "bytes"]
)
def test_pages(repository: Repository, count: int, annotation: int) -> None:
    """§ Listing Referrers: a `Link` MUST lead on; ours: a page has 200 descriptors, 3 MiB."""
    image = repository.push_image()
    repository.push_blob(EMPTY)
    pushed = []
    for number in range(count):
        annotations = {"org.example.number": str(number), "org.example.text": "x" * annotation}
        artifact = image_manifest(
            EMPTY, artifactType=SBOM, annotations=annotations, **subject_of(image)
        )
        pushed.append(repository.push_manifest(artifact).digest)
    seen, pages = [], 0
    url: str | None = f"/v2/{repository}/referrers/{image.digest}?artifactType={SBOM}"
    while url:
        response = repository.http.get(url)
        assert response.headers["oci-filters-applied"] == "artifactType"
        entries = response.json()["manifests"]
        assert len(entries) <= 200
        assert len(response.content) <= 3 << 20
        seen += [entry["digest"] for entry in entries]
        pages += 1
        url = next_page(response)
    assert seen == pushed
    assert pages == 2
