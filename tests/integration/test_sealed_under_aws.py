"""Blobs are sealed under keys whose material AWS KMS wraps, and wait for it if it is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from moto.server import ThreadedMotoServer

from cloudcore.kms.vault import MAX_AGE_SECONDS
from tests.integration.sealed_world import SealedWorld, error_of, make_sealed_world
from tests.tenants import open_install

DATA: Final = b"a layer under a key in AWS " * 40


@pytest.fixture
async def world(
    metadata_url: str,
    aws_client: Any,  # noqa: ANN401 - boto3
    aws_url: str,
) -> AsyncIterator[SealedWorld]:
    """Return an install whose keys AWS KMS wraps."""
    arn = aws_client.create_key()["KeyMetadata"]["Arn"]
    aws = {"kms_provider": "aws", "kms_aws_key": arn, "kms_aws_endpoint": aws_url}
    async with open_install(metadata_url, **aws) as install, install.connect() as docker:
        yield await make_sealed_world(install, docker)


async def test_what_is_sealed_under_a_key_in_aws_waits_for_an_aws_that_is_away(
    world: SealedWorld, aws_server: ThreadedMotoServer
) -> None:
    assert (await world.push("red", DATA)).status_code == 201
    key = await world.make_bound_key("mine", "blue")
    assert (await world.mount("blue", DATA, "red")).status_code == 201
    assert (await world.link("blue", DATA))[1] == key.id
    aws_server.stop()
    world.install.clock.advance(MAX_AGE_SECONDS - 60)
    await world.sign_in()
    for name in ("red", "blue"):  # the material is still open here
        assert (await world.pull(name, DATA)).content == DATA
    world.install.clock.advance(120)
    await world.sign_in()
    for answer in (
        await world.pull("red", DATA),
        await world.push("red", DATA),
        await world.push("red", b"other bytes"),
    ):
        status, code, _ = error_of(answer)
        assert (status, code) == (503, "UNKNOWN"), answer.text
        assert int(answer.headers["retry-after"]) > 0
    aws_server.start()
    assert (await world.pull("red", DATA)).content == DATA
    assert (await world.push("red", b"other bytes")).status_code == 201
