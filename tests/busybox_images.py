"""Images to run, packed on the spot: Debian's static busybox and what a test adds to it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx

from registry.oci.media_types import OCI_INDEX, OCI_MANIFEST
from tests.tools import missing

BUSYBOX: Final = Path("/usr/bin/busybox")
"""Of Debian's busybox-static."""
CONFIG_TYPE: Final = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar"
NATIVE: Final = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "unknown")
_APPLETS: Final = (
    *("sh", "cat", "echo", "env", "grep", "head", "hostname", "httpd", "id", "ip", "kill", "ln"),
    *("ls", "mkdir", "mknod", "mount", "nc", "nslookup", "ping", "ps", "rm", "sed", "seq"),
    *("setsid", "sleep", "stat", "su", "tail", "test", "touch", "true", "wc", "wget", "yes"),
)
_PASSWD: Final = "root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1000::/srv:/bin/sh\n"


def digest_of(data: bytes) -> str:
    """Return the digest of bytes as a registry writes it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True)
class PackedImage:
    """A manifest or index, and all that it names, by digest."""

    media_type: str
    manifest: bytes
    blobs: Mapping[str, bytes]
    children: Sequence[PackedImage] = ()

    @property
    def digest(self) -> str:
        """Return the digest of the manifest or index."""
        return digest_of(self.manifest)


@dataclass(frozen=True)
class Layer:
    """A layer as it is pushed, and the tar that it is to be."""

    tar: bytes
    data: bytes
    media_type: str

    @property
    def diff_id(self) -> str:
        """Return the digest of the tar."""
        return digest_of(self.tar)


def plain(tar: bytes) -> Layer:
    """Return a layer that is not compressed."""
    return Layer(tar, tar, LAYER_TYPE)


def gzipped(tar: bytes) -> Layer:
    """Return a layer compressed by gzip."""
    return Layer(tar, gzip.compress(tar, compresslevel=1, mtime=0), f"{LAYER_TYPE}+gzip")


def tar_of(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return a tar of entries in this order."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for each in entries:
            entry, data = each if isinstance(each, tuple) else (each, b"")
            tar.addfile(entry, io.BytesIO(data))
    return target.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, **fields: Any) -> Any:  # noqa: ANN401 - its fields
    """Return an entry of a tar; `fields` are those of `tarfile.TarInfo`."""
    made = tarfile.TarInfo(name)
    made.type, made.mode = kind, mode
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def file(name: str, data: bytes = b"", mode: int = 0o644, **fields: Any) -> tuple[Any, bytes]:  # noqa: ANN401 - as above
    """Return a regular file with its bytes."""
    return entry(name, mode=mode, size=len(data), **fields), data


def folder(name: str, mode: int = 0o755, **fields: Any) -> Any:  # noqa: ANN401 - as above
    """Return a folder."""
    return entry(name, tarfile.DIRTYPE, mode, **fields)


def pack(
    layers: Sequence[Layer],
    config: Mapping[str, object] | None = None,
    *,
    architecture: str = NATIVE,
    diff_ids: Sequence[str] | None = None,
) -> PackedImage:
    """Return an image of layers, the lowest first; `config` is how it is run (``Cmd``, ``Env``)."""
    document = {
        "architecture": architecture,
        "os": "linux",
        "config": dict(config or {}),
        "rootfs": {"type": "layers", "diff_ids": diff_ids or [each.diff_id for each in layers]},
    }
    data = json.dumps(document).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": _descriptor(CONFIG_TYPE, data),
        "layers": [_descriptor(each.media_type, each.data) for each in layers],
    }
    blobs = {digest_of(each): each for each in (data, *(layer.data for layer in layers))}
    return PackedImage(OCI_MANIFEST, json.dumps(manifest).encode(), blobs)


def index_of(images: Mapping[str, PackedImage]) -> PackedImage:
    """Return an index of images by their architecture."""
    manifests = [
        {
            **_descriptor(image.media_type, image.manifest),
            "platform": {"architecture": architecture, "os": "linux"},
        }
        for architecture, image in images.items()
    ]
    document = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests}
    return PackedImage(OCI_INDEX, json.dumps(document).encode(), {}, tuple(images.values()))


@cache
def busybox_layer() -> Layer:
    """Return a layer with busybox, its applets in ``/bin``, and users ``root`` and ``web``.

    The same bytes each time, so that images which add to it share it.
    """
    if not BUSYBOX.exists():
        missing("busybox-static is not installed")
    applets = [
        entry(f"bin/{name}", tarfile.SYMTYPE, 0o777, linkname="busybox") for name in _APPLETS
    ]
    folders = [folder(name) for name in ("bin", "dev", "etc", "proc", "root", "srv", "sys")]
    return gzipped(
        tar_of(
            *folders,
            folder("tmp", 0o1777),
            file("bin/busybox", BUSYBOX.read_bytes(), 0o755),
            *applets,
            file("etc/passwd", _PASSWD.encode()),
            file("etc/group", b"root:x:0:\nweb:x:1000:\n"),
        )
    )


def busybox_image(
    *command: str, files: Mapping[str, bytes] | None = None, **config: object
) -> PackedImage:
    """Return an image that runs `command`, such as ``("sh", "-c", "…")``.

    `files` are added in a layer above busybox, by path; `config` is the rest of how it is run:
    ``Env``, ``User``, ``WorkingDir``, ``Entrypoint``.
    """
    layers = [busybox_layer()]
    if files:
        layers.append(gzipped(tar_of(*(file(path, data) for path, data in files.items()))))
    ways = {"Cmd": list(command), "Env": ["PATH=/bin"], **config}
    return pack(layers, ways)


def push(client: httpx.Client, name: str, tag: str, image: PackedImage) -> str:
    """Push an image with a client that may, and return its digest.

    `name` is ``<account>/<repository>``; the client's base URL is the registry's.
    """
    for method, path, body, headers in _requests(name, tag, image):
        answer = client.request(method, path, content=body, headers=headers)
        assert answer.status_code == 201, answer.text
    return image.digest


async def push_async(client: httpx.AsyncClient, name: str, tag: str, image: PackedImage) -> str:
    """Push an image as `push` does."""
    for method, path, body, headers in _requests(name, tag, image):
        answer = await client.request(method, path, content=body, headers=headers)
        assert answer.status_code == 201, answer.text
    return image.digest


def push_as(url: str, login: tuple[str, str], name: str, tag: str, image: PackedImage) -> str:
    """Push an image to a running registry with a container login; return its digest."""
    scope = {"scope": f"repository:{name}:pull,push"}
    with httpx.Client(base_url=url, timeout=60) as client:
        answer = client.get("/v2/token", params=scope, auth=login)
        answer.raise_for_status()
        client.headers["authorization"] = f"Bearer {answer.json()['token']}"
        return push(client, name, tag, image)


def write_layout(at: Path, image: PackedImage, tag: str = "latest") -> None:
    """Write an image as an OCI image layout: ``skopeo copy oci:<at>:<tag> …``."""
    blobs = at / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for each in (image, *image.children):
        for data in (each.manifest, *each.blobs.values()):
            (blobs / digest_of(data).removeprefix("sha256:")).write_bytes(data)
    (at / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    named = {"org.opencontainers.image.ref.name": tag}
    top = {**_descriptor(image.media_type, image.manifest), "annotations": named}
    (at / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))


def _requests(
    name: str, tag: str, image: PackedImage
) -> list[tuple[str, str, bytes, dict[str, str]]]:
    requests = []
    for child in image.children:
        requests += _requests(name, child.digest, child)
    for digest, data in image.blobs.items():
        upload = f"/v2/{name}/blobs/uploads/?digest={digest}"
        requests.append(("POST", upload, data, {"content-type": "application/octet-stream"}))
    manifest = f"/v2/{name}/manifests/{tag}"
    requests.append(("PUT", manifest, image.manifest, {"content-type": image.media_type}))
    return requests


def _descriptor(media_type: str, data: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}
