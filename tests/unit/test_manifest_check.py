"""What the check of stored manifests finds: bytes that are gone, changed, or no manifest."""

from __future__ import annotations

import json

import pytest

from registry.gc.manifest_check import manifest_problem
from registry.metadata.collector.audit import ManifestBody
from registry.oci.digest import digest_of

IMAGE = "application/vnd.oci.image.manifest.v1+json"
EMPTY = {"digest": digest_of(b"{}"), "size": 2, "mediaType": "application/vnd.oci.empty.v1+json"}
BODY = json.dumps({"schemaVersion": 2, "mediaType": IMAGE, "config": EMPTY, "layers": []}).encode()


def stored(body: bytes | None, digest: str = "", *, blobs: int = 1) -> ManifestBody:
    found = digest or digest_of(body or b"")
    return ManifestBody("id", "acme/app", found, IMAGE, body, blobs, 0)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (stored(BODY), "None"),
        (stored(None, digest_of(BODY)), "its bytes are gone"),
        (stored(BODY + b" ", digest_of(BODY)), "its bytes hash to something else"),
        (stored(b"[]"), "its bytes are no manifest: "),
        (stored(BODY, blobs=0), "1 blobs are listed, 0 are held"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_said(document: ManifestBody, problem: str) -> None:
    assert str(manifest_problem(document)).startswith(problem)
