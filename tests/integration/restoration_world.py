"""An account with one repository, whose images are deleted and restored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

import httpx

from cloudcore.identity.rows.accounts import find_account, find_account_ids
from tests.integration.pushing import PATH, Pusher, client_of, create
from tests.tenants import ALLOW_ALL, Install, bearer

DAY: Final = 24 * 3600
KIND: Final = "application/vnd.oci.image.manifest.v1+json"


class Shop(NamedTuple):
    """An account with one repository, ``acme/r``, as both planes reach it."""

    client: httpx.AsyncClient
    docker: httpx.AsyncClient
    path: str
    repository_id: str
    install: Install

    async def push(self, text: str, tag: str = "") -> str:
        """Push an image of one layer and return its digest."""
        return await Pusher(self.docker, "acme/r").image(text.encode(), tag=tag)

    async def delete(self, reference: str) -> None:
        """Delete a manifest or tag as a client does."""
        answer = await self.docker.delete(f"/v2/acme/r/manifests/{reference}")
        assert answer.status_code == 202, answer.text

    async def pull(self, reference: str) -> httpx.Response:
        """Pull a manifest."""
        return await self.docker.get(f"/v2/acme/r/manifests/{reference}")

    async def restore(self, *digests: str) -> dict[str, Any]:
        """Restore images and return what became of each."""
        answer = await self.client.post(
            f"{self.path}/images/restore", json={"digests": list(digests)}
        )
        assert answer.status_code == 200, answer.text
        outcome: dict[str, Any] = answer.json()
        return outcome

    async def deleted(self) -> list[dict[str, Any]]:
        """Return the deleted images."""
        answer = await self.client.get(f"{self.path}/images/deleted")
        assert answer.status_code == 200, answer.text
        body = answer.json()
        images: list[dict[str, Any]] = body["images"]
        assert body["meta"]["total"] == len(images)
        return images

    async def history(self, tag: str) -> list[tuple[str, str | None, str | None]]:
        """Return what became of a tag, the newest first."""
        answer = await self.client.get(f"{self.path}/tags/{tag}/history")
        assert answer.status_code == 200, answer.text
        return [
            (each["action"], each["previous_digest"], each["digest"])
            for each in answer.json()["history"]
        ]


@asynccontextmanager
async def open_shop(install: Install) -> AsyncIterator[Shop]:
    """Make the account `acme` and its repository."""
    client = await client_of(install, "acme")
    made = await create(client, "r")
    password = (await client.post("/v1/authorization-token")).json()["password"]
    token = await install.exchange(password, "repository:acme/r:pull,push,delete")
    async with install.connect() as docker:
        docker.headers.update(bearer(token))
        yield Shop(client, docker, f"{PATH}/{made['id']}", made["id"], install)


@asynccontextmanager
async def open_again(install: Install) -> AsyncIterator[Shop]:
    """Sign in once more, since tokens have ended meanwhile."""
    ids = await install.database.read(find_account_ids, ["acme"])
    account = await install.database.read(find_account, ids["acme"])
    assert account is not None
    program = await install.add_program(account, "later", ALLOW_ALL)
    async with install.connect() as client:
        client.headers.update(bearer(program.access_token))
        found = (await client.get(PATH)).json()["repositories"][0]
        yield Shop(client, client, f"{PATH}/{found['id']}", found["id"], install)
