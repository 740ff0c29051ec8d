"""Repositories of an install, and images pushed to them through the data plane."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from cloudcore.identity.rows.accounts import Account
from registry.oci.digest import digest_of
from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from tests.tenants import ALLOW_ALL, Install, Program, bearer

PATH: Final = "/v1/repositories"
CONFIG: Final = b"{}"
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"

Descriptor = dict[str, Any]


@dataclass(frozen=True)
class Pusher:
    """Pushes to one repository, and pulls from it."""

    docker: httpx.AsyncClient
    name: str
    """With the account's handle."""

    async def push_blob(self, data: bytes, media_type: str = LAYER_TYPE) -> Descriptor:
        """Push a blob and return its descriptor."""
        digest = digest_of(data)
        path = f"/v2/{self.name}/blobs/uploads/?digest={digest}"
        answer = await self.docker.post(path, content=data)
        assert answer.status_code == 201, answer.text
        return {"mediaType": media_type, "digest": str(digest), "size": len(data)}

    async def push(
        self, document: dict[str, Any], *tags: str, reference: str | None = None
    ) -> Descriptor:
        """Push a manifest under its digest (or `reference`) and tags; return its descriptor."""
        body = json.dumps(document).encode()
        query = "&".join(f"tag={tag}" for tag in tags)
        answer = await self.docker.put(
            f"/v2/{self.name}/manifests/{reference or digest_of(body)}?{query}",
            content=body,
            headers={"content-type": document["mediaType"]},
        )
        assert answer.status_code == 201, answer.text
        return {
            "mediaType": document["mediaType"],
            "digest": str(digest_of(body)),
            "size": len(body),
        }

    async def image_document(self, *layers: str, config: str = "{}") -> dict[str, Any]:
        """Push the blobs of an image and return its manifest."""
        return {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": await self.push_blob(config.encode(), CONFIG_TYPE),
            "layers": [await self.push_blob(layer.encode()) for layer in layers],
        }

    async def push_image(self, content: str, *tags: str, **fields: object) -> Descriptor:
        """Push an image of one layer and return its descriptor."""
        return await self.push(await self.image_document(content) | fields, *tags)

    async def push_index(self, children: Sequence[Descriptor], *tags: str) -> Descriptor:
        """Push an index and return its descriptor."""
        manifests = list(children)
        index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
        return await self.push(index, *tags)

    async def pulls(self, reference: str) -> bool:
        """Say whether a manifest can be pulled."""
        answer = await self.docker.get(f"/v2/{self.name}/manifests/{reference}")
        assert answer.status_code in (200, 404), answer.text
        return answer.status_code == 200

    async def tags(self) -> list[str]:
        """Return the tags as the data plane lists them."""
        found: list[str] = (await self.docker.get(f"/v2/{self.name}/tags/list")).json()["tags"]
        return found

    async def pull(self, reference: str, method: str = "GET") -> httpx.Response:
        """Pull a manifest, or ask for its head only."""
        answer = await self.docker.request(method, f"/v2/{self.name}/manifests/{reference}")
        assert answer.status_code == 200, answer.text
        return answer

    async def delete(self, reference: str) -> None:
        """Delete a manifest or a tag."""
        answer = await self.docker.delete(f"/v2/{self.name}/manifests/{reference}")
        assert answer.status_code == 202, answer.text

    async def image(self, *layers: bytes, tag: str = "") -> str:
        """Push an image of these layers, and a config like all others; return its digest."""
        config, *pushed = [
            await self.push_blob(data, "application/x") for data in (CONFIG, *layers)
        ]
        kind = {"schemaVersion": 2, "mediaType": OCI_MANIFEST}
        made = await self.push(kind | {"config": config, "layers": pushed}, reference=tag or None)
        return str(made["digest"])

    async def index(self, *children: str, tag: str = "") -> str:
        """Push an index of these images and return its digest."""
        listed = []
        for child in children:
            head = await self.pull(child, "HEAD")
            size, media_type = int(head.headers["content-length"]), head.headers["content-type"]
            listed.append({"mediaType": media_type, "digest": child, "size": size})
        kind = {"schemaVersion": 2, "mediaType": OCI_INDEX}
        return str((await self.push(kind | {"manifests": listed}, reference=tag or None))["digest"])


def signed_in(install: Install, program: Program) -> httpx.AsyncClient:
    """Return a connection to the control plane as a program."""
    client = install.connect()
    client.headers.update(bearer(program.access_token))
    return client


async def pusher(install: Install, program: Program, name: str) -> Pusher:
    """Return a pusher to a repository of `name`, with the account's handle, as a program."""
    return await _exchanged(install, await install.login(program), name)


