"""The manifest parser: four types, one reading each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from registry.errors import ManifestInvalid, ManifestTypeUnsupported
from registry.oci import media_types
from registry.oci.digest import digest_of
from registry.oci.manifest import Descriptor, Manifest, parse_manifest
from registry.oci.media_types import (
    DOCKER_MANIFEST,
    DOCKER_MANIFEST_LIST,
    OCI_INDEX,
    OCI_MANIFEST,
    is_foreign_layer,
)

CONFIG = {
    "mediaType": "application/vnd.oci.image.config.v1+json",
    "digest": digest_of(b"config"),
    "size": 6,
}
LAYER = {"mediaType": "application/x-layer", "digest": digest_of(b"layer", "sha512"), "size": 5}
CHILD = {"mediaType": OCI_MANIFEST, "digest": digest_of(b"child"), "size": 5}


def image(**more: object) -> dict[str, Any]:
    return {"schemaVersion": 2, "config": CONFIG, "layers": [LAYER], **more}


def index(**more: object) -> dict[str, Any]:
    return {"schemaVersion": 2, "manifests": [CHILD], **more}


def parse(document: object, content_type: str | None = None) -> Manifest:
    return parse_manifest(json.dumps(document).encode(), content_type)


@pytest.mark.parametrize("media_type", [OCI_MANIFEST, DOCKER_MANIFEST])
def test_an_image_manifest(media_type: str) -> None:
    found = parse(image(mediaType=media_type, annotations={"a": "b"}), media_type)
    assert found == Manifest(
        media_type=media_type,
        is_index=False,
        config=Descriptor(**{"media_type": CONFIG["mediaType"], **_values(CONFIG)}),
        layers=(Descriptor(**{"media_type": LAYER["mediaType"], **_values(LAYER)}),),
        children=(),
        subject=None,
        artifact_type="application/vnd.oci.image.config.v1+json",
        annotations='{"a":"b"}',
    )


@pytest.mark.parametrize("place", ["config", "layers", "manifests", "subject"])
@pytest.mark.parametrize("spelling", ["-0", "\n -0 "])
def test_a_size_is_not_minus_zero(place: str, spelling: str) -> None:
    minus = {**CONFIG, "size": "SIZE"}
    part = [minus] if place in ("layers", "manifests") else minus
    document = index(**{place: part}) if place == "manifests" else image(**{place: part})
    body = json.dumps(document).replace('"SIZE"', spelling).encode()
    with pytest.raises(ManifestInvalid, match="size"):
        parse_manifest(body, None)


def test_minus_zero_elsewhere_is_not_ours_to_judge() -> None:
    extra = '"x": -0, "annotations": {"n": ": -0 "}, "y": {"size": -0}'
    body = json.dumps(image(x=1)).replace('"x": 1', extra).encode()
    assert parse_manifest(body, None).annotations == '{"n":": -0 "}'


@pytest.mark.parametrize("media_type", [OCI_INDEX, DOCKER_MANIFEST_LIST])
def test_an_index(media_type: str) -> None:
    found = parse(index(), media_type)
    assert (found.media_type, found.is_index) == (media_type, True)
    assert [child.digest for child in found.children] == [CHILD["digest"]]
    assert (found.config, found.layers, found.blobs) == (None, (), ())
    assert found.artifact_type is None


def _values(descriptor: dict[str, Any]) -> dict[str, Any]:
    return {"digest": descriptor["digest"], "size": descriptor["size"]}


def test_blobs_are_config_and_layers_once_each() -> None:
    found = parse(image(layers=[LAYER, CONFIG, LAYER]))
    assert [blob.digest for blob in found.blobs] == [CONFIG["digest"], LAYER["digest"]]


def test_subject_and_artifact_type_are_read() -> None:
    found = parse(image(subject=CHILD, artifactType="application/x-sbom"))
    assert found.subject == CHILD["digest"]
    assert found.artifact_type == "application/x-sbom"
    assert parse(index(artifactType="application/x")).artifact_type == "application/x"


def test_an_empty_artifact_type_is_none() -> None:
    assert parse(image(artifactType="")).artifact_type == CONFIG["mediaType"]


@pytest.mark.parametrize("sent", [None, "", "application/json", "Application/JSON; charset=utf-8"])
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (image(), OCI_MANIFEST),
        (index(), OCI_INDEX),
        (image(mediaType=DOCKER_MANIFEST), DOCKER_MANIFEST),
        (index(mediaType=DOCKER_MANIFEST_LIST), DOCKER_MANIFEST_LIST),
    ],
)
def test_without_a_telling_header_the_document_decides(
    document: object, expected: str, sent: str | None
) -> None:
    assert parse(document, sent).media_type == expected


def test_parameters_and_case_of_the_header_do_not_matter() -> None:
    assert parse(image(), f" {OCI_MANIFEST.upper()} ;charset=utf-8").media_type == OCI_MANIFEST


@pytest.mark.parametrize(
    "sent",
    [
        "application/vnd.docker.distribution.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
        "text/plain",
        "x" * 1000,
    ],
)
def test_other_types_are_unsupported(sent: str) -> None:
    with pytest.raises(ManifestTypeUnsupported) as refusal:
        parse(image(), sent)
    assert refusal.value.params == {"media_type": sent[:255]}


@pytest.mark.parametrize(
    ("document", "sent"),
    [
        pytest.param(image(mediaType=OCI_MANIFEST), DOCKER_MANIFEST, id="header contradicts"),
        pytest.param(image(mediaType=""), OCI_MANIFEST, id="empty mediaType contradicts"),
        pytest.param({"schemaVersion": 2}, None, id="nothing tells"),
        pytest.param({"schemaVersion": 2, "config": CONFIG}, None, id="no layers"),
        pytest.param(image(), OCI_INDEX, id="an image as an index"),
        pytest.param(index(), OCI_MANIFEST, id="an index as an image"),
        pytest.param(image(manifests=[]), OCI_MANIFEST, id="both kinds"),
        pytest.param(index(layers=[]), OCI_INDEX, id="both kinds again"),
        pytest.param(index(config=CONFIG), OCI_INDEX, id="an index with a config"),
        pytest.param(index(schemaVersion=1), OCI_INDEX, id="schema 1"),
        pytest.param(image(schemaVersion="2"), OCI_MANIFEST, id="schemaVersion a string"),
        pytest.param({"config": CONFIG, "layers": []}, OCI_MANIFEST, id="no schemaVersion"),
        pytest.param(image(config=None), OCI_MANIFEST, id="null config"),
        pytest.param(image(layers=None), OCI_MANIFEST, id="null layers"),
        pytest.param(image(layers={}), OCI_MANIFEST, id="layers an object"),
        pytest.param(image(layers=[None]), OCI_MANIFEST, id="null layer"),
        pytest.param(image(artifactType="a b"), OCI_MANIFEST, id="artifactType with a space"),
        pytest.param(image(artifactType="x" * 256), OCI_MANIFEST, id="long artifactType"),
        pytest.param(image(annotations={"a": 1}), OCI_MANIFEST, id="annotation a number"),
        pytest.param(image(subject="x"), OCI_MANIFEST, id="subject a string"),
        pytest.param([], OCI_MANIFEST, id="a list"),
        pytest.param(None, OCI_MANIFEST, id="null"),
    ],
)
def test_what_has_no_single_reading_is_refused(document: object, sent: str | None) -> None:
    with pytest.raises(ManifestInvalid) as refusal:
        parse(document, sent)
    assert refusal.value.message


@pytest.mark.parametrize("place", ["config", "layers", "manifests", "subject"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"digest": "sha256:short"},
        {"digest": "md5:" + "0" * 32},
        {"size": -1},
        {"size": 1 << 63},
        {"size": "5"},
        {"size": 1.5},
        {"mediaType": ""},
        {"mediaType": "x" * 256},
        {"mediaType": "text/pl\nain"},
        {"mediaType": None},
    ],
)
def test_every_descriptor_is_checked(place: str, wrong: dict[str, Any]) -> None:
    descriptor = {**CONFIG, **wrong}
    document = index() if place == "manifests" else image()
    document[place] = [descriptor] if place in ("layers", "manifests") else descriptor
    if place == "subject" and str(wrong.get("digest")).startswith("md5:"):
        parse(document)  # a subject need not be here, so its algorithm may be unknown
        return
    with pytest.raises(ManifestInvalid):
        parse(document, OCI_INDEX if place == "manifests" else OCI_MANIFEST)


@pytest.mark.parametrize("missing", ["mediaType", "digest", "size"])
def test_a_descriptor_is_whole(missing: str) -> None:
    with pytest.raises(ManifestInvalid):
        parse(image(config={key: CONFIG[key] for key in CONFIG if key != missing}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"hello",
        b'{"schemaVersion":2,"schemaVersion":2,"manifests":[]}',
        b'{"schemaVersion":2,"manifests":[],"x":{"a":1,"\\u0061":2}}',
        b'{"schemaVersion":2,"manifests":[],"x":NaN}',
        b'{"schemaVersion":2,"manifests":[],"x":-Infinity}',
        b'{"schemaVersion":2,"manifests":[]} {}',
        b'{"schemaVersion":2,"manifests":[],"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"schemaVersion":2,"manifests":[],"x":' + b"9" * 10_000 + b"}",
    ],
    ids=range(12),
)
def test_bytes_that_are_no_single_json_document_are_refused(body: bytes) -> None:
    with pytest.raises(ManifestInvalid) as refusal:
        parse_manifest(body, OCI_INDEX)
    assert len(refusal.value.message) <= 300


@pytest.mark.parametrize(
    "body",
    [
        b'{"schemaVersion":2,"manifests":[],"x":NaN}',
        b'{"schemaVersion":2,"manifests":[],"x":Infinity}',
    ],
)
def test_numbers_json_has_not_are_refused_where_unknown_fields_are_skipped(body: bytes) -> None:
    with pytest.raises(ManifestInvalid):
        parse_manifest(body, None)


def test_unknown_fields_are_accepted() -> None:
    odd = {**LAYER, "urls": ["https://elsewhere.invalid"], "data": "eA==", "platform": {}}
    found = parse(image(layers=[odd], history=[{}], x=1.5), OCI_MANIFEST)
    assert len(found.layers) == 1


@pytest.mark.parametrize(
    ("media_type", "is_foreign"),
    [
        ("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", True),
        ("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", True),
        ("application/vnd.oci.image.layer.v1.tar+gzip", False),
        ("application/x-foreign", False),
    ],
)
def test_foreign_layers_may_live_elsewhere(media_type: str, is_foreign: bool) -> None:
    assert is_foreign_layer(media_type) is is_foreign


def test_the_types_are_four() -> None:
    assert media_types.IMAGE_TYPES.isdisjoint(media_types.INDEX_TYPES)
    assert len(media_types.MANIFEST_TYPES) == 4


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xff", "it is not UTF-8"),
        (b"\xef\xbb\xbf{}", "it begins with a byte order mark"),
        (b"[" * 50_000, "it is nested too deep"),
        (
            b'{"schemaVersion": 2, "x": %s}' % (b"9" * 5_000),
            "it has a number of thousands of digits",
        ),
        (b'{"schemaVersion": 2, "annotations": {"a": "\\ud800"}}', "it has half a surrogate pair"),
        (b'{"schemaVersion": NaN}', "NaN"),
        (b"{}x", "line 1 column 3"),
    ],
)
def test_what_cannot_be_read_is_said_to_who_wrote_it(body: bytes, words: str) -> None:
    with pytest.raises(ManifestInvalid) as raised:
        parse_manifest(body, OCI_MANIFEST)
    assert words in raised.value.message
    assert "sys." not in raised.value.message
