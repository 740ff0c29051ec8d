"""What each page of the console costs: how often it calls ``/v1``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from cloudcore.web.run_once import RunOnce
from registry.console.app import Console
from registry.console.cookies import CookieJar
from registry.console.page_request import ConsoleSettings
from registry.console.sessions import COOKIE, Acting, ConsoleSession, Token
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from tests.integration.served_world import HOST, HOUR, URL, Served, open_served

CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
NAME: Final = "acme/shop"

Descriptor = dict[str, Any]


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class Shop:
    """A repository with images, and a browser whose pages' calls are counted."""

    served: Served
    bearer: str
    repository_id: str
    browser: httpx.AsyncClient
    calls: list[str] = field(default_factory=list)

    async def cost(self, path: str = "", **form: str) -> int:
        """Return how many calls a page takes, or a form with these fields."""
        self.calls.clear()
        address = f"/console/repositories/{self.repository_id}{path}"
        sent = {"csrf": "csrf", **form}
        answer = await (
            self.browser.post(address, data=sent) if form else self.browser.get(address)
        )
        assert answer.status_code == 200, answer.text
        return len(self.calls)

    async def blob(self, content: bytes, media_type: str) -> Descriptor:
        digest = digest_of(content)
        path = f"/v2/{NAME}/blobs/uploads/?digest={digest}"
        answer = await self.served.ask("POST", path, content, token=self.bearer)
        assert answer.status_code == 201, answer.text
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    async def manifest(self, document: dict[str, Any], tag: str = "") -> Descriptor:
        body, kind = json.dumps(document).encode(), document["mediaType"]
        digest = digest_of(body)
        path = f"/v2/{NAME}/manifests/{tag or digest}"
        headers = {"Content-Type": kind}
        answer = await self.served.ask("PUT", path, body, token=self.bearer, headers=headers)
        assert answer.status_code == 201, answer.text
        return {"mediaType": kind, "digest": digest, "size": len(body)}

    async def image(self, name: str, tag: str = "", **fields: object) -> Descriptor:
        config = json.dumps({"os": "linux", "architecture": "amd64", "author": name}).encode()
        document = {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": await self.blob(config, CONFIG_TYPE),
            "layers": [await self.blob(name.encode(), "application/x")],
        }
        return await self.manifest(document | fields, tag)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_served(tmp_path / "data") as served:
        acme, calls = served.acme, list[str]()
        made = await served.make("/v1/repositories", {"name": "shop"}, token=acme.program_token)
        bearer = await served.bearer(acme, f"repository:{NAME}:*")

        async def counted(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
            calls.append(scope["path"])
            await served.app(scope, receive, send)

        once = RunOnce(served.database, served.keyring, served.clock, lambda: "unused")
        console = Console(
            counted,
            ConsoleSettings(URL, HOST, "local"),
            keyring=served.keyring,
            clock=served.clock,
            once=once,
        )

        async def answered(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
            scope["state"] = {"request_id": "00000000-0000-4000-8000-000000000000"}
            await console(scope, receive, send)

        end = served.clock() + HOUR
        token = Token(acme.program_token, end)
        acting = Acting("1", "admin", acme.account_id, "acme", token)
        session = ConsoleSession("1", "a@example.org", "csrf", end, token, "", acting)
        sealed = CookieJar(served.keyring, URL).seal(COOKIE, session).partition(";")[0]
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(answered), base_url=URL, headers={"Cookie": sealed}
        ) as browser:
            yield Shop(served, bearer, made["id"], browser, calls)


async def test_pages_call_as_often_whatever_they_list(shop: Shop) -> None:
    plain = await shop.image("plain", "plain")
    parts = [await shop.image(f"part-{number}") for number in range(5)]
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": parts}
    whole = await shop.manifest(index, "whole")

    # The repository and its images, which tell their platforms.
    assert await shop.cost() == 2
    assert await shop.cost("?tag_status=any") == 2
    # The repository, the image with its configuration, its manifest, its referrers, the tags that
    # spell its digest, its pins, its storage.
    assert await shop.cost(f"/images/{plain['digest']}") == 7
    # The preview of a deletion too, which tells the size of each part.
    assert await shop.cost(f"/images/{whole['digest']}") == 8
    assert await shop.cost("/tags") == 2
    assert await shop.cost("/tags/plain") == 3
    assert await shop.cost("/lifecycle") == 3
    assert await shop.cost("/deleted") == 3
    # The repository, and the deletion.
    named = " ".join(each["digest"] for each in (whole, *parts))
    path = f"/images/{whole['digest']}/delete-with-children"
    assert await shop.cost(path, digests=named) == 2
    assert await shop.cost("?tag_status=any") == 2