async def push_index(docker: httpx.AsyncClient) -> str:
    """Push an index of two images of one layer each, as ``acme/r:v1``; return its digest."""
    pushes = Pusher(docker, "acme/r")
    return await pushes.index(*[await pushes.image(b"%d" % each) for each in (1, 2)], tag="v1")


@dataclass(frozen=True)
class World(Pusher):
    """One repository of one account, and connections to both planes with every right."""

    install: Install
    control: httpx.AsyncClient
    account: Account
    repository_id: str

    @property
    def path(self) -> str:
        """Return the repository's path on the control plane."""
        return f"/v1/repositories/{self.repository_id}"

    @property
    def images(self) -> str:
        """Return the path of the repository's images."""
        return f"{self.path}/images"

    async def get(self, path: str = "", **query: str | int) -> Any:  # noqa: ANN401 - a document
        """Return what the control plane answers below the repository."""
        answer = await self.control.get(f"{self.path}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def all(self, path: str, **query: str | int) -> list[dict[str, Any]]:
        """Return all rows of a list below the repository."""
        return await read_all(self.control, f"{self.path}{path}", **query)

    async def record(self) -> dict[str, Any]:
        """Return the repository."""
        found: dict[str, Any] = (await self.get())["repository"]
        return found

    async def pusher(self) -> Pusher:
        """Return a pusher with a bearer that is exchanged now."""
        return await _pusher(self.install, self.control, self.name)

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass, and sign in anew."""
        install = self.install
        install.clock.advance(seconds)
        await install.keys.refresh()
        program = await install.add_program(self.account, f"ci-{install.clock.now}", ALLOW_ALL)
        self.control.headers.update(bearer(program.access_token))
        self.docker.headers.update((await self.pusher()).docker.headers)

    async def another(self, repository: str, **fields: object) -> World:
        """Return the same with another repository of the account, which is made."""
        return await _world(self.install, self.control, self.account, repository, **fields)


async def make_world(
    install: Install, handle: str = "acme", repository: str = "app", **fields: object
) -> World:
    """Make an account with a repository, and connect to both."""
    account = await install.add_account(handle)
    program = await install.add_program(account, "ci", ALLOW_ALL)
    return await _world(install, signed_in(install, program), account, repository, **fields)


async def _world(
    install: Install,
    control: httpx.AsyncClient,
    account: Account,
    repository: str,
    **fields: object,
) -> World:
    made = await create(control, repository, **fields)
    pushing = await _pusher(install, control, f"{account.handle}/{repository}")
    return World(pushing.docker, pushing.name, install, control, account, made["id"])


async def _pusher(install: Install, control: httpx.AsyncClient, name: str) -> Pusher:
    password = (await control.post("/v1/authorization-token")).json()["password"]
    return await _exchanged(install, password, name)


async def _exchanged(install: Install, password: str, name: str) -> Pusher:
    client = install.connect()
    token = await install.exchange(password, f"repository:{name}:pull,push,delete")
    client.headers.update(bearer(token))
    return Pusher(client, name)


async def read_all(
    client: httpx.AsyncClient, path: str, **query: str | int
) -> list[dict[str, Any]]:
    """Return all rows of a list, whose pages are as long as their meta says."""
    found: list[dict[str, Any]] = []
    while True:
        answer = await client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        meta = page.pop("meta")
        (rows,) = page.values()
        found += rows
        if not meta["has_more"]:
            assert "marker" not in meta
            assert meta["total"] == len(found)
            return found
        assert len(rows) == meta["limit"] == query.get("limit", 50)
        query["marker"] = meta["marker"]


def refused(
    answer: httpx.Response, status: int, code: str, field: str | None = None, *, about: object = ""
) -> Any:  # noqa: ANN401
    """Check a refusal of the control plane and return its params.

    A failure shows what the case is `about`.
    """
    assert answer.status_code == status, (about, answer.text)
    error = answer.json()["error"]
    assert error["code"] == code, about
    assert error["message"], about
    params = error.get("params", {})
    if field is not None:
        assert params["field"] == field, about
    return params


async def client_of(
    install: Install, handle: str, *statements: dict[str, Any]
) -> httpx.AsyncClient:
    """Return a connection whose requests are signed in to an account, which is made."""
    account = await install.add_account(handle)
    program = await install.add_program(account, "ci", *(statements or (ALLOW_ALL,)))
    return signed_in(install, program)


async def create(client: httpx.AsyncClient, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    """Make a repository and return it."""
    answer = await client.post(PATH, json={"name": name, **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()["repository"]
    assert answer.headers["location"] == f"{PATH}/{found['id']}"
    return found
