"""The interface of drivers, which run database servers on a machine.

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
"""The proof that data are complete: the checksum of each page, or reading each row."""


class ServerFailed(Exception):
    """A server could not be made, started or changed; the reason is from its own log."""


class ServerBusy(ServerFailed):
    """Another process of this machine works on the server."""


class ServerSpec(NamedTuple):
    """The configuration of a server of this machine."""

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
    """The state of a server."""

    status: Literal["starting", "running", "stopped", "missing"]
    """Missing: it has no data, or incomplete ones."""
    words: str = ""
    """Why it has stopped, from the end of its log."""
    data_bytes: int = 0
    """The bytes of its folder, when they were counted last."""
    certified_at: int = 0
    """When it was given its certificate, in microseconds since the epoch; 0 if it has none."""


class ServerPaths(NamedTuple):
    """The folders of a server on this machine."""

    data: Path
    socket_folder: Path
    """Of the socket of `ServerSpec.port`, over which `SUPERUSER` comes in."""
    spool: Path
    user: tuple[int, int] | None
    """User and group id of its processes and files. If None, they are those of the service."""


class ServerDriver(Protocol):
    """Runs servers. Every method may be repeated after a crash at any point."""

    @property
    def versions(self) -> Sequence[int]:
        """Return the major versions whose programs this machine has, in ascending order."""
        ...

    def check(self) -> None:
        """Run a program confined; raise `DriverUnusable`, in one line, if that fails."""
        ...

    def held(self, server_id: str) -> AbstractAsyncContextManager[None]:
        """Keep other processes of this machine from a server during the block.

        Each method does so for itself, except those that only look at a server or only speak to it,
        as `set_password` does. All raise `ServerBusy`, as the block does, if another process holds
        it for more than some seconds.
        """
        ...

    async def create(self, spec: ServerSpec) -> None:
        """Make the data of a new server, without starting it; do nothing if it has them.

        Raise `ServerFailed` if they cannot be made.
        """
        ...

    def restoring(self, spec: ServerSpec) -> Path:
        """Return the folder that a restore fills; it belongs to the server's user."""
        ...

    async def adopt_restored(self, spec: ServerSpec) -> None:
        """Make restored files the data of a server, without starting it.

        Do nothing if that is done.

        They are untrusted: links are removed, and files that configure the server.

        Raise `ServerFailed` if they are not data of this version.
        """
        ...

    async def recover(self, spec: ServerSpec, recovery: Recovery) -> None:
        """Let a restored server replay its WAL, and take the rights of `SUPERUSER` from its roles.

        It listens on its Unix socket alone, and has stopped when this returns. Do nothing if that
        is done. Raise `ServerFailed`, with the end of its log, if it ends too early.
        """
        ...

    async def start(self, spec: ServerSpec) -> None:
        """Start a server, and return when it accepts connections; do nothing if it runs.

        Raise `ServerFailed`, with the end of its log, if it ends.
        """
        ...

    async def switch_wal(self, spec: ServerSpec) -> None:
        """Commit a transaction and let a running server archive all WAL up to it.

        Raise `ServerFailed` if it does not answer.
        """
        ...

    async def stop(self, server_id: str) -> None:
        """Stop a server by a fast shutdown, and kill it after a minute; do nothing if none runs."""
        ...

    async def remove(self, server_id: str, *, at_once: bool = False) -> None:
        """Stop a server and delete its files; its data are kept for a day unless `at_once`."""
        ...

    async def set_aside(self, server_id: str) -> bool:
        """Stop a server without a row; its data are kept until the operator deletes them.

        Return False if it has none.
        """
        ...

    async def delete_expired(self) -> None:
        """Delete data whose day is over."""
        ...

    async def set_password(self, spec: ServerSpec, username: str, password: str) -> None:
        """Set the password of a role of a running server; it is not logged."""
        ...

    async def check_data(self, spec: ServerSpec) -> Proof:
        """Read all data of a server that was restored for verification; return how.

        Raise `ServerFailed` if a checksum is wrong, or a row cannot be read.
        """
        ...

    async def reload_certificate(self, spec: ServerSpec, chain_pem: str, key_pem: str) -> None:
        """Write the certificate of a server; a running server reloads it."""
        ...

    async def seen(self) -> Mapping[str, ServerSeen]:
        """Return all servers that have a folder on this machine, by id."""
        ...

    def paths(self, spec: ServerSpec) -> ServerPaths:
        """Return the folders of a server, whether or not they exist."""
        ...
