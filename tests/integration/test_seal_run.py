"""What is stored plain is sealed while it is served, completely or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.kms.services import enable_key
from cloudcore.objects.damage import UNREADABLE
from registry.blobstore.backups import deletions_held
from registry.blobstore.disk.store import FilesystemStore
from registry.counters import SEALED_BYTES, SEALED_OBJECTS
from registry.errors import StoreUnavailable
from registry.gc.database_rollback import accept_database
from registry.gc.fsck import check
from registry.gc.object_check import Pace
from registry.gc.object_sealing import Outcome
from registry.gc.seal_run import SealTurns, seal_chores, seal_status
from registry.metadata.collector.plain_objects import (
    FIRST,
    PlainTotals,
    count_plain,
    estimate_plain,
    next_plain,
)
from registry.oci.digest import digest_of
from registry.settings.groups import Limits
from tests.collecting import at_once, collect
from tests.databases import on_both_databases
from tests.integration.damaged import DAMAGES, file_of, marked, unreadable
from tests.integration.stored_forms import push_blob, push_image
from tests.keyed_registry import KeyedRegistry, open_keyed_registry

LAYER: Final = b"a secret layer " * 100_000
DAMAGED: Final = b"damaged " * 10_000


@pytest.fixture
async def keyed(metadata_url: str, store: FilesystemStore) -> AsyncIterator[KeyedRegistry]:
    async with open_keyed_registry(metadata_url, store) as keyed:
        yield keyed


async def check_is_whole(keyed: KeyedRegistry) -> None:
    report = await check(keyed.database, keyed.store, lambda _: None, clock=keyed.ctx.clock)
    assert (report.violations, report.orphans) == ([], [])


async def plain(keyed: KeyedRegistry) -> PlainTotals:
    return await keyed.database.read(count_plain)


def files_with(folder: Path, secret: bytes) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file() and secret in each.read_bytes()]


@on_both_databases
async def test_plain_blobs_are_sealed_under_the_keys_of_their_repositories(
    keyed: KeyedRegistry, blobs: Path
) -> None:
    await push_image(keyed.registry, LAYER, "v1")
    await push_image(keyed.registry, LAYER, "v1", "other")
    platform, key = await keyed.platform_key(), await keyed.make_key("own")
    await keyed.bind(key)
    assert (await plain(keyed)).object_count == 2
    assert (await keyed.database.read(estimate_plain)).object_count == 2
    report = await keyed.seal()
    assert dict(report.outcomes) == {Outcome.SEALED: 2}
    digest = digest_of(LAYER)
    assert await plain(keyed) == (0, 0, 0)
    assert await keyed.wraps_of(digest) == sorted([platform.id, key.id])
    assert set((await keyed.link_keys()).values()) == {key.id}
    assert set((await keyed.link_keys("other")).values()) == {platform.id}
    for repository in ("app", "other"):
        assert await keyed.pull(digest, repository) == (200, LAYER)
    ranged = await keyed.client.request(
        "GET", f"/v2/dev/app/blobs/{digest}", headers={"range": "bytes=1048570-1048600"}
    )
    assert ranged.body == LAYER[1048570:1048601]
    await check_is_whole(keyed)
    assert (await keyed.seal()).outcomes.total() == 0
    await keyed.kms.disable(key)
    assert (await keyed.pull(digest))[0] == 403
    assert (await keyed.pull(digest, "other"))[0] == 200
    await collect(at_once(keyed.ctx), keyed.store, keyed.account_id)
    assert files_with(blobs, b"a secret layer") == []


@on_both_databases
async def test_blobs_of_deleted_images_are_sealed_and_restored(keyed: KeyedRegistry) -> None:
    image = await push_image(keyed.registry, LAYER, "v1")
    gone = await keyed.client.request("DELETE", f"/v2/dev/app/manifests/{image}")
    assert gone.status == 202
    for digest in (digest_of(LAYER), *(await keyed.link_keys())):
        await keyed.client.request("DELETE", f"/v2/dev/app/blobs/{digest}")
    assert await keyed.link_keys() == {}
    report = await keyed.seal()
    assert dict(report.outcomes) == {Outcome.SEALED: 2}
    assert await keyed.tombstone_keys() == {(await keyed.platform_key()).id}
    await check_is_whole(keyed)


@on_both_databases
async def test_inline_blobs_are_sealed_where_they_are(
    metadata_url: str, store: FilesystemStore, blobs: Path
) -> None:
    small, damaged = b"a small secret", b"a damaged secret"
    async with open_keyed_registry(metadata_url, store, Limits()) as keyed:
        await push_image(keyed.registry, small, "v1")
        await push_image(keyed.registry, damaged, "v2")
        await keyed.set_body(digest_of(damaged), b"a changed secret")
        report = await keyed.seal()
        assert dict(report.outcomes) == {Outcome.SEALED: 2, Outcome.DAMAGED: 1}
        assert await keyed.pull(digest_of(small)) == (200, small)
        assert (await keyed.pull(digest_of(damaged)))[0] == 404
        await collect(at_once(keyed.ctx), keyed.store, keyed.account_id)
        bodies = await keyed.bodies()
        assert len(bodies) == 3
        assert not any(small in body for body in bodies)
        assert not list((blobs / "objects").glob("*/*"))


async def test_a_reader_of_the_plain_bytes_reads_on(keyed: KeyedRegistry) -> None:
    digest = await push_blob(keyed.registry, LAYER)
    stored = await keyed.store.open(await keyed.stored_id(digest), len(LAYER))
    await keyed.seal()
    assert b"".join([part async for part in stored.stream()]) == LAYER
    await stored.aclose()


@on_both_databases
async def test_what_cannot_be_sealed_stays_and_is_counted(
    keyed: KeyedRegistry, blobs: Path
) -> None:
    await push_blob(keyed.registry, b"under a disabled key", "shut")
    await push_blob(keyed.registry, DAMAGED)
    await push_blob(keyed.registry, b"good")
    unused = await push_blob(keyed.registry, b"unused", "other")
    await keyed.client.request("DELETE", f"/v2/dev/other/blobs/{unused}")
    key = await keyed.make_key("shut")
    await keyed.bind(key, "shut")
    await keyed.kms.disable(key)
    DAMAGES["flip"](await file_of(keyed.registry, blobs, digest_of(DAMAGED)))
    report = await keyed.seal()
    assert dict(report.outcomes) == {
        Outcome.SEALED: 1,
        Outcome.DAMAGED: 1,
        Outcome.KEY_UNUSABLE: 1,
        Outcome.UNUSED: 1,
    }
    assert [each.digest for each in report.damaged] == [digest_of(DAMAGED)]
    assert await marked(keyed.registry) == [(digest_of(DAMAGED), "digest")]
    assert await keyed.pull(digest_of(b"under a disabled key"), "shut") == (
        200,
        b"under a disabled key",
    )
    totals = await plain(keyed)
    assert (totals.object_count, totals.damaged_count) == (3, 1)
    assert not list((blobs / "uploads").iterdir())


@pytest.mark.parametrize("damage", list(DAMAGES))
async def test_a_damaged_blob_is_marked_and_a_push_heals_and_seals_it(
    keyed: KeyedRegistry, blobs: Path, damage: str
) -> None:
    digest = await push_blob(keyed.registry, LAYER)
    DAMAGES[damage](await file_of(keyed.registry, blobs, digest))
    report = await keyed.seal()
    assert dict(report.outcomes) == {Outcome.DAMAGED: 1}
    assert [each.digest for each in report.damaged] == [digest]
    assert (await keyed.pull(digest))[0] == 404
    target = f"/v2/dev/app/blobs/uploads/?digest={digest}"
    assert (await keyed.client.request("POST", target, LAYER)).status == 201
    assert await keyed.pull(digest) == (200, LAYER)
    assert (await plain(keyed)).object_count == 0


async def test_a_blob_that_the_disk_does_not_read_is_marked_and_no_copy_is_left(
    keyed: KeyedRegistry, blobs: Path
) -> None:
    digest = await push_blob(keyed.registry, LAYER)
    file = await file_of(keyed.registry, blobs, digest)
    with unreadable(file):
        report = await keyed.seal()
    assert dict(report.outcomes) == {Outcome.DAMAGED: 1}
    assert await marked(keyed.registry) == [(digest, UNREADABLE)]
    assert list((blobs / "uploads").iterdir()) == []
    assert [each for each in (blobs / "objects").rglob("*") if each.is_file()] == [file]


Disturbance = Callable[[KeyedRegistry, str], Awaitable[object]]


async def post_elsewhere(keyed: KeyedRegistry, query: str, body: bytes = b"") -> None:
    path = f"/v2/dev/elsewhere/blobs/uploads/?{query}"
    assert (await keyed.client.request("POST", path, body)).status == 201


async def mount_elsewhere(keyed: KeyedRegistry, digest: str) -> None:
    await post_elsewhere(keyed, f"mount={digest}&from=dev/app")


async def mount_under_another_key(keyed: KeyedRegistry, digest: str) -> None:
    await keyed.make_repository("elsewhere")
    await keyed.bind(await keyed.make_key("other"), "elsewhere")
    await mount_elsewhere(keyed, digest)


async def bind_another_key(keyed: KeyedRegistry, _digest: str) -> None:
    await keyed.bind(await keyed.make_key("other"))


async def delete(keyed: KeyedRegistry, digest: str) -> None:
    gone = await keyed.client.request("DELETE", f"/v2/dev/app/blobs/{digest}")
    assert gone.status == 202


async def seal_meanwhile(keyed: KeyedRegistry, _digest: str) -> None:
    assert (await keyed.seal()).outcomes[Outcome.SEALED] == 1


DISTURBANCES: Final[dict[str, tuple[Disturbance, Outcome, bool]]] = {
    "push elsewhere": (
        lambda keyed, digest: post_elsewhere(keyed, f"digest={digest}", LAYER),
        Outcome.SEALED,
        True,
    ),
    "mount elsewhere": (mount_elsewhere, Outcome.SEALED, True),
    "mount under another key": (mount_under_another_key, Outcome.SEALED, True),
    "bind another key": (bind_another_key, Outcome.SEALED, False),
    "delete": (delete, Outcome.UNUSED, False),
    "seal": (seal_meanwhile, Outcome.CHANGED, False),
    "disable": (lambda k, _: k.kms.disable(k.bound["app"]), Outcome.KEY_UNUSABLE, False),
    "delete the key": (lambda k, _: k.kms.delete(k.bound["app"]), Outcome.KEY_UNUSABLE, False),
}
"""What happens meanwhile, what comes of it, and whether the blob is elsewhere too then."""


class _Passing:
    """Passes on what it does not meddle with."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._inner, name)


