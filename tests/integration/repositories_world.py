"""Repositories as ``/v1`` makes and refuses them, and what is pushed to ``acme/r``."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx

from registry.oci.digest import digest_of
from tests.tenants import ALLOW_ALL, Install, bearer

PATH: Final = "/v1/repositories"


async def client_of(
    install: Install, handle: str, *statements: dict[str, Any]
) -> httpx.AsyncClient:
    """Return a connection whose requests are signed in to an account, which is made."""
    account = await install.add_account(handle)
    program = await install.add_program(account, "ci", *(statements or (ALLOW_ALL,)))
    client = install.connect()
    client.headers.update(bearer(program.access_token))
    return client


async def create(client: httpx.AsyncClient, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    """Make a repository and return it."""
    answer = await client.post(PATH, json={"name": name, **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["repository"]
    assert answer.headers["location"] == f"{PATH}/{found['id']}"
    return found


def refused(answer: httpx.Response, status: int, code: str, field: str | None = None) -> None:
    """Check a refusal, and the field that it names."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    if field is not None:
        assert error["params"]["field"] == field


async def push_index(docker: httpx.AsyncClient) -> None:
    """Push an index of two images of one layer each, as ``acme/r:v1``."""
    children = []
    for number in (1, 2):
        config, layer = [await push_blob(docker, data) for data in (b"{}", b"%d" % number)]
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer],
        }
        children.append(await push_manifest(docker, manifest))
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": children,
    }
    await push_manifest(docker, index, "v1")


async def push_blob(docker: httpx.AsyncClient, data: bytes) -> dict[str, Any]:
    """Push a blob to ``acme/r`` and return its descriptor."""
    digest = digest_of(data)
    path = f"/v2/acme/r/blobs/uploads/?digest={digest}"
    assert (await docker.post(path, content=data)).status_code == 201
    return {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest, "size": len(data)}


async def push_manifest(
    docker: httpx.AsyncClient, manifest: dict[str, Any], tag: str = ""
) -> dict[str, Any]:
    """Push a manifest to ``acme/r`` and return its descriptor."""
    body = json.dumps(manifest).encode()
    digest = digest_of(body)
    headers = {"content-type": manifest["mediaType"]}
    path = f"/v2/acme/r/manifests/{tag or digest}"
    answer = await docker.put(path, content=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return {"mediaType": manifest["mediaType"], "digest": digest, "size": len(body)}
