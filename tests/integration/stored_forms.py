"""Images of a registry in this process, and stored bytes of every form to be damaged."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final

from sqlalchemy import bindparam, text

from cloudcore.db.statement import Statement
from registry.blobstore.base import DataKey, Stored
from registry.metadata.tables import blob_objects, inline_bytes, manifest_bodies
from registry.oci.digest import Digest, digest_of
from registry.oci.media_types import OCI_MANIFEST
from tests.inprocess import Registry
from tests.integration.damaged import file_of

CONFIG: Final = b'{"architecture": "amd64"}'

_o, _i, _b = blob_objects.c, inline_bytes.c, manifest_bodies.c
_MAKE_INLINE: Final = Statement(
    blob_objects.update().where(_o.digest == bindparam("of")).values(is_inline=text("true"))
)
_SEAL: Final = Statement(
    blob_objects.update()
    .where(_o.digest == bindparam("of"))
    .values(
        stored_id=bindparam("stored"),
        stored_size=bindparam("bytes"),
        checksum=bindparam("hash"),
        encoding=text("'sealed'"),
    )
)
_ADD_BODY: Final = Statement(
    inline_bytes.insert().values(stored_id=bindparam("id"), body=bindparam("body"))
)
_SET_BODY: Final = Statement(
    inline_bytes.update().where(_i.stored_id == bindparam("id")).values(body=bindparam("content"))
)
SET_MANIFEST: Final = Statement(
    manifest_bodies.update().where(_b.digest == bindparam("of")).values(body=bindparam("content"))
)


async def push_blob(registry: Registry, content: bytes, repository: str = "app") -> str:
    digest = digest_of(content)
    target = f"/v2/dev/{repository}/blobs/uploads/?digest={digest}"
    assert (await registry.client.request("POST", target, content)).status == 201
    return digest


async def push_image(registry: Registry, layer: bytes, tag: str, repository: str = "app") -> str:
    """Push an image of one layer; return its digest."""
    blobs = [
        {
            "mediaType": "application/x",
            "digest": await push_blob(registry, each, repository),
            "size": len(each),
        }
        for each in (CONFIG, layer)
    ]
    manifest = {"schemaVersion": 2, "config": blobs[0], "layers": blobs[1:]}
    body = json.dumps(manifest).encode()
    target = f"/v2/dev/{repository}/manifests/{tag}"
    answer = await registry.client.request("PUT", target, body, {"content-type": OCI_MANIFEST})
    assert answer.status == 201
    return digest_of(body)


async def manifest_body(registry: Registry, digest: str) -> bytes:
    return (await registry.client.request("GET", f"/v2/dev/app/manifests/{digest}")).body


class Targets:
    """Stored bytes of each form: files of plain and of sealed blobs, inline rows, and manifests."""

    def __init__(self, registry: Registry, blobs: Path) -> None:
        self._registry = registry
        self._blobs = blobs
        self.writers: dict[str, tuple[bytes, Callable[[bytes], Awaitable[object]]]] = {}
        """By digest: the whole bytes, and what overwrites them."""

    async def fill(self, chance: random.Random, count: int) -> None:
        for number in range(count):
            content = number.to_bytes(4, "big") + chance.randbytes(chance.randrange(1, 20_000))
            await self._add_blob(
                content, ("plain", "sealed", "inline", "sealed inline")[number % 4]
            )
        for number in range(count // 10):
            digest = await push_image(self._registry, b"layer %d" % number, f"v{number}")
            body = await manifest_body(self._registry, digest)
            self.writers[digest] = body, self._set(SET_MANIFEST, of=digest)
        self.writers.pop(digest_of(CONFIG), None)

    async def _add_blob(self, content: bytes, form: str) -> None:
        digest = await push_blob(self._registry, content)
        file = await file_of(self._registry, self._blobs, digest)
        if "sealed" in form:
            file.unlink()
            sealed = await self._seal(content, digest)
            file = await file_of(self._registry, self._blobs, digest)
            assert sealed.checksum is not None
        stored = file.read_bytes()
        if "inline" in form:
            write = self._registry.ctx.database.write
            await write(lambda tx: tx.execute(_MAKE_INLINE, of=digest))
            await write(lambda tx: tx.execute(_ADD_BODY, id=file.name, body=stored))
            file.unlink()
            self.writers[digest] = stored, self._set(_SET_BODY, id=file.name)
        else:
            self.writers[digest] = stored, write_file(file)

    async def _seal(self, content: bytes, digest: str) -> Stored:
        """Store a blob's bytes sealed, and let its row name them; the key is forgotten."""
        ctx = self._registry.ctx
        key = DataKey(os.urandom(32), b"account")
        async with aclosing(await ctx.writer.stage(ctx.new_id(), key)) as staged:
            staged.write(memoryview(content))
            stored = staged.commit(Digest.parse(digest))
        row = {
            "stored": stored.object_id,
            "bytes": stored.stored_size,
            "hash": stored.checksum,
        }
        await ctx.database.write(lambda tx: tx.execute(_SEAL, of=digest, **row))
        return stored

    def _set(self, statement: Statement, **of: str) -> Callable[[bytes], Awaitable[object]]:
        async def change(content: bytes) -> None:
            write = self._registry.ctx.database.write
            await write(lambda tx: tx.execute(statement, content=content, **of))

        return change


def write_file(file: Path) -> Callable[[bytes], Awaitable[object]]:
    async def change(content: bytes) -> None:
        await asyncio.to_thread(file.write_bytes, content)

    return change


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """Flip one bit, or cut the end off."""
    if chance.random() < 0.25:
        return whole[: chance.randrange(len(whole))]
    content = bytearray(whole)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)
