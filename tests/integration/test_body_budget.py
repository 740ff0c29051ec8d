"""Where a process keeps as many bytes of bodies as it may, the next is told to come again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from cloudcore.serving.asgi import Message
from cloudcore.serving.bodies.budget import BODIES, LARGE_ROOM, RETRY_SECONDS
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_MANIFEST
from tests import control_plane
from tests.control_plane import assert_envelope
from tests.inprocess import hang_up, open_registry
from tests.memory_store import MemoryStore

APP: Final = "/v2/dev/app"
PART: Final = {"mediaType": "a/b", "digest": digest_of(b""), "size": 0}
KIND: Final = {"content-type": OCI_MANIFEST}


def image(size: int) -> bytes:
    return json.dumps({"schemaVersion": 2, "config": PART, "layers": [], "x": "x" * size}).encode()


@asynccontextmanager
async def full(room: int) -> AsyncIterator[None]:
    """Let somebody have a whole body of the size of a room."""

    async def receive() -> Message:
        return {"type": "http.request", "body": bytes(room), "more_body": False}

    with BODIES.hold() as hold:
        await hold.metered(receive)()
        yield


async def test_a_large_manifest_waits_for_room_and_a_small_one_does_not(
    sqlite_database: str,
) -> None:
    async with open_registry(sqlite_database, MemoryStore()) as registry:
        ask = registry.client.request
        upload = f"{APP}/blobs/uploads/?digest={PART['digest']}"
        assert (await ask("POST", upload)).status == 201
        path, large = f"{APP}/manifests/v1", image(200_000)
        async with full(LARGE_ROOM - 100_000):
            answer = await ask("PUT", path, large, KIND)
            assert (answer.status, answer.codes) == (503, ["UNKNOWN"])
            assert answer.headers["retry-after"] == str(RETRY_SECONDS)
            assert (await ask("PUT", path, image(1000), KIND)).status == 201
        assert (await ask("PUT", path, large, KIND)).status == 201
        for refused in (b"{" * 70_000, hang_up(large), [large] * 30):
            assert (await ask("PUT", path, refused, KIND)).status in (400, 413)
        assert BODIES.used == 0


async def test_a_blob_needs_no_room(sqlite_database: str) -> None:
    async with open_registry(sqlite_database, MemoryStore()) as registry, full(LARGE_ROOM):
        blob = bytes(1 << 20)
        path = f"{APP}/blobs/uploads/?digest={digest_of(blob)}"
        assert (await registry.client.request("POST", path, blob)).status == 201


@pytest.mark.parametrize(("size", "status"), [(100, 201), (100_000, 503)])
async def test_documents_of_the_control_plane_have_the_same_room(
    plane: control_plane.World, size: int, status: int
) -> None:
    body = b'{"name":"a"%s}' % (b" " * size)
    async with full(LARGE_ROOM):
        answer = await plane.ask("POST", "/v1/things", body)
        assert answer.status_code == status
        if status == 503:
            assert_envelope(answer, 503, "SERVICE_UNAVAILABLE")
            assert answer.headers["retry-after"] == str(RETRY_SECONDS)
    if status == 503:
        assert (await plane.ask("POST", "/v1/things", body)).status_code == 201
    assert BODIES.used == 0
