"""What one may not know answers as what is not there, byte for byte.

An oracle is a pair of requests whose answers would tell a stranger something. Those of layers and
of bytes that are held elsewhere are here; ids are in `test_isolation_operations`, roles in
`test_oauth_assume_role`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from registry.oci.media_types import OCI_MANIFEST
from tests.tenants import ALLOW_ALL, Install, bearer

ROOT: Final = Path(__file__).parents[2]
LAYER: Final = b"a layer that somebody else has"
DIGEST: Final = f"sha256:{hashlib.sha256(LAYER).hexdigest()}"
OTHER: Final = b"a layer that nobody at all has"
OTHER_DIGEST: Final = f"sha256:{hashlib.sha256(OTHER).hexdigest()}"
UUIDS: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


def told(answer: httpx.Response) -> tuple[int, str, list[tuple[str, str]]]:
    """Return an answer without ids, dates and what the caller wrote itself."""

    def plain(text: str) -> str:
        return UUIDS.sub("<id>", text).replace(DIGEST, "<digest>").replace(OTHER_DIGEST, "<digest>")

    headers = [(k, plain(v)) for k, v in answer.headers.multi_items() if k != "date"]
    return answer.status_code, plain(answer.text), headers


async def push(client: httpx.AsyncClient, name: str, data: bytes) -> httpx.Response:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return await client.post(f"/v2/{name}/blobs/uploads/?digest={digest}", content=data)


async def prepare(install: Install) -> str:
    """Put the layer where `acme/app` has it not; return a token of a program that may use that.

    A repository of another account holds it, and one of the same account that it may not pull.
    """
    acme, other = [await install.add_account(handle) for handle in ("acme", "other")]
    for account, name in ((acme, "secret"), (other, "theirs")):
        await install.add_repository(account, name)
        owner = await install.add_program(account, "owner", ALLOW_ALL)
        full = f"{account.handle}/{name}"
        token = await install.exchange(await install.login(owner), f"repository:{full}:pull,push")
        async with install.connect() as client:
            client.headers = httpx.Headers(bearer(token))
            assert (await push(client, full, LAYER)).status_code == 201
    await install.add_repository(acme, "app")
    crn = f"crn:registry:local:{acme.id}:repository/app"
    statement = {"effect": "allow", "actions": ["registry:*"], "resources": [crn]}
    pusher = await install.add_program(acme, "pusher", statement)
    scopes = [
        f"repository:{name}:pull,push" for name in ("acme/app", "acme/secret", "other/theirs")
    ]
    return await install.exchange(await install.login(pusher), *scopes)


@pytest.fixture
async def pusher(install: Install) -> AsyncIterator[httpx.AsyncClient]:
    """Return the client of a program that `prepare` has made."""
    token = await prepare(install)
    async with install.connect() as client:
        client.headers = httpx.Headers(bearer(token))
        yield client


async def test_a_layer_held_elsewhere_is_as_unknown_as_any(pusher: httpx.AsyncClient) -> None:
    config, kind = b"{}", {"Content-Type": OCI_MANIFEST}
    assert (await push(pusher, "acme/app", config)).status_code == 201
    both = (DIGEST, OTHER_DIGEST)
    for method in ("GET", "HEAD"):
        path = "/v2/acme/app/blobs"
        answers = [await pusher.request(method, f"{path}/{digest}") for digest in both]
        assert told(answers[0]) == told(answers[1])
        assert answers[0].status_code == 404
    path = "/v2/acme/app/manifests/v1"
    contents = [manifest(config, digest) for digest in both]
    put = [await pusher.put(path, content=content, headers=kind) for content in contents]
    assert told(put[0]) == told(put[1])
    assert put[0].json()["errors"][0]["code"] == "MANIFEST_BLOB_UNKNOWN"


def manifest(config: bytes, layer: str) -> bytes:
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    described = {"mediaType": "application/x", "digest": digest, "size": len(config)}
    layers = [{"mediaType": "application/x", "digest": layer, "size": len(LAYER)}]
    fields = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described, "layers": layers}
    return json.dumps(fields).encode()


async def test_a_mount_one_may_not_make_is_an_upload(pusher: httpx.AsyncClient) -> None:
    """202 for a blob that is there as for one that is nowhere."""
    for source in ("acme/secret", "other/theirs", "acme/absent", "nobody/x", ""):
        answers = []
        for digest in (DIGEST, OTHER_DIGEST):
            path = f"/v2/acme/app/blobs/uploads/?mount={digest}"
            path += f"&from={source}" if source else ""
            answer = await pusher.post(path)
            # A token silent on the source is asked for more once, whoever has the blob.
            again = await pusher.post(path) if answer.status_code == 401 else answer
            answers.append((told(answer), told(again)))
        assert answers[0] == answers[1], source
        assert answers[0][1][0] == 202, source


@pytest.mark.parametrize("way", ["at once", "in chunks"])
async def test_a_push_of_what_is_held_elsewhere_is_as_new(
    pusher: httpx.AsyncClient, way: str
) -> None:
    """Status, headers and bytes; and all of the body is wanted, or nothing is stored."""
    answers = []
    for data in (LAYER, OTHER):
        answers.append([told(answer) for answer in await exchange(pusher, data, way)])
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        pulled = await pusher.get(f"/v2/acme/app/blobs/{digest}")
        assert pulled.content == data
    assert answers[0] == answers[1]
    assert [answer[0] for answer in answers[0]] == STATUSES[way]


STATUSES: Final = {"at once": [400, 404, 201], "in chunks": [202, 202, 400, 202, 202, 404, 201]}


async def exchange(client: httpx.AsyncClient, data: bytes, way: str) -> list[httpx.Response]:
    """Push all but the last byte of `data`, which is not it, then all of it."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    uploads, there = "/v2/acme/app/blobs/uploads/", f"/v2/acme/app/blobs/{digest}"
    if way == "at once":
        short = await client.post(f"{uploads}?digest={digest}", content=data[:-1])
        absent = await client.head(there)
        return [short, absent, await client.post(f"{uploads}?digest={digest}", content=data)]
    answers = []
    for length in (len(data) - 1, len(data)):
        opened = await client.post(uploads)
        place = opened.headers["location"]
        answers += [opened, await client.patch(place, content=data[:length])]
        if length == len(data):
            answers.append(await client.head(there))
        answers.append(await client.put(f"{place}?digest={digest}"))
    return answers
