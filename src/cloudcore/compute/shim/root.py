"""The root of an instance: its image's shared layers below a size-limited layer of its own."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.compute.shim.namespaces import LIBC
from cloudcore.nodes.shim import run

IMAGE_FILE: Final = "disk.img"
_BYTES_AN_INODE: Final = 16_384
_MS_NOSUID, _MS_NODEV = 2, 4


class Root(NamedTuple):
    """The layers of an instance's root, its mount point, and its limits."""

    layers: list[str]
    """The folders of the image's layers, the lowest first."""
    at: str
    """The mount point: a folder that the root hides in the shim's mount namespace."""
    disk_bytes: int
    owner: int | None
    """User and group id of the root folder. None without root: then written files are in memory,
    since no other disk can be limited, and count as the instance's memory."""
    hosts: str
    """Text of `/etc/hosts`, which programs may change."""


def mount_root(root: Root) -> None:
    """Mount a root; it is unmounted when this process's mount namespace ends."""
    for folder in ("lower", "disk"):
        Path(folder).mkdir(exist_ok=True)
    for number, layer in enumerate(root.layers):
        Path("lower", str(number)).symlink_to(layer)  # short names: options must fit in a page
    if root.owner is None:
        inodes = root.disk_bytes // _BYTES_AN_INODE
        bounds = f"size={root.disk_bytes},nr_inodes={inodes},mode=700"
        run("mount", "-t", "tmpfs", "-o", bounds, "tmpfs", "disk")
    else:
        _mount_image_file(root.disk_bytes)
    owner = -1 if root.owner is None else root.owner
    for folder in ("work", "upper", "upper/etc"):
        Path("disk", folder).mkdir(mode=0o755)
        os.chown(Path("disk", folder), owner, owner)
    hosts = Path("disk/upper/etc/hosts")
    hosts.write_text(root.hosts, "utf-8")
    os.chown(hosts, owner, owner)
    options = [
        "lowerdir=" + ":".join(map(str, reversed(range(len(root.layers))))),
        "upperdir=../disk/upper,workdir=../disk/work",
        "volatile",  # it ends with the instance: no need to sync to the machine's disk
        *(["userxattr"] if root.owner is None else []),
    ]
    os.chdir("lower")
    try:
        # By mount(2): mount(8) passes single options, each of which may have 255 bytes at most.
        arguments = (b"overlay", root.at.encode(), b"overlay", _MS_NOSUID | _MS_NODEV)
        if LIBC.mount(*arguments, ",".join(options).encode()) != 0:
            raise OSError(ctypes.get_errno(), f"overlay: {os.strerror(ctypes.get_errno())}")
    finally:
        os.chdir("..")


def _mount_image_file(size: int) -> None:
    """Mount a file system in an image file, whose bytes are reserved on the machine's disk."""
    with Path(IMAGE_FILE).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    run(
        *("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-i", str(_BYTES_AN_INODE)),
        *("-E", "nodiscard,lazy_itable_init=1", IMAGE_FILE),
    )
    run("mount", "-o", "loop,nodev,nosuid,noatime,nodiscard,noinit_itable", IMAGE_FILE, "disk")
