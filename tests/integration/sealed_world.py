"""An install that seals blobs: KMS keys, bindings, and what lies in the store and the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx
from sqlalchemy import bindparam, select

from cloudcore.clock import uuid7
from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement
from cloudcore.identity.rows.accounts import Account
from cloudcore.kms.key import Key
from cloudcore.kms.providers import Provider, Providers
from cloudcore.kms.rows import find_platform_key
from cloudcore.kms.vault import Vault
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.metadata.encryption_bindings import add_binding, end_binding
from registry.metadata.tables import (
    blob_object_keys,
    blob_objects,
    repository_blobs,
)
from registry.oci.digest import digest_of
from registry.services.data_keys import DataKeys
from tests.integration.counting import CountingDatabase
from tests.kms_world import KeyChanges
from tests.tenants import ALLOW_ALL, URL, Install, Program, bearer

_OBJECTS: Final = Statement(
    select(
        blob_objects.c.id,
        blob_objects.c.stored_id,
        blob_objects.c.encoding,
        blob_objects.c.is_current,
        blob_objects.c.state,
    )
    .where(blob_objects.c.digest == bindparam("digest"))
    .order_by(blob_objects.c.id)
)
_WRAPS: Final = Statement(
    select(blob_object_keys.c.kms_key_id, blob_object_keys.c.wrapped_data_key)
    .where(blob_object_keys.c.object_id == bindparam("object_id"))
    .order_by(blob_object_keys.c.kms_key_id)
)
_LINK: Final = Statement(
    select(repository_blobs.c.object_id, repository_blobs.c.kms_key_id).where(
        repository_blobs.c.repository_id == bindparam("repository_id"),
        repository_blobs.c.digest == bindparam("digest"),
    )
)
_AGE: Final = Statement(
    blob_objects.update()
    .where(blob_objects.c.digest == bindparam("of"))
    .values(verified_at=bindparam("at"))
)
_SPOIL: Final = Statement(
    blob_object_keys.update()
    .where(
        blob_object_keys.c.object_id == bindparam("object"),
        blob_object_keys.c.kms_key_id == bindparam("key"),
    )
    .values(wrapped_data_key=bindparam("wrapped"))
)


@dataclass
class SealedWorld(KeyChanges):
    """One account with two repositories, ``red`` and ``blue``, and a client with every right."""

    install: Install
    docker: httpx.AsyncClient
    account: Account
    ids: dict[str, str]
    """Of the repositories, by name."""
    program: Program

    def __post_init__(self) -> None:
        self.database, self.clock = self.install.database, self.install.clock
        self.maker = self.install.kms.maker

    @asynccontextmanager
    async def served_by(self, **changes: Any) -> AsyncIterator[SealedWorld]:  # noqa: ANN401
        """Serve the same install by a process with other dependencies."""
        plane = DataPlane(replace(self.install.ctx, **changes), OpenAccess("acme"))
        transport = httpx.ASGITransport(plane)
        async with httpx.AsyncClient(transport=transport, base_url=URL) as docker:
            yield replace(self, docker=docker)

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[tuple[SealedWorld, CountingDatabase]]:
        """Serve the same install through a database that counts its calls."""
        counted = CountingDatabase(self.install.ctx.database)
        async with self.served_by(database=counted) as seen:
            yield seen, counted

    async def sign_in(self) -> None:
        """Give the client a new bearer, which is good for five minutes."""
        scopes = [f"repository:acme/{name}:pull,push,delete" for name in self.ids]
        password = await self.install.login(self.program)
        self.docker.headers.update(bearer(await self.install.exchange(password, *scopes)))

    async def make_key(self, name: str) -> Key:
        """Create a KMS key of the account."""
        return await self.make(name, self.account.id)

    async def platform_key(self) -> Key:
        """Return the account's platform key."""
        found = await self.install.database.read(find_platform_key, self.account.id)
        assert found is not None
        return found

    async def bind(self, repository: str, key: Key | None) -> None:
        """Let a repository write under a key, or under its account's again."""
        repository_id, now = self.ids[repository], self.install.clock()

        def change(tx: Connection) -> None:
            end_binding(tx, self.account.id, repository_id, now)
            if key is not None:
                add_binding(tx, uuid7(), self.account.id, repository_id, key.id, now)

        await self.install.database.write(change)

    async def make_bound_key(self, name: str, repository: str) -> Key:
        """Create a KMS key, and let a repository write under it."""
        key = await self.make_key(name)
        await self.bind(repository, key)
        return key

    def blobs(self, repository: str) -> str:
        """Return the path of a repository's blobs."""
        return f"/v2/{self.account.handle}/{repository}/blobs"

    async def push(self, repository: str, data: bytes) -> httpx.Response:
        """Push a blob in one request."""
        path = f"{self.blobs(repository)}/uploads/?digest={digest_of(data)}"
        return await self.docker.post(path, content=data)

    async def mount(self, repository: str, data: bytes, source: str) -> httpx.Response:
        """Mount a blob from another repository."""
        query = f"mount={digest_of(data)}&from={self.account.handle}/{source}"
        return await self.docker.post(f"{self.blobs(repository)}/uploads/?{query}")

    async def begin(self, repository: str) -> httpx.Response:
        """Open an upload session."""
        return await self.docker.post(f"{self.blobs(repository)}/uploads/")

    async def pull(
        self, repository: str, data: bytes, method: str = "GET", **headers: str
    ) -> httpx.Response:
        """Pull a blob, or a range of it."""
        path = f"{self.blobs(repository)}/{digest_of(data)}"
        return await self.docker.request(method, path, headers=headers)

    async def objects(self, data: bytes) -> list[tuple[Any, ...]]:
        """Return id, stored id, encoding, is_current and state of each object of these bytes."""
        found = await self.install.database.read(
            lambda tx: tx.rows(_OBJECTS, digest=str(digest_of(data)))
        )
        return [tuple(row) for row in found]

    async def wraps(self, object_id: str) -> dict[str, bytes]:
        """Return the wraps of an object by KMS key."""
        found = await self.install.database.read(lambda tx: tx.rows(_WRAPS, object_id=object_id))
        return {row[0]: row[1] for row in found}

    async def age(self, data: bytes) -> None:
        """Let these bytes be verified so long ago that the next push replaces them."""
        of = {"of": str(digest_of(data)), "at": 0}
        await self.install.database.write(lambda tx: tx.execute(_AGE, **of))

    async def link(self, repository: str, data: bytes) -> tuple[str, str | None]:
        """Return the object and the KMS key of a repository's link."""
        of = {"repository_id": self.ids[repository], "digest": str(digest_of(data))}
        row = await self.install.database.read(lambda tx: tx.row(_LINK, **of))
        assert row is not None
        return row[0], row[1]

    def with_providers(self, *providers: Provider) -> DataKeys:
        """Return the data keys of a process that has other providers of keys' material."""
        install = self.install
        return DataKeys(Vault(install.database, Providers(*providers), install.clock))

    async def spoil(self, object_id: str, key: Key, wrapped: bytes) -> None:
        """Change a wrap in its row."""
        of = {"object": object_id, "key": key.id, "wrapped": wrapped}
        await self.install.database.write(lambda tx: tx.execute(_SPOIL, **of))


async def make_sealed_world(install: Install, docker: httpx.AsyncClient) -> SealedWorld:
    """Add an account with two repositories, and sign the client in."""
    account = await install.add_account("acme")
    program = await install.add_program(account, "ci", ALLOW_ALL)
    ids = {name: (await install.add_repository(account, name)) for name in ("red", "blue")}
    world = SealedWorld(install, docker, account, ids, program)
    await world.sign_in()
    return world


def error_of(answer: httpx.Response) -> tuple[int, str, object]:
    """Return status, code and detail of a refusal."""
    (error,) = answer.json()["errors"]
    return answer.status_code, error["code"], error["detail"]
