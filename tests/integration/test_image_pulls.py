"""Images for instances: pulled as a role or the public may, for this machine, and verified."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from cloudcore.compute.images import IMAGES, ImageRefused, ImageUser
from cloudcore.errors import InvalidInput
from cloudcore.identity.rows.accounts import Account
from cloudcore.nodes.node import NODE
from registry.image_roots.images import RegistryImages
from registry.image_roots.layer_store import LayerStore
from registry.oci.digest import Digest
from registry.upstream.base import BlobStream, Remote
from tests.busybox_images import (
    CONFIG_TYPE,
    LAYER_TYPE,
    NATIVE,
    Layer,
    PackedImage,
    busybox_image,
    busybox_layer,
    digest_of,
    entry,
    file,
    folder,
    gzipped,
    index_of,
    pack,
    push_async,
    tar_of,
)
from tests.databases import on_both_databases
from tests.integration.pushing import signed_in
from tests.layer_worlds import FIRST
from tests.manifest_upstream import ManifestUpstream
from tests.memory_store import MemoryStore
from tests.tenants import ALLOW_ALL, HOST, Install, Program, allow, bearer, deny, let, refuse

pytestmark = pytest.mark.anyio

HOSTS: Final = frozenset({HOST, "registry.example:5000"})
LOG_IN: Final = allow("registry:GetAuthorizationToken")
PULL: Final = allow("registry:PullImage")
SMALL: Final = gzipped(tar_of(folder("etc"), file("etc/hello", b"hello")))


@dataclass
class Node:
    """A machine of an install with an account ``acme``, and who pushes to its repositories."""

    install: Install
    images: RegistryImages
    folder: Path
    acme: Account
    pusher: Program

    async def push(self, name: str, tag: str, image: PackedImage) -> str:
        """Push an image, whose repository is made if it is not there; return its digest."""
        token = await self.install.exchange(
            await self.install.login(self.pusher), f"repository:{name}:pull,push"
        )
        async with self.install.connect() as client:
            client.headers.update(bearer(token))
            return await push_async(client, name, tag, image)

    async def role(self, name: str, *statements: Any) -> str:  # noqa: ANN401 - of policies
        """Add a role of acme and return its id."""
        return (await self.role_of(self.acme, name, *statements)).id

    async def role_of(self, account: Account, name: str, *statements: Any) -> Program:  # noqa: ANN401 - as above
        """Add a role that trusts instances."""
        add = self.install.add_role_session
        return await add(account, name, *statements, service="compute")

    async def refusal(self, reference: str, role_id: str | None = None) -> str:
        """Return why an image is refused."""
        with pytest.raises(ImageRefused) as refused:
            await self.images.fetch(self.acme.id, role_id, reference)
        assert str(refused.value).isprintable()
        return str(refused.value)


@pytest.fixture
async def node(install: Install, tmp_path: Path) -> Node:
    store = LayerStore(tmp_path / "layers", FIRST)
    images = RegistryImages(install.ctx, install.tokens, store, HOSTS)
    acme = await install.add_account("acme")
    pusher = await install.add_program(acme, "pusher", ALLOW_ALL)
    return Node(install, images, tmp_path / "layers", acme, pusher)


async def test_the_platform_has_the_images_of_its_own_registry(node: Node) -> None:
    images = await node.install.opening.get(IMAGES)
    public = await node.install.add_repository(node.acme, "public", let("*"))
    await node.push("acme/public", "latest", busybox_image("true"))
    images.check(f"{HOST}/acme/public")
    with pytest.raises(InvalidInput, match=f"one of this registry, {HOST}, and not of other.test"):
        images.check("other.test/acme/public")
    (tree,) = (await images.fetch(node.acme.id, None, f"{HOST}/acme/public")).layers
    assert tree.is_relative_to((await node.install.opening.get(NODE)).folder / "layers")
    assert public
    for _ in range(2):
        await images.keep_only([])
    assert not tree.exists()


@on_both_databases
async def test_an_image_is_pulled_as_a_role_that_may(node: Node) -> None:
    image = busybox_image("echo", "hi", files={"srv/a": b"a"}, User="web", WorkingDir="/srv")
    digest = await node.push("acme/app", "v1", image)
    puller = await node.role("puller", LOG_IN, PULL)
    found = await node.images.fetch(node.acme.id, puller, "app:v1")
    assert found.digest == digest
    assert [(each / "srv/a").exists() for each in found.layers] == [False, True]
    assert (found.layers[0] / "bin/busybox").stat().st_size > 1_000_000
    assert found.config.cmd == ["echo", "hi"]
    assert found.config.env == ["PATH=/bin"]
    assert found.config.working_dir == "/srv"
    assert found.config.user == ImageUser(1000, 1000)
    for name in ("app:v1", "acme/app:v1", f"{HOST}/acme/app:v1", f"app@{digest}"):
        assert await node.images.fetch(node.acme.id, puller, name) == found
    await node.push("acme/app", "v1", busybox_image("other"))
    assert (await node.images.fetch(node.acme.id, puller, f"app:v1@{digest}")) == found
    assert (await node.images.fetch(node.acme.id, puller, "app:v1")) != found


async def test_without_a_role_what_is_public_is_pulled(node: Node) -> None:
    public = await node.install.add_repository(node.acme, "public", let("*"))
    await node.push("acme/public", "latest", busybox_image("true"))
    await node.push("acme/private", "latest", busybox_image("true"))
    assert (await node.images.fetch(node.acme.id, None, "public")).layers
    assert "not allowed to everybody" in await node.refusal("private")
    await node.install.share(public, node.acme, refuse("*"))
    assert "not allowed to everybody" in await node.refusal("public")


async def test_the_rights_are_those_of_any_client_at_each_pull(node: Node) -> None:
    await node.push("acme/app", "v1", busybox_image("true"))
    assert "registry:GetAuthorizationToken" in await node.refusal(
        "app:v1", await node.role("no-login", PULL)
    )
    only_other = allow("registry:PullImage", on="crn:registry:local:*:repository/other")
    assert "is not allowed to the role other" in await node.refusal(
        "app:v1", await node.role("other", LOG_IN, only_other)
    )
    changed = await node.role_of(node.acme, "changed", LOG_IN, PULL)
    assert await node.images.fetch(node.acme.id, changed.id, "app:v1")
    await node.images.check_right(node.acme.id, changed.id, "app:v1")
    await node.install.say(changed, LOG_IN, PULL, deny("registry:PullImage"))
    assert "is not allowed to the role changed" in await node.refusal("app:v1", changed.id)
    with pytest.raises(ImageRefused, match="is not allowed to the role changed"):
        await node.images.check_right(node.acme.id, changed.id, "app:v1")


async def test_a_repository_of_another_account_takes_both_sides(node: Node) -> None:
    other = await node.install.add_account("other")
    theirs = await node.install.add_program(other, "pusher", ALLOW_ALL)
    puller = await node.role("puller", LOG_IN, PULL)
    await replace(node, acme=other, pusher=theirs).push("other/app", "v1", busybox_image("true"))
    assert await node.refusal("other/app:v1", puller) == (
        await node.refusal("other/absent:v1", puller)
    ).replace("absent", "app")
    shared = await node.install.add_repository(other, "shared", let(node.acme.id))
    await replace(node, pusher=theirs).push("other/shared", "v1", busybox_image("true"))
    assert shared
    assert await node.images.fetch(node.acme.id, puller, "other/shared:v1")
    assert "not allowed to everybody" in await node.refusal("other/shared:v1")


async def test_who_cannot_pull_and_what_is_not_there_is_told(node: Node) -> None:
    await node.push("acme/app", "v1", busybox_image("true"))
    role = await node.install.add_role_session(node.acme, "apart", LOG_IN, PULL)
    words = "the trust policy of apart does not allow crn:iam:::service/compute"
    assert words in await node.refusal("app:v1", role.id)
    foreign = await node.role_of(await node.install.add_account("other"), "foreign", ALLOW_ALL)
    for role_id in (foreign.id, "01890000-0000-7000-8000-000000000000"):
        assert "the role of the pool is gone" in await node.refusal("app:v1", role_id)
    puller, absent = await node.role("puller", LOG_IN, PULL), digest_of(b"absent")
    for reference, words in (
        ("app:v2", "acme/app has no image v2"),
        ("absent", "acme/absent has no image latest"),
        (f"app@{absent}", f"has no image {absent}"),
    ):
        assert words in await node.refusal(reference, puller)
    await node.install.suspend_account(node.acme)
    assert "the account is suspended" in await node.refusal("app:v1", puller)


def test_a_reference_to_this_registry_is_taken_and_to_anything_else_refused() -> None:
    images = RegistryImages(None, None, None, HOSTS)  # type: ignore[arg-type] # not asked
    for reference in (
        *("docker.io/library/busybox", "ghcr.io/acme/app:v1", "localhost:5000/acme/app"),
        *(f"{HOST}:81/acme/app", f"{HOST}.evil/acme/app:v1", "", ":v1", "app:", "app@", "App:v1"),
        *("app@sha256:123", "app:v1@sha256:123", "app:-x", "/app", "acme//app", "acme/app/"),
        *("a b", "../app", "app:v1\n", f"{HOST}/", "http://registry.test/acme/app"),
        *("x" * 300, "acme/app?x=y", "app:v 1", f"app:@sha256:{'0' * 64}"),
    ):
        with pytest.raises(InvalidInput) as refused:
            images.check(reference)
        assert refused.value.message.isprintable(), reference
    for reference in (
        *("app", "app:v1", "acme/app", "acme/team/app:v1", f"{HOST}/acme/app"),
        *(f"{HOST}/acme/app:v1", f"ab/b:latest@sha256:{'0' * 64}"),
        f"registry.example:5000/acme/app@sha256:{'0' * 64}",
    ):
        images.check(reference)


async def test_the_image_of_an_index_is_that_of_this_machine(node: Node) -> None:
    ours, other = busybox_image("ours"), pack([SMALL], architecture="s390x")
    index = index_of({"s390x": other, NATIVE: ours})
    await node.push("acme/app", "v1", index)
    await node.push("acme/app", "other", index_of({"s390x": other}))
    await node.push("acme/app", "alone", other)
    await node.push("acme/app", "outer", index_of({NATIVE: index}))
    single = index_of({"s390x": ours})
    document = json.loads(single.manifest)
    del document["manifests"][0]["platform"]
    await node.push("acme/app", "single", replace(single, manifest=json.dumps(document).encode()))
    document["manifests"] *= 2
    await node.push("acme/app", "twice", replace(single, manifest=json.dumps(document).encode()))
    puller = await node.role("puller", LOG_IN, PULL)
    assert f"no image for linux/{NATIVE}" in await node.refusal("app:twice", puller)
    for tag in ("v1", "outer", "single"):
        found = await node.images.fetch(node.acme.id, puller, f"app:{tag}")
        assert found.digest == ours.digest
        assert found.config.cmd == ["ours"]
    assert f"no image for linux/{NATIVE}" in await node.refusal("app:other", puller)
    assert "it is for linux/s390x" in await node.refusal("app:alone", puller)
    deep = index_of({NATIVE: index_of({NATIVE: index})})
    await node.push("acme/app", "deep", deep)
    assert "below more than 2 indexes" in await node.refusal("app:deep", puller)


def _image(configuration: object, *layers: Layer, config_type: str = CONFIG_TYPE) -> PackedImage:
    """Return an image of any configuration."""
    data = configuration if isinstance(configuration, bytes) else json.dumps(configuration).encode()
    packed = pack(list(layers))
    manifest = json.loads(packed.manifest)
    manifest["config"] |= {"digest": digest_of(data), "size": len(data), "mediaType": config_type}
    blobs = {digest_of(each): each for each in (data, *(layer.data for layer in layers))}
    return PackedImage(packed.media_type, json.dumps(manifest).encode(), blobs)


def _said(**changes: object) -> dict[str, object]:
    """Return the configuration of an image of one small layer."""
    fields = {
        "architecture": NATIVE,
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [SMALL.diff_id]},
    }
    return fields | changes


REFUSED: Final = {
    "no json": (_image(b"{", SMALL), "is not that of an image"),
    "no object": (_image([], SMALL), "is not that of an image"),
    "no layers": (_image(_said(rootfs={}), SMALL), "is not that of an image"),
    "deep": (_image(b"[" * 100_000, SMALL), "is not that of an image"),
    "windows": (_image(_said(os="windows"), SMALL), "it is for windows/"),
    "artifact": (_image(_said(), SMALL, config_type="application/x"), "is an artifact"),
    "fewer layers": (_image(_said(rootfs={"diff_ids": []}), SMALL), "different numbers of layers"),
    "none": (_image(_said(rootfs={"diff_ids": []})), "it has 0 layers"),
    **{
        name: (_image(_said(rootfs={"diff_ids": [digest]}), SMALL), words)
        for name, digest, words in (
            ("diff id", "sha256:../../etc", "otherwise than by its sha256"),
            ("another diff id", digest_of(b""), "the image's configuration says"),
        )
    },
    **{
        name: (_image(_said(), replace(SMALL, media_type=kind)), "which cannot be unpacked")
        for name, kind in (
            ("no type of layer", "application/octet-stream"),
            ("encrypted", f"{LAYER_TYPE}+gzip+encrypted"),
        )
    },
    **{
        name: (_image(_said(config=config), SMALL), words)
        for name, config, words in (
            ("long command", {"Cmd": ["x" * 70_000]}, "more than 65536 characters"),
            ("zero", {"Env": ["A=\0"]}, "has a zero byte"),
            ("folder", {"WorkingDir": "srv"}, "no absolute path"),
            ("unknown user", {"User": "web"}, "know no user 'web'"),
            ("unknown group", {"User": "0:web"}, "know no user '0:web'"),
            ("high user", {"User": "65536"}, "the highest is 65535"),
            ("high group", {"User": "0:4294967296"}, "the highest is 65535"),
            ("half a user", {"User": "web:"}, "is to be <user>"),
        )
    },
    "large": (_image(_said(author="x" * (1 << 20)), SMALL), "has more than 1048576 bytes"),
}


async def test_what_is_no_image_to_run_is_refused(node: Node) -> None:
    puller = await node.role("puller", LOG_IN, PULL)
    for tag, (image, words) in REFUSED.items():
        name = tag.replace(" ", "-")
        await node.push("acme/app", name, image)
        assert words in await node.refusal(f"app:{name}", puller), tag
    packed = pack([SMALL])
    document = json.loads(packed.manifest) | {"annotations": {"a": "x" * (1 << 20)}}
    await node.push("acme/app", "long", replace(packed, manifest=json.dumps(document).encode()))
    assert "its manifest has more than 1048576 bytes" in await node.refusal("app:long", puller)


async def test_a_hostile_layer_is_refused_and_nothing_of_it_is_left(node: Node) -> None:
    puller = await node.role("puller", LOG_IN, PULL)
    hostile = {
        "parent": ("leads out of the layer", file("../../evil")),
        "absolute": ("absolute name", file("/tmp/evil")),
        "device": ("is a character device", entry("null", b"3", devmajor=1, devminor=3)),
        "fifo": ("is a fifo", entry("pipe", b"6")),
    }
    for tag, (words, each) in hostile.items():
        image = pack([gzipped(tar_of(file("fine"), each))])
        await node.push("acme/app", tag, image)
        assert words in await node.refusal(f"app:{tag}", puller)
    await node.push("acme/app", "bomb", pack([gzipped(tar_of(file("zeros", bytes(80 << 20))))]))
    assert "200 times" in await node.refusal("app:bomb", puller)
    left = {each.name: list(each.iterdir()) for each in node.folder.iterdir()}
    assert left["layers"] == left["staging"] == []


async def test_users_are_those_of_the_files_that_the_image_shows(node: Node) -> None:
    puller = await node.role("puller", LOG_IN, PULL)
    passwd = b"app:x:7:8::/:\nfew:x\nhigh:x:70000:0::/:\nword:x:one:0::/:\n"
    upper = gzipped(tar_of(file("etc/passwd", passwd), file("etc/group", b"www:x:33:\n")))
    hidden = gzipped(tar_of(file("etc/.wh.passwd")))
    opaque = gzipped(tar_of(file("etc/.wh..wh..opq")))
    linked = gzipped(tar_of(entry("etc/passwd", b"2", linkname="/etc/passwd")))
    folder_linked = gzipped(tar_of(entry("etc", b"2", linkname="/etc")))
    base = busybox_layer()

    async def user(said: str, *layers: Layer) -> ImageUser:
        await node.push("acme/app", "v1", pack([base, *layers], {"User": said}))
        return (await node.images.fetch(node.acme.id, puller, "app:v1")).config.user

    assert await user("") == (0, 0)
    assert await user("web") == (1000, 1000)
    assert await user("1000") == (1000, 1000)
    assert await user("65535") == (65535, 0)
    assert await user("web:root") == (1000, 0)
    assert await user("5:6", linked) == (5, 6)
    assert await user("5", linked) == (5, 0)
    assert await user("app", upper) == (7, 8)
    assert await user("app:www", upper) == (7, 33)
    assert await user("7:www", upper) == (7, 33)
    for said, layer in {
        **dict.fromkeys(["web", "few", "word"], upper),
        "root": hidden,
        "web:web": opaque,
        "root:root": linked,
        "daemon": folder_linked,
    }.items():
        with pytest.raises(ImageRefused, match="know no user"):
            await user(said, layer)
    with pytest.raises(ImageRefused, match="the highest is 65535"):
        await user("high", upper)


async def test_pulls_count_as_those_of_clients_do(node: Node) -> None:
    await node.push("acme/app", "v1", busybox_image("true"))
    puller = await node.role("puller", LOG_IN, PULL)
    await node.install.ctx.pulls.flush()
    await node.images.fetch(node.acme.id, puller, "app:v1")
    await node.install.ctx.pulls.flush()
    control = signed_in(node.install, node.pusher)
    repositories = (await control.get("/v1/repositories")).json()["repositories"]
    path = f"/v1/repositories/{repositories[0]['id']}/images"
    (image,) = (await control.get(path)).json()["images"]
    assert image["last_pulled_at"] is not None


async def test_a_blob_that_the_store_has_lost_is_told(node: Node) -> None:
    await node.push("acme/app", "v1", busybox_image("true"))
    puller = await node.role("puller", LOG_IN, PULL)
    store = node.install.ctx.reader
    assert isinstance(store, MemoryStore)
    store.files.objects.clear()
    assert "are damaged; push them again" in await node.refusal("app:v1", puller)


class _Upstream(ManifestUpstream):
    """An upstream that has the blobs of one image too."""

    def __init__(self, image: PackedImage) -> None:
        super().__init__()
        self._blobs = image.blobs
        for reference in ("v1", image.digest):
            self.manifests["app", reference] = image.manifest

    async def head_blob(self, remote: Remote, digest: Digest) -> int | None:
        return len(self._blobs[digest])

    @asynccontextmanager
    async def open_blob(
        self, remote: Remote, digest: Digest, start: int = 0
    ) -> AsyncIterator[BlobStream]:
        data = self._blobs[digest]

        async def parts() -> AsyncIterator[bytes]:
            for at in range(start, len(data), 64 * 1024):
                yield data[at : at + 64 * 1024]

        yield BlobStream(start, len(data), parts())


async def test_an_image_of_the_pull_through_cache_is_brought_from_its_upstream(node: Node) -> None:
    image = busybox_image("true", files={"srv/a": b"a"})
    ctx = replace(node.install.ctx, upstream=_Upstream(image))
    client = signed_in(node.install, node.pusher)
    rule = {"prefix": "quay", "upstream_url": "https://quay.io"}
    made = await client.post("/v1/pull-through-cache-rules", json=rule)
    assert made.status_code == 201, made.text
    images = replace(node.images, ctx=ctx)
    puller = await node.role("puller", LOG_IN, PULL)
    found = await images.fetch(node.acme.id, puller, "acme/quay/app:v1")
    assert found.digest == image.digest
    assert (found.layers[0] / "bin/busybox").stat().st_size > 1_000_000
    assert (found.layers[1] / "srv/a").read_bytes() == b"a"
    with pytest.raises(ImageRefused, match="acme/quay/app has no image v2"):
        await images.fetch(node.acme.id, puller, "acme/quay/app:v2")
    await ctx.fills.aclose()
