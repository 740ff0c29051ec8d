"""Pushed manifests: large ones are parsed in a thread, and all are hashed once."""

from __future__ import annotations

import json
import threading
from typing import Final

import pytest

from registry.errors import DigestMismatch, ManifestInvalid
from registry.oci import manifest
from registry.oci.digest import ALGORITHMS, Digest, digest_of
from registry.oci.manifest import MAX_PARTS, ReadManifest, read_manifest
from registry.oci.reference import Name
from registry.services.images import manifests
from registry.services.images.manifests import INLINE_BYTES, ManifestPut, read_pushed

NAME: Final = Name("dev", "app")
PART: Final = {"mediaType": "a/b", "digest": digest_of(b""), "size": 0}


def image(size: int) -> bytes:
    document = {"schemaVersion": 2, "config": PART, "layers": [], "x": ""}
    document["x"] = "x" * (size - len(json.dumps(document)))
    return json.dumps(document).encode()


def put(body: bytes, expected: Digest | None = None) -> ManifestPut:
    return ManifestPut(body, None, expected, ())


@pytest.mark.parametrize("size", [INLINE_BYTES, INLINE_BYTES + 1])
async def test_a_large_manifest_is_parsed_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    threads: list[threading.Thread] = []

    def noted(body: bytes, content_type: str | None, expected: Digest | None) -> ReadManifest:
        threads.append(threading.current_thread())
        return read_manifest(body, content_type, expected)

    monkeypatch.setattr(manifests, "read_manifest", noted)
    body = image(size)
    found = await read_pushed(NAME, put(body))
    assert found.digest == digest_of(body)
    assert [each is threading.current_thread() for each in threads] == [size <= INLINE_BYTES]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", [1000, INLINE_BYTES + 1])
async def test_the_bytes_are_those_of_the_digest(algorithm: str, size: int) -> None:
    body = image(size)
    await read_pushed(NAME, put(body, digest_of(body, algorithm)))
    with pytest.raises(DigestMismatch):
        await read_pushed(NAME, put(body, digest_of(body + b" ", algorithm)))


def test_what_holds_too_much_is_refused_before_it_is_hashed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[str] = []

    def noted(body: bytes, algorithm: str = "sha256") -> Digest:
        hashed.append(algorithm)
        return digest_of(body, algorithm)

    monkeypatch.setattr(manifest, "digest_of", noted)
    body = b'{"x":[' + b"1," * MAX_PARTS + b"1]}"
    with pytest.raises(ManifestInvalid):
        read_manifest(body, None, None)
    assert hashed == []
    for expected in (None, digest_of(image(1000)), digest_of(image(1000), "sha512")):
        read_manifest(image(1000), None, expected)
        assert sorted(hashed) == ["sha256", "sha512"]  # each once
        hashed.clear()