class _Disturbed(_Passing):
    """A store in which something happens when a copy was made, before its rows are written."""

    def __init__(self, store: FilesystemStore, disturb: Callable[[], Awaitable[object]]) -> None:
        super().__init__(store)
        self._disturb = disturb

    async def open_stored(self, *arguments: Any) -> Any:  # noqa: ANN401
        opened = await self._inner.open_stored(*arguments)
        await self._disturb()
        return opened


@on_both_databases
@pytest.mark.parametrize("name", DISTURBANCES)
async def test_what_happens_while_a_blob_is_copied(
    keyed: KeyedRegistry, store: FilesystemStore, name: str
) -> None:
    disturb, outcome, is_elsewhere = DISTURBANCES[name]
    digest = await push_blob(keyed.registry, LAYER)
    await keyed.bind(await keyed.make_key("first"))
    disturbed: Any = _Disturbed(store, lambda: disturb(keyed, digest))
    (row,) = await keyed.database.read(next_plain, FIRST, 9)
    assert await keyed.sealer(store=disturbed).seal(row) is outcome
    stays = outcome in (Outcome.UNUSED, Outcome.KEY_UNUSABLE)
    assert (await plain(keyed)).object_count == stays
    if not stays:
        for repository in ["app", "elsewhere"] if is_elsewhere else ["app"]:
            assert await keyed.pull(digest, repository) == (200, LAYER)
        assert await keyed.link_keys() == {digest: keyed.bound["app"].id}
    assert len([each async for each in store.list_objects()]) == (1 if stays else 2)
    await check_is_whole(keyed)


