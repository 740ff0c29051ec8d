"""The forms in which clients take and give images as files, written and read back."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

from tests.clients.images import Image, sha256

FileDigests = dict[str, str]


def write_layout(image: Image, folder: Path, name: str = "latest") -> None:
    """Write `image` as an OCI image layout in which it is called `name`."""
    shutil.copytree(image.store.blobs, folder / "blobs" / "sha256", copy_function=os.link)
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    named = {**image.descriptor, "annotations": {"org.opencontainers.image.ref.name": name}}
    index = {"schemaVersion": 2, "manifests": [named]}
    (folder / "index.json").write_text(json.dumps(index))


def write_layout_archive(image: Image, archive: Path, name: str) -> None:
    """Write `image` as a tar of an OCI image layout, as ``ctr images import`` reads it."""
    folder = archive.with_suffix(".layout")
    write_layout(image, folder, name)
    with tarfile.open(archive, "w") as tar:
        tar.add(folder, arcname=".")
    shutil.rmtree(folder)


def write_dir(image: Image, folder: Path) -> None:
    """Write `image` as the containers tools' ``dir:``, the one form that keeps any manifest."""
    folder.mkdir()
    (folder / "version").write_text("Directory Transport Version: 1.1\n")
    for member in image.walk():
        own = "manifest.json" if member == image else f"{hex_of(member.digest)}.manifest.json"
        os.link(image.store.path(member.digest), folder / own)
        for digest in set(member.blobs):
            target = folder / hex_of(digest)
            if not target.exists():
                os.link(image.store.path(digest), target)


def write_docker_archive(image: Image, archive: Path, name: str) -> None:
    """Write `image` as ``docker save`` would, under `name`, its layers uncompressed."""
    config, *layers = image.blobs
    entry: dict[str, Any] = {"Config": f"{hex_of(config)}.json", "RepoTags": [name], "Layers": []}
    with tarfile.open(archive, "w") as tar:
        add(tar, entry["Config"], image.store.read(config))
        for layer in layers:
            entry["Layers"].append(f"{hex_of(layer)}/layer.tar")
            add(tar, entry["Layers"][-1], uncompressed(image.store.read(layer)))
        add(tar, "manifest.json", json.dumps([entry]).encode())


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file of `content` to `tar`."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def hex_of(digest: str) -> str:
    """Return the digest without its algorithm."""
    return digest.partition(":")[2]


def uncompressed(layer: bytes) -> bytes:
    """Return the tar in `layer`."""
    return gzip.decompress(layer) if layer[:2] == b"\x1f\x8b" else layer


def files_in_layer(layer: bytes) -> FileDigests:
    """Return path and content digest of every file in a layer."""
    found: FileDigests = {}
    with tarfile.open(fileobj=io.BytesIO(uncompressed(layer))) as tar:
        for entry in tar:
            content = tar.extractfile(entry)
            if content is not None:
                digest = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
                found[entry.name.removeprefix("./")] = f"sha256:{digest}"
    return found


def files_in_image(image: Image) -> FileDigests:
    """Return path and content digest of every file in the layers of `image`."""
    found: FileDigests = {}
    for layer in image.blobs[1:]:
        found |= files_in_layer(image.store.read(layer))
    return found


def files_in_archive(archive: Path) -> FileDigests:
    """Return path and content digest of every file in the one image of a docker-archive."""
    found: FileDigests = {}
    with tarfile.open(archive) as tar:

        def member(name: str) -> bytes:
            content = tar.extractfile(name)
            assert content is not None, name
            return content.read()

        (entry,) = json.loads(member("manifest.json"))
        for layer in entry["Layers"]:
            found |= files_in_layer(member(layer))
    return found


def blobs_in_dir(folder: Path) -> FileDigests:
    """Return name and content digest of every file of a ``dir:`` image or a folder of blobs."""
    return {
        path.name: sha256(path.read_bytes()) for path in folder.iterdir() if path.name != "version"
    }
