"""The client of upstreams, beside registries as they are: Debian's, and ours behind tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import httpx
import pytest

from cloudcore.clock import system_clock
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.http_client import HttpClient
from registry.oci.digest import Digest, digest_of
from registry.upstream.base import (
    Credential,
    HiddenUpstream,
    NotUpstream,
    Remote,
    UpstreamRefused,
)
from registry.upstream.client import RegistryClient
from tests.clients.debian_registry import running_registry
from tests.live_signed_in import SignedIn, serving
from tests.postgresql import free_port
from tests.scripted_upstream import CONFIG, LAYER, MANIFEST, descriptor
from tests.upstream_world import Noted

LAYERS: Final = tuple(sha256(bytes([n])).digest() * 40_000 for n in range(2))
CONFIGURATION: Final = b'{"architecture":"amd64","os":"linux"}'
DOCUMENT: Final = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, CONFIGURATION),
        "layers": [descriptor(LAYER, layer) for layer in LAYERS],
    }
).encode()


def push(url: str, repository: str, headers: dict[str, str]) -> None:
    """Push the image with plain requests."""
    base = f"{url}/v2/{repository}"
    with httpx.Client(headers=headers, timeout=30) as http:
        for data in (CONFIGURATION, *LAYERS):
            place = http.post(f"{base}/blobs/uploads/").raise_for_status().headers["Location"]
            target = httpx.URL(url).join(place).copy_merge_params({"digest": digest_of(data)})
            http.put(target, content=data).raise_for_status()
        type_ = {"Content-Type": MANIFEST}
        http.put(f"{base}/manifests/1", content=DOCUMENT, headers=type_).raise_for_status()


def bearer(url: str, repository: str, login: Credential) -> str:
    """Return a token of ours to push with."""
    scope = {"scope": f"repository:{repository}:pull,push"}
    pair = (login.username, login.secret)
    answer = httpx.get(f"{url}/v2/token", params=scope, auth=pair, timeout=60)
    token: str = answer.raise_for_status().json()["token"]
    return token


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[RegistryClient]:
    http = HttpClient(Allowed("ENTREPOT_UPSTREAM_ALLOWED", (url,)))
    try:
        yield RegistryClient(http, system_clock, Noted())
    finally:
        http.close()


async def check(url: str, repository: str, credential: Credential | None) -> None:
    """Ask for all that an upstream is asked for."""
    remote = Remote("rule", url, repository, credential)
    async with client_of(url) as client:
        assert await client.ping(remote) == 200
        head = await client.head_manifest(remote, "1")
        assert head is not None
        assert head.digest == digest_of(DOCUMENT)
        assert await client.head_manifest(remote, "1", head.etag) is None
        assert await client.list_tags(remote) == (["1"], True)
        for reference in ("1", head.digest):
            fetched = await client.get_manifest(remote, reference)
            assert (fetched.body, fetched.media_type) == (DOCUMENT, MANIFEST)
        for layer in LAYERS:
            digest = digest_of(layer)
            assert await client.head_blob(remote, digest) == len(layer)
            for start in (0, 1, len(layer) - 1):
                async with client.open_blob(remote, digest, start) as blob:
                    assert (blob.start, blob.size) == (start, len(layer))
                    assert b"".join([chunk async for chunk in blob.chunks]) == layer[start:]
        absent = Digest.parse("sha256:" + "0" * 64)
        for asked in (client.get_manifest(remote, "2"), client.head_blob(remote, absent)):
            with pytest.raises(NotUpstream):
                await asked


@pytest.fixture
def debian_registry(tmp_path: Path) -> Iterator[str]:
    """Run Debian's docker-registry; return its URL."""
    with running_registry(tmp_path / "upstream", free_port()) as url:
        yield url


async def test_debians_registry_as_upstream(debian_registry: str) -> None:
    push(debian_registry, "library/thing", {})
    await check(debian_registry, "library/thing", None)
    async with client_of(debian_registry) as client:
        remote = Remote("rule", debian_registry, "library/thing", None)
        assert await client.get_referrers(remote, digest_of(DOCUMENT)) is None


@pytest.fixture
def signed_in(tmp_path: Path) -> Iterator[SignedIn]:
    """Run one of ours, with two accounts."""
    with serving(tmp_path / "data") as found:
        yield found


async def test_one_of_ours_behind_tokens_as_upstream(signed_in: SignedIn) -> None:
    url, repository = signed_in.registry.url, "acme/library/thing"
    login = Credential("token", signed_in.acme.password)
    push(url, repository, {"Authorization": f"Bearer {bearer(url, repository, login)}"})
    await check(url, repository, login)
    async with client_of(url) as client:
        remote = Remote("rule", url, repository, login)
        index = await client.get_referrers(remote, digest_of(DOCUMENT))
        assert index is not None
        assert json.loads(index)["manifests"] == []
        wrong = login._replace(secret="wrong")
        with pytest.raises(UpstreamRefused):
            await client.head_manifest(remote._replace(credential=wrong), "1")
        with pytest.raises(HiddenUpstream):  # it gives everybody a token
            await client.head_manifest(remote._replace(credential=None), "1")