@on_both_databases
async def test_pushes_mounts_and_bindings_beside_the_run(keyed: KeyedRegistry) -> None:
    contents = [b"layer %d " % number * 5000 for number in range(24)]
    for content in contents:
        await push_blob(keyed.registry, content)
    await keyed.make_repository("elsewhere")
    names = ["one", "two", "three"]
    made = [await keyed.make_key(name) for name in names]

    async def push(begin: int) -> None:
        for content in contents[begin::3]:
            digest = digest_of(content)
            for name, target in (
                ("app", f"?digest={digest}"),
                ("elsewhere", f"?mount={digest}&from=dev/app"),
            ):
                path = f"/v2/dev/{name}/blobs/uploads/{target}"
                assert (await keyed.client.request("POST", path, content)).status in (201, 202)

    async def bind() -> None:
        for key in made:
            await keyed.bind(key)
            await keyed.bind(key, "elsewhere")
            await asyncio.sleep(0)

    report, *_ = await asyncio.gather(keyed.seal(workers=3), push(0), push(1), push(2), bind())
    assert report.outcomes[Outcome.DAMAGED] == 0
    await keyed.seal()
    assert (await plain(keyed)).object_count == 0
    for content in contents:
        assert await keyed.pull(digest_of(content)) == (200, content)
    await check_is_whole(keyed)


