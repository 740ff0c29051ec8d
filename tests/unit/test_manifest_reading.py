"""Large manifests are read one at a time, away from the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from registry.errors import DigestMismatch, ManifestInvalid
from registry.oci import manifest
from registry.oci.digest import ALGORITHMS, Digest, digest_of
from registry.oci.manifest import MAX_PARTS, read_manifest
from registry.services.images.manifest_reading import INLINE_BYTES, ThreadReader

PART = {"mediaType": "a/b", "digest": digest_of(b""), "size": 0}


class Waiting(Executor):
    """An executor that begins nothing before it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, call: Callable[..., Any], /, *arguments: object, **_: object) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.append((future, lambda: call(*arguments)))
        return future

    def run(self) -> None:
        future, call = self.calls.pop(0)
        future.set_result(call())


def image(size: int) -> bytes:
    document = {"schemaVersion": 2, "config": PART, "layers": [], "x": ""}
    document["x"] = "x" * (size - len(json.dumps(document)))
    return json.dumps(document).encode()


async def test_a_small_manifest_is_read_at_once() -> None:
    waiting = Waiting()
    body = image(INLINE_BYTES)
    found = await ThreadReader(thread=waiting).read(body, None, None)
    assert found.digest == digest_of(body)
    assert waiting.calls == []


async def test_others_go_on_while_a_large_manifest_waits_to_be_read() -> None:
    waiting = Waiting()
    reading = asyncio.ensure_future(
        ThreadReader(thread=waiting).read(image(INLINE_BYTES + 1), None, None)
    )
    await asyncio.sleep(0)
    assert not reading.done()  # and this is somebody else's turn
    waiting.run()
    assert (await reading).manifest.config


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", [1000, INLINE_BYTES + 1])
async def test_the_bytes_are_those_of_the_digest(algorithm: str, size: int) -> None:
    body = image(size)
    reader = ThreadReader()
    await reader.read(body, None, digest_of(body, algorithm))
    with pytest.raises(DigestMismatch):
        await reader.read(body, None, digest_of(body + b" ", algorithm))


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
