"""Layers unpacked on this machine: verified, bounded, shared, and removed when nothing has them."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import zstandard

from cloudcore.compute.images import ImageRefused
from cloudcore.errors import Unavailable
from registry.image_roots.file_locks import held
from registry.image_roots.layer_store import LayerStore
from tests.busybox_images import LAYER_TYPE, Layer, digest_of, file, folder, gzipped, plain, tar_of
from tests.layer_worlds import LayerWorld, image_digest, wanted

pytestmark = pytest.mark.anyio

MIB: Final = 1 << 20
ONE: Final = gzipped(tar_of(folder("etc"), file("etc/one", b"1" * 1000)))
TWO: Final = gzipped(tar_of(folder("etc"), file("etc/two", b"2" * 1000)))


@pytest.fixture
def world(tmp_path: Path) -> LayerWorld:
    return LayerWorld(tmp_path / "layers")


def frames(tar: bytes) -> bytes:
    """Return a tar as several frames of zstd, with one to skip between them."""
    compress = zstandard.ZstdCompressor().compress
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    return skipped + compress(tar[:700]) + skipped + compress(tar[700:]) + skipped


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(lambda tar: tar, id="plain"),
        pytest.param(gzip.compress, id="gzip"),
        pytest.param(lambda tar: gzip.compress(tar[:700]) + gzip.compress(tar[700:]), id="members"),
        pytest.param(lambda tar: gzip.compress(tar) + bytes(70_000), id="padded gzip"),
        pytest.param(lambda tar: zstandard.ZstdCompressor().compress(tar), id="zstd"),
        pytest.param(frames, id="frames"),
        pytest.param(lambda tar: tar + bytes(100_000), id="padded tar"),
    ],
)
async def test_each_compression_is_unpacked(world: LayerWorld, data: object) -> None:
    assert callable(data)
    tar = tar_of(folder("a"), file("a/b", b"x" * 100_000))
    packed = data(tar)
    layer = Layer(packed if packed.startswith(tar) else tar, packed, LAYER_TYPE)
    (tree,) = await world.unpack(layer)
    assert (tree / "a/b").read_bytes() == b"x" * 100_000
    assert tree == world.folder / "layers" / layer.diff_id.removeprefix("sha256:") / "tree"


async def test_layers_come_lowest_first_and_one_that_is_there_twice_once(world: LayerWorld) -> None:
    found = await world.unpack(ONE, TWO, ONE)
    assert [sorted(each.name for each in tree.rglob("*")) for tree in found] == [
        ["etc", "two"],
        ["etc", "one"],
    ]
    assert len(world.opened) == 2


async def test_two_pulls_of_one_layer_at_once_unpack_it_once(world: LayerWorld) -> None:
    first, second = world.store(), world.store()
    layer = gzipped(tar_of(*(file(f"{number}") for number in range(2000))))
    found = await asyncio.gather(
        world.unpack(layer, account="a", number=1, store=first),
        world.unpack(layer, account="b", number=2, store=first),
        world.unpack(layer, account="c", number=3, store=second),
    )
    assert found[0] == found[1] == found[2]
    assert world.opened == [digest_of(layer.data)]


async def test_images_share_the_layers_that_they_have_in_common(world: LayerWorld) -> None:
    world.store().keep_only([image_digest(1)])
    assert not world.folder.exists(), "a machine without images has no folder for them"
    found = await world.unpack(ONE, TWO, number=1)
    again = await world.unpack(ONE, number=2)
    assert found[0] == again[0]
    assert len(world.opened) == 2


async def test_a_blob_of_another_digest_or_another_layer_is_refused(world: LayerWorld) -> None:
    with pytest.raises(ImageRefused, match="configuration says"):
        await world.unpack(Layer(TWO.tar, ONE.data, ONE.media_type))
    world.blobs[digest_of(ONE.data)] = TWO.data
    with pytest.raises(ImageRefused, match=r"the bytes of the blob sha256:.* are others"):
        await world.store().unpack("account", image_digest(1), [wanted(ONE)], world.open)
    assert world.layers == world.left()["staging"] == []


async def test_who_names_a_layer_without_its_bytes_gets_nothing_of_it(
    world: LayerWorld,
) -> None:
    await world.unpack(ONE, account="owner", number=1)
    thief = Layer(ONE.tar, TWO.data, TWO.media_type)
    for _ in range(2):  # nothing is learnt from the first
        with pytest.raises(ImageRefused, match="configuration says"):
            await world.unpack(thief, account="thief", number=2)
    assert world.layers == [ONE.diff_id.removeprefix("sha256:")]


async def test_another_blob_of_the_same_layer_is_verified_once(world: LayerWorld) -> None:
    (tree,) = await world.unpack(ONE, number=1)
    inode = (tree / "etc/one").stat().st_ino
    for number in (2, 3):
        assert await world.unpack(plain(ONE.tar), number=number) == [tree]
    assert (tree / "etc/one").stat().st_ino == inode
    assert len(world.opened) == 2


async def test_a_bomb_or_no_layer_is_refused(world: LayerWorld) -> None:
    zeros = bytes(80 * MIB)
    for data, words in (
        (gzip.compress(zeros, 1), "200 times its"),
        (zstandard.ZstdCompressor().compress(zeros), "200 times its"),
        (gzip.compress(tar_of(file("zeros", zeros)), 1), "200 times its"),
        (ONE.data[:-20], "gzip ends early"),
        (ONE.data[:40] + b"x" * 40 + ONE.data[80:], "no gzip"),
        (ONE.data + b"junk", "no gzip"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 99, "no zstd"),
        (b"x" * 600, "no number"),
    ):
        with pytest.raises(ImageRefused, match=words):
            await world.unpack(Layer(b"", data, LAYER_TYPE))
        assert world.layers == world.left()["staging"] == []


@pytest.mark.parametrize(("log", "is_taken"), [(27, True), (28, False)])
async def test_zstd_may_take_the_memory_of_its_own_program(
    world: LayerWorld, log: int, is_taken: bool
) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=log, compression_level=1)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    tar = ONE.tar
    layer = Layer(tar, compressor.compress(tar) + compressor.flush(), LAYER_TYPE)
    if is_taken:
        await world.unpack(layer)
        return
    with pytest.raises(ImageRefused, match=r"no zstd: .*memory"):
        await world.unpack(layer)


async def test_the_bounds_are_of_all_layers_together(world: LayerWorld) -> None:
    sizes = [len(each.tar) for each in (ONE, TWO)]
    entries = world.store(most_entries=3)
    with pytest.raises(ImageRefused, match="more than the 1 entries"):
        await world.unpack(ONE, TWO, store=entries)
    most = world.store(most_bytes=sum(sizes) - 1)
    with pytest.raises(ImageRefused, match=r"more than the .* bytes"):
        await world.unpack(ONE, TWO, store=most)
    assert len(world.layers) == 1
    await world.unpack(ONE, TWO)
    for store in (entries, most):  # the layers are there, and still too much for one image
        with pytest.raises(ImageRefused, match="entries"):
            await world.unpack(ONE, TWO, store=store)
    await world.unpack(ONE, TWO, store=world.store(most_bytes=sum(sizes), most_entries=4))


async def test_what_no_image_has_is_removed_and_nothing_that_one_has(world: LayerWorld) -> None:
    await world.unpack(ONE, TWO, number=1)
    await world.unpack(ONE, number=2)
    store = world.store()
    for _ in range(3):
        store.keep_only([image_digest(1), image_digest(2)])
    assert len(world.layers) == 2
    store.keep_only([image_digest(2)])
    assert len(world.layers) == 2, "who has fetched it may not have noted it yet"
    store.keep_only([image_digest(2)])
    assert world.layers == [ONE.diff_id.removeprefix("sha256:")]
    store.keep_only([])
    await world.unpack(ONE, number=2)
    store.keep_only([])
    assert len(world.layers) == 1, "it was fetched after the first call that did not name it"
    store.keep_only([])
    assert world.left() == {"layers": [], "images": [], "staging": [], "locks": []}
    assert await world.unpack(ONE, number=2)


async def test_an_image_that_is_being_fetched_is_not_removed(world: LayerWorld) -> None:
    fetch = _Waiting(world)
    task = asyncio.create_task(fetch.run(world.store(), ONE, TWO))
    await fetch.asked.wait()  # the first layer is there, the second begins
    other = world.store()
    for _ in range(3):
        other.keep_only([])
    assert world.layers == [ONE.diff_id.removeprefix("sha256:")]
    fetch.go.set()
    assert [each.is_dir() for each in await task] == [True, True]


class _Waiting:
    """A fetch whose second blob waits."""

    def __init__(self, world: LayerWorld) -> None:
        self._world = world
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def run(self, store: LayerStore, *layers: Layer) -> list[Path]:
        self._world.blobs.update((digest_of(each.data), each.data) for each in layers)
        asked = [wanted(each) for each in layers]
        return await store.unpack("account", image_digest(1), asked, self._open)

    @asynccontextmanager
    async def _open(self, digest: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._world.open(digest) as parts:
            if len(self._world.opened) == 2:
                self.asked.set()
                await self.go.wait()
            yield parts


async def test_a_layer_that_somebody_looks_at_is_not_removed(world: LayerWorld) -> None:
    await world.unpack(ONE)
    store = world.store()
    store.keep_only([])
    with held(world.folder / "locks" / wanted(ONE).diff_id, shared=True):
        store.keep_only([])
        assert world.left()["images"] == []
        assert len(world.layers) == 1
    store.keep_only([])
    assert world.layers == []


async def test_a_layer_that_became_used_a_moment_ago_is_not_removed(
    world: LayerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.unpack(ONE)
    store = world.store()
    used = iter([set[str](), {wanted(ONE).diff_id}])
    monkeypatch.setattr(store, "_used", lambda: next(used))
    store.keep_only([image_digest(1)])
    assert len(world.layers) == 1
    assert next(used, None) is None


async def test_a_fetch_that_is_given_up_leaves_nothing_that_stays(world: LayerWorld) -> None:
    fetch = _Waiting(world)
    task = asyncio.create_task(fetch.run(world.store(), ONE, TWO))
    await fetch.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store = world.store()
    store.keep_only([])
    store.keep_only([])
    assert world.left() == {"layers": [], "images": [], "staging": [], "locks": []}


async def test_what_a_power_failure_has_left_is_removed_without_its_lock(world: LayerWorld) -> None:
    await world.unpack(ONE)
    staging = world.folder / "staging"
    (staging / ("0" * 64) / "tree").mkdir(parents=True)
    (staging / f"{'1' * 64}.removed").mkdir()
    (staging / f"image-{'2' * 64}.abcd").touch()
    world.store().keep_only([image_digest(1)])
    assert world.left()["staging"] == []
    assert len(world.layers) == 1


async def test_a_blob_that_breaks_off_is_fetched_again(world: LayerWorld) -> None:
    broken = LayerWorld(world.folder)

    @asynccontextmanager
    async def breaks(digest: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async def parts() -> AsyncIterator[bytes]:
            yield ONE.data[:50]
            raise Unavailable("the store is not there")

        yield parts()

    with pytest.raises(Unavailable, match="the store is not there"):
        await broken.store().unpack("account", image_digest(1), [wanted(ONE)], breaks)
    assert world.layers == []
    assert await world.unpack(ONE)