class _Full(_Passing):
    """A store whose disk is full after some writes."""

    def __init__(self, store: FilesystemStore, writes: int) -> None:
        super().__init__(store)
        self.writes = writes

    async def stage(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        return _FullStaged(await self._inner.stage(*arguments, **options), self)


class _FullStaged(_Passing):
    def __init__(self, staged: Any, store: _Full) -> None:  # noqa: ANN401
        super().__init__(staged)
        self._full = store

    def write(self, view: memoryview) -> None:
        if not self._full.writes:
            raise StoreUnavailable("the disk is full")
        self._full.writes -= 1
        self._inner.write(view)


async def test_a_full_disk_ends_the_turn_and_loses_nothing(
    keyed: KeyedRegistry, store: FilesystemStore, blobs: Path
) -> None:
    contents = [b"%d" % number * 20_000 for number in range(5)]
    for content in contents:
        await push_blob(keyed.registry, content)
    full: Any = _Full(store, 2)
    turns = SealTurns(keyed.ctx, full, 1 << 40)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await turns.turn()
    assert (await plain(keyed)).object_count == 3
    assert not list((blobs / "uploads").iterdir())
    full.writes = -1
    await turns.turn()
    await turns.turn()
    assert (await plain(keyed)).object_count == 0
    for content in contents:
        assert await keyed.pull(digest_of(content)) == (200, content)


async def test_turns_seal_count_and_rest(
    keyed: KeyedRegistry, store: FilesystemStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    counted: dict[str, int] = {}

    def count(key: str, amount: int) -> None:
        counted[key] = counted.get(key, 0) + amount

    now = 0.0
    ctx = replace(keyed.ctx, count=count)
    turns = SealTurns(ctx, store, 1 << 40, monotonic=lambda: now)
    for number in range(3):
        await push_blob(keyed.registry, b"%d" % number)
    assert await turns.turn() == 3
    assert counted == {SEALED_OBJECTS: 3, SEALED_BYTES: 3}
    assert "sealed 3 blobs (3 bytes)" in caplog.text
    key = await keyed.make_key("shut")
    await keyed.make_repository("shut")
    await keyed.bind(key, "shut")
    await push_blob(keyed.registry, b"shut", "shut")
    await keyed.kms.disable(key)
    assert await turns.turn() == 0
    assert "left plain: 1 key not usable" in caplog.text
    await keyed.database.write(enable_key, key, keyed.ctx.clock())
    assert await turns.turn() == 0  # it rests
    now = 3601.0
    assert await turns.turn() == 1


async def test_a_turn_waits_for_a_backup_and_can_be_turned_off(
    keyed: KeyedRegistry, store: FilesystemStore, blobs: Path
) -> None:
    await push_blob(keyed.registry, b"plain")
    status = await seal_status(keyed.database)
    assert (status.plain, status.object_count, status.turn_ended_at) == ((1, 5, 0), 1, None)
    turns = SealTurns(keyed.ctx, store, 1 << 40)
    with deletions_held(blobs):
        assert await turns.turn() == 0
    assert await turns.turn() == 1
    status = await seal_status(keyed.database)
    assert (status.plain, status.object_count) == ((0, 0, 0), 1)
    assert len(seal_chores(keyed.ctx, store, 1)) == 1
    assert seal_chores(keyed.ctx, store, 0) == ()
    assert seal_chores(replace(keyed.ctx, seals=False), store, 1) == ()


async def test_beside_a_database_that_went_back_no_blob_is_sealed(
    keyed: KeyedRegistry, store: FilesystemStore, caplog: pytest.LogCaptureFixture
) -> None:
    await push_blob(keyed.registry, b"plain")
    await store.save_generation(keyed.ctx.new_id())
    turns = SealTurns(keyed.ctx, store, 1 << 40)
    assert await turns.turn() == 0
    assert "no blob is sealed: the database is older than the blobs" in caplog.text
    await accept_database(keyed.ctx, store)
    assert await turns.turn() == 1


async def test_an_unmounted_disk_marks_few_blobs(
    keyed: KeyedRegistry, store: FilesystemStore, blobs: Path
) -> None:
    for number in range(30):
        digest = await push_blob(keyed.registry, b"%d" % number * 20_000)
        (await file_of(keyed.registry, blobs, digest)).unlink()
    with pytest.raises(StoreUnavailable, match="is the disk of the blobs mounted"):
        await SealTurns(keyed.ctx, store, 1 << 40).turn()
    assert len(await marked(keyed.registry)) == 20


async def test_the_rate_is_kept(keyed: KeyedRegistry, store: FilesystemStore) -> None:
    made: list[int] = []
    spent: list[int] = []

    class Recorded(Pace):
        def __init__(self, rate: int) -> None:
            made.append(rate)
            super().__init__(rate)

        def spend(self, count: int) -> None:
            spent.append(count)

    await push_blob(keyed.registry, LAYER)
    await SealTurns(keyed.ctx, store, 4711, new_pace=Recorded).turn()
    assert (made, sum(spent)) == ([4711], len(LAYER))
