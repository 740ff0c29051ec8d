"""Images made on the spot: no network, no base image, every byte known to the test."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import random
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Descriptor = dict[str, Any]
Files = Mapping[str, bytes]

EMPTY_JSON = "application/vnd.oci.empty.v1+json"
MIB = 1 << 20
NATIVE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass(frozen=True)
class MediaTypes:
    """The names one family of image formats gives its parts."""

    manifest: str
    index: str
    config: str
    layer: str


OCI = MediaTypes(
    manifest="application/vnd.oci.image.manifest.v1+json",
    index="application/vnd.oci.image.index.v1+json",
    config="application/vnd.oci.image.config.v1+json",
    layer="application/vnd.oci.image.layer.v1.tar+gzip",
)
DOCKER = MediaTypes(
    manifest="application/vnd.docker.distribution.manifest.v2+json",
    index="application/vnd.docker.distribution.manifest.list.v2+json",
    config="application/vnd.docker.container.image.v1+json",
    layer="application/vnd.docker.image.rootfs.diff.tar.gzip",
)


def noise(size: int, seed: object) -> bytes:
    """Return `size` bytes that no client can compress, the same for the same `seed`."""
    source = random.Random(repr(seed))
    whole, rest = divmod(size, MIB)
    return b"".join([*(source.randbytes(MIB) for _ in range(whole)), source.randbytes(rest)])


def sha256(content: bytes) -> str:
    """Return the digest of `content` as a registry writes it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass(frozen=True)
class Image:
    """A manifest or index, with everything it names at hand in the `store` it was made in."""

    store: Store
    descriptor: Descriptor

    @property
    def digest(self) -> str:
        """Return the digest of the manifest or index itself."""
        digest: str = self.descriptor["digest"]
        return digest

    @property
    def document(self) -> dict[str, Any]:
        """Return the manifest or index, parsed."""
        document: dict[str, Any] = json.loads(self.store.read(self.digest))
        return document

    @property
    def children(self) -> list[Image]:
        """Return the images an index lists; none for a manifest."""
        return [Image(self.store, child) for child in self.document.get("manifests", ())]

    @property
    def blobs(self) -> list[str]:
        """Return the digests of the config and the layers of a manifest, in this order."""
        document = self.document
        parts = [document["config"], *document["layers"]] if "layers" in document else []
        return [part["digest"] for part in parts]

    def walk(self) -> Iterator[Image]:
        """Yield every manifest below this one, children before the index that lists them."""
        for child in self.children:
            yield from child.walk()
        yield self


class Store:
    """A folder of content under its digests, laid out as the blobs of an OCI image layout."""

    def __init__(self, folder: Path) -> None:
        self.blobs = folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Return the file that holds `digest`."""
        return self.blobs / digest.removeprefix("sha256:")

    def read(self, digest: str) -> bytes:
        """Return the bytes of `digest`."""
        return self.path(digest).read_bytes()

    def add(self, media_type: str, content: bytes, **extra: object) -> Descriptor:
        """Keep `content` and return its descriptor."""
        digest = sha256(content)
        self.path(digest).write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content), **extra}

    def image(
        self,
        layers: Sequence[Files],
        *,
        types: MediaTypes = OCI,
        architecture: str = NATIVE,
        labels: Mapping[str, str] | None = None,
    ) -> Image:
        """Make an image of one platform; each layer is given as its files."""
        tars = [layer_tar(files) for files in layers]
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {"Cmd": ["/hello"], "Labels": dict(labels or {})},
            "rootfs": {"type": "layers", "diff_ids": [sha256(tar) for tar in tars]},
            "history": [{"created": "2020-01-01T00:00:00Z", "created_by": "test"} for _ in tars],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": types.manifest,
            "config": self.add(types.config, as_json(config)),
            "layers": [self.add(types.layer, compressed(tar)) for tar in tars],
        }
        platform_ = {"architecture": architecture, "os": "linux"}
        return Image(self, self.add(types.manifest, as_json(manifest), platform=platform_))

    def index(self, images: Sequence[Image], *, types: MediaTypes = OCI) -> Image:
        """Make a multi-platform image of `images`."""
        manifests = [image.descriptor for image in images]
        document = {"schemaVersion": 2, "mediaType": types.index, "manifests": manifests}
        return Image(self, self.add(types.index, as_json(document)))

    def artifact(
        self, layers: Sequence[bytes], *, artifact_type: str, subject: Image | None = None
    ) -> Image:
        """Make an artifact: layers of any bytes, the empty config, maybe a `subject`."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": OCI.manifest,
            "artifactType": artifact_type,
            "config": self.add(EMPTY_JSON, b"{}"),
            "layers": [self.add("application/octet-stream", layer) for layer in layers],
        }
        if subject is not None:
            manifest["subject"] = subject.descriptor
        return Image(self, self.add(OCI.manifest, as_json(manifest)))


def as_json(document: object) -> bytes:
    """Return `document` with an indent, so that a client that writes it anew changes its digest."""
    return json.dumps(document, indent=3).encode()


def layer_tar(files: Files) -> bytes:
    """Return a tar of `files`, the same bytes for the same files."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def compressed(tar: bytes) -> bytes:
    """Return `tar` as gzip; stored, not squeezed: only the framing matters to a client."""
    return gzip.compress(tar, compresslevel=0, mtime=0)
