"""Images made of named layers, pushed and pulled over the data plane of a whole install."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import httpx

from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from tests.tenants import Install, Program, bearer

CONFIG: Final = b"{}"
"""The config of every image, so that images differ by their layers alone."""


@dataclass
class Pusher:
    """Pushes to one repository."""

    client: httpx.AsyncClient
    name: str
    """With the account's handle."""

    async def image(self, *layers: bytes, tag: str = "") -> str:
        """Push an image of these layers and return its digest."""
        config, *pushed = [await self._blob(data) for data in (CONFIG, *layers)]
        kind = {"schemaVersion": 2, "mediaType": OCI_MANIFEST}
        return await self._manifest(kind | {"config": config, "layers": pushed}, tag)

    async def index(self, *children: str, tag: str = "") -> str:
        """Push an index of these images and return its digest."""
        listed = []
        for child in children:
            head = await self.pull(child, "HEAD")
            size, media_type = int(head.headers["content-length"]), head.headers["content-type"]
            listed.append({"mediaType": media_type, "digest": child, "size": size})
        kind = {"schemaVersion": 2, "mediaType": OCI_INDEX}
        return await self._manifest(kind | {"manifests": listed}, tag)

    async def pull(self, reference: str, method: str = "GET") -> httpx.Response:
        """Pull a manifest, or ask for its head only."""
        answer = await self.client.request(method, f"/v2/{self.name}/manifests/{reference}")
        assert answer.status_code == 200, answer.text
        return answer

    async def delete(self, reference: str) -> None:
        """Delete a manifest or a tag."""
        answer = await self.client.delete(f"/v2/{self.name}/manifests/{reference}")
        assert answer.status_code == 202, answer.text

    async def _blob(self, data: bytes) -> dict[str, Any]:
        digest = digest_of(data)
        path = f"/v2/{self.name}/blobs/uploads/?digest={digest}"
        answer = await self.client.post(path, content=data)
        assert answer.status_code == 201, answer.text
        return {"mediaType": "application/x", "digest": digest, "size": len(data)}

    async def _manifest(self, manifest: dict[str, Any], tag: str) -> str:
        body = json.dumps(manifest).encode()
        digest = digest_of(body)
        answer = await self.client.put(
            f"/v2/{self.name}/manifests/{tag or digest}",
            content=body,
            headers={"content-type": manifest["mediaType"]},
        )
        assert answer.status_code == 201, answer.text
        return digest


async def pusher(install: Install, program: Program, name: str) -> Pusher:
    """Return a pusher to a repository of `name`, with the account's handle, as a program."""
    scope = f"repository:{name}:pull,push,delete"
    token = await install.exchange(await install.login(program), scope)
    client = install.connect()
    client.headers.update(bearer(token))
    return Pusher(client, name)
