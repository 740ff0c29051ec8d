"""The parameter and result types of the driver of database servers."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, NamedTuple

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
"""The kind of proof that data are complete: the checksum of each page, or reading each row."""


class ServerFailed(Exception):
    """A server could not be made, started or changed; the message has the reason."""


class ServerBusy(ServerFailed):
    """Another process of this machine is working on the server."""


class ServerSpec(NamedTuple):
    """The configuration of a server of this machine."""

    id: str
    """A UUID, which is also the name of its folder."""
    version: int
    """The major version."""
    memory_mb: int
    """MiB of memory, which its control group limits."""
    cpu_millis: int
    """Thousandths of a processor."""
    disk_mb: int
    """MiB that its folder may have; a server with more is stopped."""
    port: int
    """The port on which it listens; unique on the machine. Its user id is derived from the port."""
    has_archive: bool = False
    """It archives its WAL into its spool."""


class ServerState(NamedTuple):
    """The state of a server."""

    status: Literal["starting", "running", "stopped", "missing"]
    """Missing: it has no data, or incomplete ones."""
    words: str = ""
    """Why it has stopped, from the end of its log."""
    data_bytes: int = 0
    """The size of its folder in bytes, when that was measured last."""
    certified_at: int = 0
    """When it got its certificate, in microseconds since the epoch; 0 if it has none."""


class ServerPaths(NamedTuple):
    """The folders of a server on this machine."""

    data: Path
    socket_folder: Path
    """The folder of the socket of `ServerSpec.port`, through which `SUPERUSER` connects."""
    spool: Path
    user: tuple[int, int] | None
    """User and group id of its processes and files. If None, they are those of the service."""
