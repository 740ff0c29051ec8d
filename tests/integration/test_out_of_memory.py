"""A request for which there is no memory now is 503, and may be tried again, on all planes."""

from __future__ import annotations

from typing import Any

import pytest

from cloudcore.storage.s3.app import S3Endpoint
from registry.distribution.app import DataPlane
from registry.distribution.auth import Grant, OpenAccess
from registry.settings.groups import Limits
from tests.control_plane import Options, assert_envelope, open_world
from tests.inprocess import Client, open_registry
from tests.integration.s3_client import S3Client, code_of
from tests.memory_store import MemoryStore


class Starved(OpenAccess):
    """Needs more memory than there is."""

    def authorize(self, *_: Any) -> Grant:  # noqa: ANN401 - as the method has them
        raise MemoryError


async def test_the_data_plane_asks_for_another_try(sqlite_database: str) -> None:
    async with open_registry(sqlite_database, MemoryStore(), limits=Limits()) as registry:
        client = Client(DataPlane(registry.ctx, Starved("dev")))
        answer = await client.request("PUT", "/v2/dev/app/manifests/v1", b"{}")
    assert (answer.status, answer.headers["retry-after"]) == (503, "30")
    assert answer.codes == ["UNKNOWN"]


async def test_the_control_plane_asks_for_another_try(sqlite_database: str) -> None:
    async with open_world(sqlite_database, Options(faulty=True)) as world:
        answer = await world.ask("GET", "/v1/starved")
    assert_envelope(answer, 503, "SERVICE_UNAVAILABLE")
    assert answer.headers["retry-after"] == "30"


async def test_buckets_ask_for_another_try(s3: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def starved(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(S3Endpoint, "_answer", starved)
    answer = await s3.receive(s3.sign("GET", "/bucket/key"))
    assert (answer.status_code, code_of(answer)) == (503, "ServiceUnavailable")
    assert answer.headers["retry-after"] == "30"
