"""What runs database servers on a machine, as the rest of the family uses it.

A server outlives the service. Its data are a customer's: it has neither credentials nor a network,
and reaches only its own files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from cloudcore.databases.archive.driver import Recovery

SUPERUSER: Final = "entrepot"
"""The role of the platform in each server; it connects by the Unix socket alone."""
OWNER: Final = "admin"
"""The role of a cluster's owner, which connects by TLS: no superuser, and may not create roles."""
DATABASE: Final = "main"
"""The database that belongs to `OWNER`."""
DATA_INSIDE: Final = "/data"
"""The path of the data folder, as the server sees it."""
SPOOL_INSIDE: Final = "/spool"
Proof = Literal["checksums", "rows"]
"""How it was shown that data are whole: by each page's checksum, or by reading each row."""


class ServerFailed(Exception):
    """A server could not be made, started or changed; the message says why, from its own log."""


class ServerBusy(ServerFailed):
    """Another process of this machine works on the server."""


class ServerSpec(NamedTuple):
    """A server of this machine."""

    id: str
    """A UUID, which is also the name of its folder."""
    version: int
    """The major version."""
    memory_mb: int
    """Of 1,048,576 bytes, which its control group bounds."""
    cpu_millis: int
    """Thousandths of a processor."""
    disk_mb: int
    """MiB that its folder may have; a server with more is stopped."""
    port: int
    """Where it listens on the address of the setting; unique on the machine, as is its user, who
    follows from it."""
    has_archive: bool = False
    """It archives its WAL into its spool."""


class ServerSeen(NamedTuple):
    """What a server is now."""

    status: Literal["starting", "running", "stopped", "missing"]
    """Missing: it has no data, or incomplete ones."""
    words: str = ""
    """Why it has stopped, from the end of its log."""
    data_bytes: int = 0
    """The bytes of its folder, when they were counted last."""
    certified_at: int = 0
    """When it was given its certificate, in microseconds since the epoch; 0 if it has none."""


class ServerPaths(NamedTuple):
    """Where a server is on this machine."""

    data: Path
    socket_folder: Path
    """Of the socket of `ServerSpec.port`, over which `SUPERUSER` comes in."""
    spool: Path
    user: tuple[int, int] | None
    """User and group id of its processes and files. If None, they are those of the service."""


class ServerDriver(Protocol):
    """Runs servers. Every method may be repeated after a death at any point."""

    @property
    def versions(self) -> Sequence[int]:
        """Return the major versions whose programs this machine has, in ascending order."""
        ...

    def check(self) -> None:
        """Run a program confined; raise `DriverUnusable`, in one line, if it cannot be."""
        ...

    def held(self, server_id: str) -> AbstractAsyncContextManager[None]:
        """Let no other process of this machine work on a server in the block.

        Each method does so for itself, but for those that only look at it or only speak to it, as
        `set_password` does. They raise `ServerBusy`, as the block does, if another process is at it
        for more than some seconds.
        """
        ...

    async def create(self, spec: ServerSpec) -> None:
        """Make the data of a new server, which does not run yet; no error if it has them.

        Raise `ServerFailed` if they cannot be made.
        """
        ...

    def restoring(self, spec: ServerSpec) -> Path:
        """Return the folder that a restore fills; it belongs to the server's user."""
        ...

    async def adopt_restored(self, spec: ServerSpec) -> None:
        """Make restored files the data of a server, which does not run yet; no error if that is so.

        They are not to be trusted: links are removed, and files that say how the server runs.

        Raise `ServerFailed` if they are no data of this version.
        """
        ...

    async def recover(self, spec: ServerSpec, recovery: Recovery) -> None:
        """Let a restored server replay its WAL, and take from its roles what only `SUPERUSER` has.

        It listens on its Unix socket alone, and has stopped when this returns. No error if it was
        done. Raise `ServerFailed`, with the end of its log, if it ends too early.
        """
        ...

    async def start(self, spec: ServerSpec) -> None:
        """Start a server, and return when it takes connections; no error if it does.

        Raise `ServerFailed`, with the end of its log, if it ends.
        """
        ...

    async def switch_wal(self, spec: ServerSpec) -> None:
        """Commit a transaction and let a running server archive all WAL up to it.

        Raise `ServerFailed` if it does not answer.
        """
        ...

    async def stop(self, server_id: str) -> None:
        """Stop a server by a fast shutdown, and kill it after a minute; no error if none runs."""
        ...

    async def remove(self, server_id: str, *, at_once: bool = False) -> None:
        """Stop a server and delete its files; its data are kept for a day unless `at_once`."""
        ...

    async def set_aside(self, server_id: str) -> bool:
        """Stop a server that no row knows; its data are kept until the operator deletes them.

        Return False if it has none.
        """
        ...

    async def bury(self) -> None:
        """Delete data that were kept for a day."""
        ...

    async def set_password(self, spec: ServerSpec, username: str, password: str) -> None:
        """Give a role of a running server another password, which is not logged."""
        ...

    async def check_data(self, spec: ServerSpec) -> Proof:
        """Read all data of a server that was restored for this alone; return how.

        Raise `ServerFailed` if a checksum is wrong, or a row cannot be read.
        """
        ...

    async def reload_certificate(self, spec: ServerSpec, chain_pem: str, key_pem: str) -> None:
        """Write the certificate of a server, and let the server read it if it runs."""
        ...

    async def seen(self) -> Mapping[str, ServerSeen]:
        """Return all servers that have a folder on this machine, by their ids."""
        ...

    def paths(self, spec: ServerSpec) -> ServerPaths:
        """Return the folders of a server, whether or not they exist."""
        ...
