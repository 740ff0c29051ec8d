"""The interface of the image store of a machine: fetch images, check rights, remove unused layers.

Layers are unpacked once and shared by all instances. They are read-only: each instance has its own
writable layer above them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from cloudcore.ports import Port

IDS: Final = 65_536
"""The number of user ids and group ids that an image may use, from 0."""
MOST_LAYERS: Final = 127


class ImageRefused(Exception):
    """An image cannot be run; the message gives the reason in one line. Retrying does not help."""


class ImageUser(NamedTuple):
    """The user and group ids, below `IDS`, that an image's program has inside the instance."""

    uid: int
    gid: int


class ImageConfig(NamedTuple):
    """The configuration of an image (image-spec, "Image Configuration")."""

    entrypoint: Sequence[str]
    cmd: Sequence[str]
    """Arguments of the entrypoint; without an entrypoint, the command itself."""
    env: Sequence[str]
    """Each ``NAME=value``."""
    working_dir: str
    """An absolute path, which need not exist."""
    user: ImageUser
    """Names are looked up in the image's own ``etc/passwd`` and ``etc/group``."""


class ImageRoot(NamedTuple):
    """An unpacked image on this machine."""

    digest: str
    """The digest of the image for this machine's platform, not of an index."""
    layers: Sequence[Path]
    """Folders, the lowest first: 1 to `MOST_LAYERS`, each in the form of a lower layer of
    overlayfs. A deleted name is a character device 0:0. A folder that hides the same folder in
    lower layers has the extended attribute ``trusted.overlay.opaque`` if this process is root, else
    ``user.overlay.opaque`` (mount option ``userxattr``), with the value ``y``. If this process is
    root, user id `n` inside is the first id for instances plus `n` on this machine, and group ids
    likewise; else all files belong to this process's user."""
    config: ImageConfig


class Images(Protocol):
    """Fetches images of accounts of this install, and caches those in use on this machine."""

    def check(self, reference: str) -> None:
        """Check the syntax of a reference, and that it names this install; look nothing up.

        A reference is ``<name>``, of the account itself, or ``<account>/<name>``, with or without
        the host by which clients reach this install, and a tag (``latest`` without one) or digest.

        Raise `InvalidInput` if the reference is malformed, or names another install.
        """

    async def fetch(self, account_id: str, role_id: str | None, reference: str) -> ImageRoot:
        """Fetch an image with all its layers to this machine, with the rights of an account's role.

        Without a role, the rights are those of an unauthenticated client. Layers that are already
        unpacked are not read again; the rights are checked each time. To get the same image again
        later, append the digest to the reference: ``<name>:<tag>@<digest>``.

        Raise `ImageRefused` if there is no such image, the role may not fetch it, it is for another
        platform, or its contents are refused; `Unavailable` if the image store or the machine's
        disk is temporarily unavailable.
        """

    async def check_right(self, account_id: str, role_id: str | None, reference: str) -> None:
        """Check that a role of the account, or an unauthenticated client, may still fetch an image.

        Whether the image still exists is not checked.

        Raise `ImageRefused` if the account or the role is gone or suspended, or may not fetch the
        image.
        """

    async def keep_only(self, digests: Iterable[str]) -> None:
        """Remove the layers of all images but these, and the leftovers of killed fetches.

        An image that is being fetched stays. A fetched image survives the first call without its
        digest, so that the caller of `fetch` has time to store the digest.
        """


IMAGES: Final[Port[Images]] = Port("compute.images")
