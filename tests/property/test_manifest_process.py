"""Whatever is sent, the manifest process and the inline reader give the same answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcore.errors import PlatformError
from registry.oci.digest import ALGORITHMS, Digest, digest_of
from registry.oci.manifest import ReadManifest, read_manifest
from registry.services.images.manifest_reading import ManifestProcess, Read
from tests.property.manifest_documents import (
    ALMOST,
    CONTENT_TYPES,
    DESCRIPTORS,
    MEDIA_TYPES,
    TEXTS,
    VALID,
)

IMAGES = st.fixed_dictionaries(
    {"schemaVersion": st.just(2), "config": VALID, "layers": st.lists(VALID, max_size=3)},
    optional={"subject": VALID, "annotations": st.dictionaries(TEXTS, TEXTS, max_size=3)},
)
INDEXES = st.fixed_dictionaries(
    {"schemaVersion": st.just(2), "manifests": st.lists(VALID | DESCRIPTORS, max_size=3)},
    optional={"artifactType": TEXTS, "mediaType": MEDIA_TYPES},
)
BODIES = st.binary(max_size=50) | st.builds(
    lambda document, ascii_only: json.dumps(document, ensure_ascii=ascii_only).encode(
        errors="surrogatepass"
    ),
    ALMOST | IMAGES | INDEXES,
    st.booleans(),
)


@pytest.fixture(scope="module")
def process() -> Iterator[ManifestProcess]:
    made = ManifestProcess()
    yield made
    made.close()


def outcome(
    read: Read, body: bytes, content_type: str | None, expected: Digest | None
) -> ReadManifest | tuple[type[PlatformError], str, object]:
    try:
        return read(body, content_type, expected)
    except PlatformError as error:
        return type(error), error.message, error.params


@settings(deadline=None)  # the first example starts the process
@given(
    body=BODIES,
    content_type=CONTENT_TYPES,
    algorithm=st.none() | st.sampled_from(ALGORITHMS),
    is_right=st.booleans(),
)
def test_both_read_the_same_and_refuse_in_the_same_words(
    process: ManifestProcess,
    body: bytes,
    content_type: str | None,
    algorithm: str | None,
    is_right: bool,
) -> None:
    expected = digest_of(body if is_right else b"other", algorithm) if algorithm else None
    here = outcome(read_manifest, body, content_type, expected)
    assert outcome(process.read, body, content_type, expected) == here
    if isinstance(here, ReadManifest):
        assert isinstance(here.digest, Digest)
