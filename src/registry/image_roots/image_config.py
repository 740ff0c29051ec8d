"""Read what an image states about itself: platform, layers, and how to run it.

Clients have written all of that, so only its form is checked here: layers are verified when they
are unpacked, and user names are looked up in the image without following links.
"""

from __future__ import annotations

import os
import platform
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from cloudcore.compute.images import IDS, MOST_LAYERS, ImageConfig, ImageRefused, ImageUser
from registry.image_roots.layer_store import WantedLayer
from registry.oci.image_contents import ContentDescriptor, parse_contents
from registry.oci.manifest import Manifest
from registry.oci.media_types import is_foreign_layer

MACHINE: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}.get(
    platform.machine(), platform.machine()
)
"""This machine's architecture, by its name in images."""
CONFIG_TYPES: Final = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
_LAYER: Final = re.compile(
    r"application/vnd\.(oci\.image\.layer\.v1\.tar(\+gzip|\+zstd)?"
    r"|docker\.image\.rootfs\.diff\.tar(\.gzip|\.zstd)?)"
)
_DIFF_ID: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_TEXT: Final = 64 * 1024
"""Maximum characters of command and environment together: a program must be able to start."""
_MOST_PASSWD: Final = 1 << 20


class _Run(msgspec.Struct, rename="pascal"):
    user: str | None = None
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    env: list[str] | None = None
    working_dir: str | None = None


class _RootFs(msgspec.Struct):
    diff_ids: list[str]


class _Configuration(msgspec.Struct):
    architecture: str
    os: str
    rootfs: _RootFs
    config: _Run | None = None


class ReadImage(NamedTuple):
    """The data of an image that instances need."""

    layers: Sequence[WantedLayer]
    """The lowest layer first."""
    config: ImageConfig
    """With user 0, which the caller replaces with the ids of `user`."""
    user: str
    """Such as ``web:www``; empty for user 0."""


def choose_platform(index: bytes) -> str:
    """Return the digest, from an index, of the image for this machine.

    Raise `ImageRefused` if the index has no such image.
    """
    contents = parse_contents(index)
    children: Sequence[ContentDescriptor] = (contents and contents.manifests) or ()
    for each in children:
        named = each.platform and (each.platform.os, each.platform.architecture)
        if named == ("linux", MACHINE) and not each.is_attestation:
            return each.digest
    if len(children) == 1 and children[0].platform is None:
        return children[0].digest
    raise ImageRefused(f"the index has no image for linux/{MACHINE}")


def read_image(manifest: Manifest, configuration: bytes) -> ReadImage:
    """Read a manifest and its configuration.

    Raise `ImageRefused` if this machine cannot run the image, or it exceeds a limit.
    """
    try:
        read = msgspec.json.decode(configuration, type=_Configuration)
    except (ValueError, RecursionError):
        raise ImageRefused("its configuration is not that of an image") from None
    if (read.os, read.architecture) != ("linux", MACHINE):
        named = ascii(f"{read.os}/{read.architecture}"[:60])[1:-1]
        raise ImageRefused(f"it is for {named}, and this machine for linux/{MACHINE}")
    if len(manifest.layers) != len(read.rootfs.diff_ids):
        raise ImageRefused("its manifest and its configuration have different numbers of layers")
    if not 0 < len(manifest.layers) <= MOST_LAYERS:
        raise ImageRefused(f"it has {len(manifest.layers)} layers; 1 to {MOST_LAYERS} can be run")
    layers = []
    for layer, diff_id in zip(manifest.layers, read.rootfs.diff_ids, strict=True):
        if is_foreign_layer(layer.media_type) or not _LAYER.fullmatch(layer.media_type):
            named = ascii(layer.media_type[:80])[1:-1]
            raise ImageRefused(f"it has a layer of type {named}, which cannot be unpacked")
        if not _DIFF_ID.fullmatch(diff_id):
            raise ImageRefused("its configuration names a layer otherwise than by its sha256")
        layers.append(WantedLayer(diff_id.removeprefix("sha256:"), layer.digest))
    run = read.config or _Run()
    config = ImageConfig(
        entrypoint=run.entrypoint or (),
        cmd=run.cmd or (),
        env=[each for each in run.env or () if "=" in each[1:]],
        working_dir=run.working_dir or "/",
        user=ImageUser(0, 0),
    )
    _check_texts(config)
    return ReadImage(layers, config, run.user or "")


def _check_texts(config: ImageConfig) -> None:
    texts = [*config.entrypoint, *config.cmd, *config.env, config.working_dir]
    if sum(map(len, texts)) > _MOST_TEXT:
        raise ImageRefused(f"its command and environment have more than {_MOST_TEXT} characters")
    if any("\0" in each for each in texts):
        raise ImageRefused("its command or environment has a zero byte")
    if not config.working_dir.startswith("/"):
        raise ImageRefused("its working directory is no absolute path")


def find_user(user: str, layers: Sequence[Path]) -> ImageUser:
    """Return the ids of ``user[:group]``, each a name or a number, from the image's files.

    This blocks while it reads the files.

    Raise `ImageRefused` if the image has no such name, or a number is too high.
    """
    name, colon, group = user.partition(":")
    if colon and not (name and group):
        raise ImageRefused("its user is to be <user> or <user>:<group>")
    uid, gid = _number(name or "0"), _number(group or "0")
    if uid is None or not group:
        accounts = _table(layers, "passwd")
        if uid is None:
            found = accounts.get(name)
        else:
            found = next((each for each in accounts.values() if each[2] == str(uid)), None)
        if found is not None and len(found) > 3:
            uid, own = _number(found[2]), _number(found[3])
            gid = gid if group else own
    if gid is None:
        of_group = _table(layers, "group").get(group)
        gid = _number(of_group[2]) if of_group is not None and len(of_group) > 2 else None
    if uid is None or gid is None:
        raise ImageRefused(f"its files know no user {user[:80]!a}")
    return ImageUser(uid, gid)


def _number(text: str) -> int | None:
    """Parse a numeric id; return None for a name. Raise `ImageRefused` if it is too high."""
    if not text.isascii() or not text.isdigit():
        return None
    if len(text) > 10 or int(text) >= IDS:
        raise ImageRefused(f"its user or group is {text[:20]}; the highest is {IDS - 1}")
    return int(text)


def _table(layers: Sequence[Path], name: str) -> Mapping[str, Sequence[str]]:
    """Map the first field of each line of ``etc/passwd`` or ``etc/group`` to all fields."""
    lines = _read(layers, name).decode("utf-8", "replace").splitlines()
    rows = [line.split(":") for line in lines]
    return {row[0]: row for row in reversed(rows)}


def _read(layers: Sequence[Path], name: str) -> bytes:
    """Return a file in ``etc`` of the merged layers; b"" if absent or not a regular file."""
    for layer in reversed(layers):
        try:
            folder = os.open(layer / "etc", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        except OSError:
            return b""  # hidden, or a link
        try:
            return _read_file(folder, name)
        except FileNotFoundError:
            if any(each.endswith(".overlay.opaque") for each in os.listxattr(folder)):
                return b""  # lower layers are hidden
        finally:
            os.close(folder)
    return b""


def _read_file(folder: int, name: str) -> bytes:
    if not stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode):
        return b""
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(opened, "rb") as file:
        return file.read(_MOST_PASSWD)
