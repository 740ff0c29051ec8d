"""How much a manifest may hold, and how little it costs to refuse more."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from cloudcore.json_size import JsonSize, json_size
from registry.errors import ManifestInvalid
from registry.oci import manifest
from registry.oci.digest import digest_of
from registry.oci.manifest import (
    MAX_ANNOTATIONS,
    MAX_BYTES,
    MAX_DESCRIPTORS,
    MAX_PARTS,
    parse_manifest,
)
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST

MIB = 1 << 20
PART = {"mediaType": "a/b", "digest": digest_of(b""), "size": 0}


def image(**more: object) -> bytes:
    return json.dumps({"schemaVersion": 2, "config": PART, "layers": [], **more}).encode()


def many(count: int, value: str = "") -> dict[str, str]:
    return {f"{number:06}": value for number in range(count)}


def refusal(body: bytes, media_type: str = OCI_MANIFEST) -> str:
    with pytest.raises(ManifestInvalid) as raised:
        parse_manifest(body, media_type)
    return raised.value.message


def test_descriptors_are_bounded() -> None:
    assert len(parse_manifest(image(layers=[PART] * (MAX_DESCRIPTORS - 1)), None).layers)
    body = image(layers=[PART] * MAX_DESCRIPTORS)
    assert "5000 descriptors, this one 5001" in refusal(body)
    index = {"schemaVersion": 2, "manifests": [PART] * MAX_DESCRIPTORS, "subject": PART}
    assert "5000 descriptors, this one 5001" in refusal(json.dumps(index).encode(), OCI_INDEX)


@pytest.mark.parametrize("place", ["annotations", "config", "layers", "subject"])
def test_annotations_are_bounded_wherever_they_stand(place: str) -> None:
    def document(count: int) -> bytes:
        found: Mapping[str, Any] = {"annotations": many(count)}
        if place in ("config", "subject"):
            found = {place: {**PART, **found}}
        elif place == "layers":
            found = {"layers": [{**PART, "annotations": many(count // 2)}] * 2}
        return image(**found)

    assert parse_manifest(document(MAX_ANNOTATIONS), None).config
    assert "10000 annotations, this one 10002" in refusal(document(MAX_ANNOTATIONS + 2))


def test_fields_nobody_knows_are_bounded() -> None:
    assert parse_manifest(image(x=[0] * (MAX_PARTS - 100)), None).config
    assert "100000 JSON names and values" in refusal(image(x=[0] * MAX_PARTS))
    assert "100000 JSON names and values" in refusal(image(x=[{}] * (MAX_PARTS // 2)))


def test_what_is_stored_is_read_however_much_it_holds() -> None:
    body = image(annotations=many(MAX_ANNOTATIONS + 1), layers=[PART] * 6000)
    found = parse_manifest(body, OCI_MANIFEST, is_stored=True)
    assert (len(json.loads(found.annotations)), len(found.layers)) == (MAX_ANNOTATIONS + 1, 6000)


def peak(body: bytes) -> int:
    """Return how many bytes are allocated at once while a document is read."""
    assert len(body) <= MAX_BYTES
    tracemalloc.start()
    with suppress(ManifestInvalid):
        parse_manifest(body, OCI_MANIFEST)
    reached = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return reached


@pytest.mark.parametrize(
    "body",
    [
        b'{"schemaVersion":2,"annotations":{%s}}'
        % b",".join(b'"%d":""' % number for number in range(350_000)),
        image(layers=[{**PART, "size": number} for number in range(30_000)]),
        image(x=[[]] * 1_000_000),
        image(x=[0] * 1_300_000),
    ],
    ids=["annotations", "descriptors", "arrays", "numbers"],
)
def test_refusing_too_much_takes_less_than_the_document(body: bytes) -> None:
    assert peak(body) < 2 * MIB


@pytest.mark.parametrize(
    "body",
    [
        image(annotations=many(MAX_ANNOTATIONS, "x" * 380)),
        image(annotations={"x": "x" * (4 * MIB - 1000)}),
        # One letter beyond the basic plane makes Python keep four bytes for each.
        json.dumps(
            {"schemaVersion": 2, "config": PART, "layers": [], "x": "x" * 4_190_000 + "😀"},
            ensure_ascii=False,
        ).encode(),
        image(x=many((MAX_PARTS - 100) // 2, "x" * 60)),
        image(x=[{}] * (MAX_PARTS // 2 - 100)),
    ],
    ids=["annotations", "one-annotation", "wide-text", "names", "objects"],
)
def test_what_is_taken_needs_a_few_times_its_own_size(body: bytes) -> None:
    assert peak(body) < 40 * MIB


def test_what_is_too_short_for_too_much_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def noted(body: bytes | memoryview, most: int) -> JsonSize:
        counted.append(len(body))
        return json_size(body, most)

    monkeypatch.setattr(manifest, "json_size", noted)
    shortest = MAX_ANNOTATIONS * len(b'"":0')
    for size in (shortest, shortest + 1):
        empty = image(x="")
        parse_manifest(image(x="x" * (size - len(empty))), None)
    assert counted == [shortest + 1]
