"""What runs database servers on a machine, as the rest of the family sees it.

A server outlives the service. It is a program of somebody else's data: it has neither credentials
nor a network, and reaches no file but its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from cloudcore.databases.archive import Recovery

SUPERUSER: Final = "entrepot"
"""The role that the platform has in each server, over the socket in its private folder alone."""
OWNER: Final = "admin"
"""The role that the owner of a cluster has, over TLS: no superuser, and may not make roles."""
DATABASE: Final = "main"
"""The database that belongs to `OWNER`."""
DATA_INSIDE: Final = "/data"
"""How a server itself calls its data folder."""
SPOOL_INSIDE: Final = "/spool"
Proof = Literal["checksums", "rows"]
"""How it was shown that data are whole: by each page's checksum, or by reading each row."""


class ServerFailed(Exception):
    """A server could not be made, started or changed; the message says why, from its own log."""


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
    """Most that its folder holds; who watches it stops a server that has more."""
    port: int
    """Where it listens on the address of the setting; unique on the machine."""
    has_archive: bool = False
    """It puts its WAL into its spool."""


class ServerSeen(NamedTuple):
    """What a server is now."""

    status: Literal["starting", "running", "stopped", "missing"]
    """Missing: it has no data, or none that are whole."""
    words: str = ""
    """Why it has stopped: the end of its log."""
    data_bytes: int = 0
    """What its folder holds, when it was measured last."""
    certified_at: int = 0
    """When it got its certificate, in microseconds since the epoch; 0: it has none."""


class ServerPaths(NamedTuple):
    """Where a server is on this machine."""

    data: Path
    socket_folder: Path
    """Of the socket of `ServerSpec.port`, over which `SUPERUSER` comes in."""
    spool: Path
    user: tuple[int, int] | None
    """The ids that it runs as, and that own its files; None: those of the service."""


class ServerDriver(Protocol):
    """Runs servers. Every method may be repeated after a death at any point."""

    @property
    def versions(self) -> Sequence[int]:
        """Return the major versions whose programs this machine has, in ascending order."""
        ...

    def check(self) -> None:
        """Run a program confined; raise `DriverUnusable`, in one line, if it cannot be."""
        ...

    async def create(self, spec: ServerSpec) -> None:
        """Make the data of a new server, which does not run yet; no error if it has them.

        Raise `ServerFailed` if they cannot be made.
        """
        ...

    def restoring(self, spec: ServerSpec) -> Path:
        """Return a folder of the server's own user, which a restore fills; `DATA_INSIDE` there."""
        ...

    async def adopt_restored(self, spec: ServerSpec) -> None:
        """Make what was restored the data of a server, which does not run yet.

        It is hostile. Files that say how the server runs are replaced, whatever leads out of the
        folder is refused. No error if it was done.

        Raise `ServerFailed` if it cannot be, or is no such folder.
        """
        ...

    async def start(self, spec: ServerSpec, *, recovery: Recovery | None = None) -> None:
        """Start a server, and return when it takes connections; no error if it does.

        With `recovery`, which is of a restored one, it recovers first, and then its roles lose what
        no role but `SUPERUSER` may have. It is not reachable before that is done.

        Raise `ServerFailed`, with the end of its log, if it ends.
        """
        ...

    async def stop(self, server_id: str) -> None:
        """Stop a server by a fast shutdown, and kill it if that takes long; no error if it has."""
        ...

    async def remove(self, server_id: str, *, at_once: bool = False) -> None:
        """Stop a server and take away what it has; its data are kept for a day unless `at_once`."""
        ...

    async def bury(self) -> None:
        """Delete data that were kept for a day."""
        ...

    async def set_password(self, spec: ServerSpec, username: str, password: str) -> None:
        """Give a role of a running server another password, which is not logged."""
        ...

    async def switch_wal(self, spec: ServerSpec) -> None:
        """Let a running server note that it is now, and give away its WAL until then.

        Raise `ServerFailed` if it does not.
        """
        ...

    async def check_data(self, spec: ServerSpec) -> Proof:
        """Read all data of a server that was restored for this alone; return how.

        Raise `ServerFailed` if a checksum is wrong, or a row cannot be read.
        """
        ...

    async def reload_certificate(self, spec: ServerSpec, chain_pem: str, key_pem: str) -> None:
        """Write what a server shows to clients, and let it read it if it runs."""
        ...

    async def seen(self) -> Mapping[str, ServerSeen]:
        """Return every server that this machine has something of, by its id."""
        ...

    def paths(self, spec: ServerSpec) -> ServerPaths:
        """Return where a server is, there or not."""
        ...
