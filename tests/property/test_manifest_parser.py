"""The manifest parser on whatever may come: one reading, or `ManifestInvalid`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from registry.errors import ManifestInvalid
from registry.oci.digest import Digest
from registry.oci.manifest import Manifest, parse_manifest
from registry.oci.media_types import INDEX_TYPES, MANIFEST_TYPES
from tests.property.manifest_documents import (
    ALMOST,
    CONTENT_TYPES,
    JSON,
    MEDIA_TYPES,
    TEXTS,
    VALID,
    documents,
)

PORTABLE_JSON = documents(
    st.integers(-(1 << 63), (1 << 64) - 1), st.floats(allow_nan=False, allow_infinity=False)
)


def check(body: bytes, content_type: str | None) -> Manifest | None:
    """Parse `body`; whatever is accepted must be what it says."""
    try:
        found = parse_manifest(body, content_type)
    except ManifestInvalid:
        return None
    document = json.loads(body)
    assert found.media_type in MANIFEST_TYPES
    assert found.is_index == (found.media_type in INDEX_TYPES)
    assert document.get("mediaType") in (None, found.media_type)
    listed = document["manifests"] if found.is_index else document["layers"]
    read = found.children if found.is_index else found.layers
    assert [item.digest for item in read] == [item["digest"] for item in listed]
    assert (found.config is None) == found.is_index
    for descriptor in (*found.blobs, *found.children):
        assert Digest.parse(descriptor.digest)
        assert descriptor.size >= 0
    return found


@given(st.binary(max_size=100), CONTENT_TYPES)
@example(b"\xef\xbb\xbf{}", None)
@example(b'"\\ud800"', None)
def test_any_bytes(body: bytes, content_type: str | None) -> None:
    check(body, content_type)


@given(JSON, CONTENT_TYPES)
def test_any_json(document: object, content_type: str | None) -> None:
    check(json.dumps(document).encode(), content_type)


@given(ALMOST, CONTENT_TYPES, st.booleans())
def test_documents_that_are_almost_manifests(
    document: object, content_type: str | None, ascii_only: bool
) -> None:
    body = json.dumps(document, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    check(body, content_type)


@given(
    MEDIA_TYPES,
    VALID,
    st.lists(VALID, max_size=3),
    st.none() | VALID,
    st.dictionaries(TEXTS, PORTABLE_JSON, max_size=2),
)
def test_manifests_are_accepted_with_whatever_else_they_hold(
    media_type: str,
    config: dict[str, Any],
    parts: list[dict[str, Any]],
    subject: dict[str, Any] | None,
    extra: dict[str, Any],
) -> None:
    document: dict[str, Any] = {f"x-{key}": value for key, value in extra.items()}
    document["schemaVersion"] = 2
    if media_type in INDEX_TYPES:
        document["manifests"] = parts
    else:
        document |= {"config": config, "layers": parts}
    if subject is not None:
        document["subject"] = subject
    found = check(json.dumps(document).encode(), media_type)
    assert found is not None
    assert found.subject == (subject["digest"] if subject else None)


@given(ALMOST.filter(bool), st.data())
def test_a_key_given_twice_is_refused(document: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(document)))
    value = json.dumps(document[key])
    body = json.dumps(document)[:-1] + f", {json.dumps(key)}: {value}}}"
    assert check(body.encode(), None) is None
