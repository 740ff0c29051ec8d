"""The images that instances are made of, as they lie on this machine, and who gets them there.

Layers are unpacked once, and shared by all instances. So nobody writes into one: an instance has a
writable layer of its own above them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from cloudcore.ports import Port

IDS: Final = 65_536
"""How many user ids and group ids an image may use, from 0."""
MOST_LAYERS: Final = 127


class ImageRefused(Exception):
    """An image is not run; the message says why in one line. Trying again changes nothing."""


class ImageUser(NamedTuple):
    """Who runs the program of an image, by the ids inside it, below `IDS`."""

    uid: int
    gid: int


class ImageConfig(NamedTuple):
    """How an image wants to be run (image-spec, "Image Configuration")."""

    entrypoint: Sequence[str]
    cmd: Sequence[str]
    """Arguments of the entrypoint; a command itself without one."""
    env: Sequence[str]
    """Each ``NAME=value``."""
    working_dir: str
    """An absolute path, which need not be there."""
    user: ImageUser
    """Names are looked up in the image's own ``etc/passwd`` and ``etc/group``."""


class ImageRoot(NamedTuple):
    """An image on this machine, ready to be run."""

    digest: str
    """Of the image for this machine's platform, not of an index that names it."""
    layers: Sequence[Path]
    """Folders, the lowest first: 1 to `MOST_LAYERS`, each as overlayfs takes a lower one.

    A deleted name is a character device 0:0. A folder that hides what lies below it has the
    extended attribute ``trusted.overlay.opaque`` if this process is root, ``user.overlay.opaque``
    if not (mount option ``userxattr``), each ``y``. If this process is root, user id `n` inside is
    the first id for instances plus `n` here, and the same of groups; else all is this user's.
    """
    config: ImageConfig


class Images(Protocol):
    """Gets images that accounts keep in this install, and keeps what is in use on this machine."""

    def check(self, reference: str) -> None:
        """Check the form of a reference, and that it names this install; nothing is asked.

        It is ``<name>``, of the account itself, or ``<account>/<name>``, with or without the host
        before it under which clients get images here, and a tag (``latest`` without one) or digest.

        Raises:
            InvalidInput: it is not.

        """
        ...

    async def fetch(self, account_id: str, role_id: str | None, reference: str) -> ImageRoot:
        """Return an image with all its layers on this machine, as a role of the account may get it.

        Without a role, as an unauthenticated client may. What is unpacked already is not read
        again; the rights of the role are asked each time. To run again what ran before, append the
        digest to the reference: ``<name>:<tag>@<digest>``.

        Raises:
            ImageRefused: there is no such image, the role may not have it, it is not for this
                machine, or its contents are refused.
            Unavailable: what keeps images, or the machine's disk, cannot do it now.

        """
        ...

    async def check_right(self, account_id: str, role_id: str | None, reference: str) -> None:
        """Return if a role of the account, or nobody, may still get an image; nothing is read.

        Whether the image is still there is another question.

        Raises:
            ImageRefused: the account or the role is gone or suspended, or may not.

        """
        ...

    async def keep_only(self, digests: Iterable[str]) -> None:
        """Remove the layers that none of these images has, and what a killed fetch has left.

        An image that is being fetched stays. What was fetched stays for one more call after the
        first that does not name it, so that who has just fetched it can note it.
        """
        ...


IMAGES: Final[Port[Images]] = Port("compute.images")
