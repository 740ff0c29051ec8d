"""No kept answer is ever stale: random changes by one worker of a server beside reads of another.

After each change, everything is asked of a server that keeps its answers, and of a plane over the
database that keeps none. The answers must be equal but for their ids and dates.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pytest
from sqlalchemy import bindparam

from cloudcore.db.base import CommitMark, Connection
from cloudcore.db.statement import Statement
from cloudcore.errors import PlatformError
from cloudcore.kms import services as kms
from cloudcore.kms.key import Key
from cloudcore.kms.vault import Vault
from registry.distribution.app import DataPlane
from registry.distribution.auth import OpenAccess
from registry.metadata.repositories.details import RepositoryDetails
from registry.metadata.repositories.repository import (
    VisibleRepository,
    find_repository,
    find_visible_repository,
)
from registry.metadata.tables import manifest_bodies
from registry.oci.digest import Digest, digest_of
from registry.oci.media_types import OCI_MANIFEST
from registry.oci.reference import Name
from registry.services.data_keys import DataKeys
from registry.services.images.details import delete_batch
from registry.services.images.manifests import read_manifest_state
from registry.services.images.restoration import restore_images, restore_repository, restore_tag
from registry.services.repositories.details import delete_repository, get_repository
from registry.services.tags.details import put_tag
from registry.services.tags.pointers import read_revision
from registry.settings.groups import Limits
from tests.collecting import at_once, collect
from tests.databases import on_both_databases
from tests.inprocess import Answer, Client
from tests.keyed_registry import KeyedRegistry, open_keyed_registry
from tests.memory_store import MemoryStore
from tests.soak import times
from tests.wired import WireClient, wired

pytestmark = on_both_databases

BLOBS: Final = [bytes([n]) * (40 * n + 1) for n in range(4)]
TAGS: Final = ("v1", "v2")
REPOSITORIES: Final = ("app", "web")
STEPS: Final = 60
_SPOIL: Final = Statement(
    manifest_bodies.update()
    .where(manifest_bodies.c.digest == bindparam("of"))
    .values(body=bindparam("spoilt"))
)


def document(*, layers: list[bytes], note: str, subject: bytes | None = None) -> bytes:
    """Return a manifest."""
    config, *rest = (
        {"mediaType": "application/x", "digest": digest_of(data), "size": len(data)}
        for data in layers
    )
    made = {"schemaVersion": 2, "config": config, "layers": rest, "annotations": {"note": note}}
    if subject is not None:
        of = {"mediaType": OCI_MANIFEST, "digest": digest_of(subject), "size": len(subject)}
        made["subject"] = of
    return json.dumps(made).encode()


IMAGES: Final = [
    document(layers=[BLOBS[0], BLOBS[1]], note="a"),
    document(layers=[BLOBS[1], BLOBS[2]], note="b"),
    document(layers=[BLOBS[0], BLOBS[2]], note="c"),
]
SIGNATURES: Final = [
    document(layers=[BLOBS[3]], note="s", subject=IMAGES[0]),
    document(layers=[BLOBS[3]], note="t", subject=IMAGES[0]),
]
MANIFESTS: Final = [*IMAGES, *SIGNATURES]


def reads() -> list[tuple[str, str, dict[str, str]]]:
    """Return every request of which the answers are compared."""
    found: list[tuple[str, str, dict[str, str]]] = []
    for name in REPOSITORIES:
        base = f"/v2/dev/{name}"
        subject = digest_of(IMAGES[0])
        paths = [f"{base}/tags/list", f"{base}/tags/list?n=1", f"{base}/referrers/{subject}"]
        paths += [f"{base}/manifests/{each}" for each in (*TAGS, *map(digest_of, MANIFESTS[:4]))]
        paths += [f"{base}/blobs/{digest_of(data)}" for data in BLOBS]
        found += [(method, path, {}) for path in paths for method in ("GET", "HEAD")]
        match = {"if-none-match": f'"{subject}"'}
        found += [("GET", f"{base}/manifests/v1", match)]
        found += [("GET", f"{base}/blobs/{digest_of(BLOBS[0])}", {"range": "bytes=0-0"})]
    return found


READS: Final = reads()


@dataclass
class World:
    """Who writes, who reads what is kept, and what is at random."""

    writer: KeyedRegistry
    reader: WireClient
    """A server in another process, with a connection and a vault of its own."""
    truth: Client
    """Asks the same process, past the server."""
    rng: random.Random
    keys: list[Key] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    seen: dict[Name, tuple[object, object]] = field(default_factory=dict)
    """The revision and the states of manifests of a repository, when they were compared last."""

    @property
    def path(self) -> str:
        """Return the path of some repository."""
        return f"/v2/dev/{self.rng.choice(REPOSITORIES)}"

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> Answer:
        """Ask the writer."""
        headers = {"content-type": kind} if kind else {}
        return await self.writer.client.request(method, path, body, headers)

    async def push_blob(self) -> None:
        data = self.rng.choice(BLOBS)
        await self.ask("POST", f"{self.path}/blobs/uploads/?digest={digest_of(data)}", data)

    async def push_image(self) -> None:
        path, image = self.path, self.rng.choice(MANIFESTS)
        for data in BLOBS:
            await self.ask("POST", f"{path}/blobs/uploads/?digest={digest_of(data)}", data)
        reference = self.rng.choice((*TAGS, digest_of(image)))
        await self.ask("PUT", f"{path}/manifests/{reference}", image, OCI_MANIFEST)

    async def delete_tag(self) -> None:
        await self.ask("DELETE", f"{self.path}/manifests/{self.rng.choice(TAGS)}")

    async def delete_image(self) -> None:
        digest = digest_of(self.rng.choice(MANIFESTS))
        await self.ask("DELETE", f"{self.path}/manifests/{digest}")

    async def delete_blob(self) -> None:
        await self.ask("DELETE", f"{self.path}/blobs/{digest_of(self.rng.choice(BLOBS))}")

    async def delete_repository(self) -> None:
        found = await self.writer.database.read(
            find_repository, "dev", self.rng.choice(REPOSITORIES)
        )
        if found is not None:
            change = self.writer.ctx.change_by("someone")
            ids = (self.writer.account_id, found.id)
            await self.writer.database.write(delete_repository, *ids, change, force=True)
            self.deleted.append(found.id)

    async def restore_repository(self) -> None:
        if self.deleted:
            change = self.writer.ctx.change_by("someone")
            found = self.deleted.pop()
            ids = (self.writer.account_id, found)
            await self.writer.database.write(restore_repository, *ids, change)

    async def restore_image(self) -> None:
        if found := await self.visible():
            digest = digest_of(self.rng.choice(MANIFESTS))
            change = self.writer.ctx.change_by("someone")
            record = await self.details(found)
            await self.writer.database.write(restore_images, record, [digest], change)

    async def restore_tag(self) -> None:
        if found := await self.visible():
            change, tag = self.writer.ctx.change_by("someone"), self.rng.choice(TAGS)
            record = await self.details(found)
            await self.writer.database.write(restore_tag, record, tag, change)

    async def move_tag(self) -> None:
        if found := await self.visible():
            of = self.rng.choice(TAGS), digest_of(self.rng.choice(MANIFESTS)), None
            change = self.writer.ctx.change_by("someone")
            await self.writer.database.write(put_tag, found, *of, change)

    async def delete_batch(self) -> None:
        if found := await self.visible():
            digests = [digest_of(each) for each in self.rng.sample(MANIFESTS, k=2)]
            change, tags = self.writer.ctx.change_by("someone"), [self.rng.choice(TAGS)]
            given = found, digests, tags, change
            await self.writer.database.write(partial(delete_batch, force=True), *given)

    async def visible(self) -> VisibleRepository | None:
        """Return some repository, if it exists."""
        read, name = self.writer.database.read, self.rng.choice(REPOSITORIES)
        found = await read(find_repository, "dev", name)
        return None if found is None else await read(find_visible_repository, found.id)

    async def details(self, found: VisibleRepository) -> RepositoryDetails:
        """Return the same as its own account sees it."""
        of = found.repository.account_id, found.repository.id
        return await self.writer.database.read(get_repository, *of)

    async def bind_and_rewrap(self) -> None:
        name = self.rng.choice(REPOSITORIES)
        key = await self.writer.make_key(f"key-{len(self.keys)}")
        self.keys.append(key)
        if await self.writer.database.read(find_repository, "dev", name) is not None:
            await self.writer.bind(key, name)
            if self.rng.random() < 0.7:
                await self.writer.rewrap(name)

    async def disable_key(self) -> None:
        await self.writer.kms.disable(await self.some_key())

    async def enable_key(self) -> None:
        key = await self.some_key()
        await self.writer.database.write(kms.enable_key, key, self.writer.ctx.clock())

    async def schedule_key(self) -> None:
        await self.writer.kms.schedule_deletion(await self.some_key())

    async def delete_key(self) -> None:
        if self.rng.random() < 0.3 and self.keys:
            await self.writer.kms.delete(self.rng.choice(self.keys))

    async def some_key(self) -> Key:
        return self.rng.choice([await self.writer.platform_key(), *self.keys])

    async def heal(self) -> None:
        """Damage a manifest behind everyone's back, and push it again."""
        image = self.rng.choice(IMAGES)
        spoilt = {"of": digest_of(image), "spoilt": b"{}"}
        await self.writer.database.write(lambda tx: tx.execute(_SPOIL, **spoilt))
        for name in REPOSITORIES:
            put = f"/v2/dev/{name}/manifests/{digest_of(image)}"
            await self.ask("PUT", put, image, OCI_MANIFEST)
        await self.writer.database.write(_put_back, image)

    async def sweep(self) -> None:
        ctx = at_once(self.writer.ctx)
        await collect(ctx, self.writer.store, self.writer.account_id)

    async def wait(self) -> None:
        self.writer.registry.clock.advance(self.rng.choice((1, 400)))

    async def check_revisions(self) -> None:
        """Compare with the last call: what a manifest answer depends on changes with a revision."""
        read = self.writer.database.read
        for name in (Name("dev", each) for each in REPOSITORIES):
            references = (*TAGS, *(Digest(digest_of(each)) for each in MANIFESTS))
            seen = [await read(read_manifest_state, name, each) for each in references]
            revision = await read(read_revision, name)
            before = self.seen.get(name)
            assert before is None or before == (revision, seen) or before[0] != revision
            self.seen[name] = revision, seen

    async def look(self) -> None:
        """Compare all answers; in random order, so that what is kept differs in age."""
        for method, path, headers in self.rng.sample(READS, k=len(READS) // 3):
            expected = await self.truth.request(method, path, headers=headers)
            for _ in range(self.rng.choice((1, 2))):
                found = await self.reader.ask(method, path, headers=headers)
                assert plain(found) == plain(expected), (method, path)


def _put_back(tx: Connection, image: bytes) -> None:
    tx.execute(_SPOIL, of=digest_of(image), spoilt=image)


def plain(answer: Answer) -> Answer:
    """Return an answer without what differs from one to the next."""
    left = {n: v for n, v in answer.headers.items() if n not in ("x-request-id", "date")}
    return answer._replace(headers=left)


@pytest.mark.parametrize("seed", range(1, 1 + times(2)))
async def test_no_answer_is_stale(metadata_url: str, seed: int) -> None:
    store, limits, mark = MemoryStore(), Limits(), CommitMark()
    async with AsyncExitStack() as stack:
        writer, other = [
            await stack.enter_async_context(open_keyed_registry(metadata_url, store, limits, mark))
            for _ in range(2)
        ]
        ctx = replace(other.ctx, clock=writer.ctx.clock)
        vault = Vault(ctx.database, other.kms.providers, ctx.clock)
        ctx = replace(ctx, data_keys=DataKeys(vault))
        served = DataPlane(ctx, OpenAccess("dev"))
        reader = await stack.enter_async_context(wired(served, ctx))
        world = World(writer, reader, Client(served), random.Random(seed))
        steps: dict[Callable[[], Awaitable[None]], int] = {
            world.push_image: 8,
            world.push_blob: 3,
            world.delete_tag: 2,
            world.delete_image: 2,
            world.delete_blob: 2,
            world.delete_repository: 1,
            world.restore_repository: 1,
            world.restore_image: 2,
            world.restore_tag: 1,
            world.move_tag: 2,
            world.delete_batch: 1,
            world.bind_and_rewrap: 1,
            world.disable_key: 1,
            world.enable_key: 3,
            world.schedule_key: 1,
            world.delete_key: 1,
            world.heal: 1,
            world.sweep: 1,
            world.wait: 1,
        }
        for _ in range(STEPS):
            (step,) = world.rng.choices([*steps], [*steps.values()])
            try:
                await step()
            except PlatformError:
                continue  # the step cannot be made now
            await world.check_revisions()
            await world.look()
        assert reader.kept is not None
        hits, confirmed, missed = reader.kept.take_counts()
        assert min(confirmed, missed) > 100
        assert hits > 100 or ctx.database.version() is None
