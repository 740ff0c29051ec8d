"""Every provider wraps material for one version: the root key, and AWS KMS over moto's server."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import pytest

from cloudcore.db.base import Connection, Database
from cloudcore.errors import Unavailable
from cloudcore.kms.providers import AwsProvider, EmbeddedProvider, Provider, Providers, VersionRef
from cloudcore.kms.rows import find_version
from cloudcore.kms.vault import Vault
from tests.kms_world import ACME, KEYRING, make_kms_world

REF: Final = VersionRef(ACME, "0189a000-0000-7000-8000-000000000001", 1)
MATERIAL: Final = bytes(range(32))
LONGEST: Final = bytes(2400)
"""As long as an RSA key of 4,096 bits in PKCS #8."""


@pytest.fixture
def aws(aws_client: Any, aws_url: str) -> AwsProvider:  # noqa: ANN401 - boto3
    """Return the provider of a new key in AWS."""
    return AwsProvider(aws_client.create_key()["KeyMetadata"]["Arn"], aws_url)


@pytest.fixture(params=["embedded", "aws"])
def provider(request: pytest.FixtureRequest) -> Provider:
    """Return each provider."""
    if request.param == "embedded":
        return EmbeddedProvider(KEYRING)
    found: AwsProvider = request.getfixturevalue("aws")
    return found


async def test_material_opens_for_its_version_alone(provider: Provider) -> None:
    for material in (MATERIAL, LONGEST):
        wrapped = await provider.wrap(material, REF)
        assert material not in wrapped
        assert await provider.unwrap(wrapped, REF) == material
    for wrong in (
        REF._replace(version=2),
        REF._replace(key_id="another"),
        REF._replace(account_id="another"),
    ):
        with pytest.raises(Unavailable):
            await provider.unwrap(wrapped, wrong)
    with pytest.raises(Unavailable):
        await provider.unwrap(wrapped[:-1] + bytes([wrapped[-1] ^ 1]), REF)
    with pytest.raises(Unavailable):
        await provider.unwrap(b"", REF)


async def test_aws_refuses_by_another_or_an_unknown_key(
    aws: AwsProvider,
    aws_client: Any,  # noqa: ANN401 - boto3
    aws_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrapped = await aws.wrap(MATERIAL, REF)
    other = AwsProvider(aws_client.create_key()["KeyMetadata"]["Arn"], aws_url)
    unknown = AwsProvider("01890000-0000-7000-8000-0000000000ff", aws_url)
    for provider in (other, unknown):
        with pytest.raises(Unavailable):
            await provider.unwrap(wrapped, REF)
    with pytest.raises(Unavailable):
        await unknown.wrap(MATERIAL, REF)
    assert "AccessDeniedException" in caplog.text
    assert "NotFoundException" in caplog.text


async def test_aws_that_is_not_there_is_unavailable(aws: AwsProvider) -> None:
    gone = AwsProvider(aws._key, "http://127.0.0.1:1")
    with pytest.raises(Unavailable):
        await gone.wrap(MATERIAL, REF)


@pytest.mark.usefixtures("aws_client")
async def test_aws_that_does_not_answer_keeps_no_thread_of_others() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        silent_aws = AwsProvider("a-key", f"http://127.0.0.1:{silent.getsockname()[1]}")
        waiting = [asyncio.create_task(silent_aws.wrap(MATERIAL, REF)) for _ in range(40)]
        other = asyncio.create_task(asyncio.to_thread(bytes))  # behind them, if in their threads
        await asyncio.wait_for(other, 60)
        assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_keys_of_both_providers_stand_side_by_side(
    database: Database, aws: AwsProvider
) -> None:
    """The other wraps what is new after the setting was changed; what is old still opens."""
    embedded = EmbeddedProvider(KEYRING)
    before = await make_kms_world(database, Providers(embedded, aws))
    key = await before.make("app")
    wrapped = await before.vault.wrap(ACME, key.id, MATERIAL, b"")
    after = type(before)(database, Providers(aws, embedded), before.clock)
    await after.rotate(key)
    again = await after.vault.wrap(ACME, key.id, MATERIAL, b"")
    for each in (wrapped, again):
        assert await after.vault.unwrap(ACME, key.id, each, b"") == MATERIAL

    def providers(tx: Connection) -> list[str]:
        found = [find_version(tx, ACME, key.id, number) for number in (1, 2)]
        return [each.provider for each in found if each]

    assert await database.read(providers) == ["embedded", "aws"]
    alone = Vault(database, Providers(embedded), before.clock)
    with pytest.raises(Unavailable, match="'aws'"):
        await alone.unwrap(ACME, key.id, again, b"")
