"""Dependencies of the databases family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from cloudcore.clock import Clock
from cloudcore.db.base import Database
from cloudcore.events import EVENTS, Events
from cloudcore.keyring import Keyring
from cloudcore.nodes.node import NODE, Node
from cloudcore.outbound.destinations import Network
from cloudcore.ports import KEYRING, Opening, Port

if TYPE_CHECKING:
    from cloudcore.databases.archive.bucket_archive import BucketArchive
    from cloudcore.databases.servers.bubblewrap import BubblewrapServers


class ServerCertificate(NamedTuple):
    """The certificate of a database server, with its key."""

    chain_pem: str
    key_pem: str
    """A secret."""
    ca_pem: str
    """The root certificate by which clients check this one."""

    def __repr__(self) -> str:
        """Return only the name of the class, as the key must not get into logs."""
        return "ServerCertificate()"


class ServerAuthority(Protocol):
    """Issues certificates for the database servers of this install."""

    async def issue(self, names: Sequence[str]) -> ServerCertificate:
        """Return a new certificate and key for host names and IP addresses of a machine."""


class DatabaseTerms(NamedTuple):
    """The operator's settings for database clusters."""

    address: str = "127.0.0.1"
    """The address on which servers of this machine listen, and to which their clients connect."""
    first_port: int = 20_000
    last_port: int = 20_999
    networks: Sequence[Network] = ()
    """Networks that registered servers may be in, besides the public internet."""


SERVERS: Final[Port[BubblewrapServers | None]] = Port("databases.servers")
"""The driver of this machine; None if it runs no servers."""
ARCHIVE: Final[Port[BucketArchive]] = Port("databases.archive")
"""The archive of this machine, which makes and restores backups."""
AUTHORITY: Final[Port[ServerAuthority]] = Port("databases.authority")
TERMS: Final[Port[DatabaseTerms]] = Port("databases.terms")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseNeeds:
    """The dependencies of the routes, the jobs and the watches of clusters and backups."""

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    node: Node
    servers: BubblewrapServers | None
    """None: this machine runs no servers."""
    archive: BucketArchive
    authority: ServerAuthority
    keyring: Keyring
    events: Events
    terms: DatabaseTerms


async def open_needs(opening: Opening) -> DatabaseNeeds:
    """Return what the database family needs in this process."""
    install = opening.install
    return DatabaseNeeds(
        database=install.database,
        clock=install.clock,
        new_id=install.new_id,
        node=await opening.get(NODE),
        servers=await opening.get(SERVERS),
        archive=await opening.get(ARCHIVE),
        authority=await opening.get(AUTHORITY),
        keyring=await opening.get(KEYRING),
        events=await opening.get(EVENTS),
        terms=await opening.get(TERMS),
    )
