"""The parts of bodies about clusters that are not plain fields of the record."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from cryptography import x509
from msgspec import UNSET, Meta, UnsetType, structs

from cloudcore.databases.clusters.cluster import Cluster, Endpoint
from cloudcore.databases.clusters.endpoints import check_literal
from cloudcore.databases.servers.driver import DATABASE, OWNER
from cloudcore.errors import invalid_field
from cloudcore.outbound.destinations import NotAllowed
from cloudcore.resource_names import Uuid
from cloudcore.wire import RFC3339, RequestBody, ResponseBody, rfc3339

if TYPE_CHECKING:
    from cloudcore.outbound.destinations import Network

_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,251}[a-z0-9])?|[0-9a-f:.]{2,45}")
MOST_CA_CHARACTERS: Final = 64 * 1024
Port = Annotated[int, Meta(ge=1, le=65535)]
Identifier = Annotated[str, Meta(min_length=1, max_length=63)]


class GivenEndpoint(RequestBody):
    """A PostgreSQL server that runs elsewhere, and the credentials for it."""

    host: Annotated[str, Meta(min_length=1, max_length=253)]
    """A name or an address."""
    username: Identifier
    """A role that may read all databases and, for backups, replicate."""
    password: Annotated[str, Meta(min_length=1, max_length=1000)]
    """It is sealed, and in no answer."""
    port: Port = 5432
    database: Identifier = "postgres"
    """The database that is connected to."""
    ca: Annotated[str, Meta(max_length=MOST_CA_CHARACTERS)] | None = None
    """Roots in PEM: then the server's certificate must be for `host`. Without, the connection is
    encrypted, and its certificate is not checked."""


class GivenCredentials(RequestBody):
    """New credentials for a server that runs elsewhere; omitted fields stay as they are."""

    password: Annotated[str, Meta(min_length=1, max_length=1000)]
    """It is sealed, and in no answer."""
    username: Identifier | UnsetType = UNSET
    ca: Annotated[str, Meta(max_length=MOST_CA_CHARACTERS)] | UnsetType | None = UNSET
    """Roots in PEM: then the server's certificate must be for its host. Null: the connection is
    encrypted, and the certificate is not checked."""


class GivenSize(RequestBody):
    """The resources that a server that is run here may use."""

    memory_mb: Annotated[int, Meta(ge=128, le=64 * 1024)] = 512
    """MiB of memory."""
    cpu_millis: Annotated[int, Meta(ge=100, le=64_000)] = 500
    """Thousandths of a processor."""
    disk_mb: Annotated[int, Meta(ge=256, le=1024 * 1024)] = 10_240
    """MiB of its files; a server that has more is stopped."""


class EndpointRecord(ResponseBody):
    """A server that runs elsewhere."""

    host: str
    port: int
    database: str
    username: str
    ca: str | UnsetType = UNSET


class SizeRecord(ResponseBody):
    """The resources that a server may use."""

    memory_mb: int
    cpu_millis: int
    disk_mb: int


class ClusterConnection(ResponseBody):
    """What clients connect to, by TLS."""

    host: str
    port: int
    database: str
    username: str
    ca: str | None
    """The roots that its certificate is checked by (``sslmode=verify-full``); null if none are
    known."""


class ClusterSource(ResponseBody):
    """The backup or the moment that a cluster was restored from."""

    cluster_id: Uuid
    cluster_name: str
    backup_id: Uuid | UnsetType = UNSET
    target_time: RFC3339 | UnsetType = UNSET


def read_endpoint(given: GivenEndpoint, networks: Sequence[Network]) -> Endpoint:
    """Check an endpoint; return its stored form, without the password.

    Raise `InvalidInput`, naming the field, if it is malformed, or its address is not allowed.
    """
    host = given.host.lower()
    if not _HOST.fullmatch(host):
        words = "a name or an address, without a dot or a colon at its end"
        raise invalid_field("endpoint.host", words)
    try:
        check_literal(host, given.port, networks)
    except NotAllowed as error:
        raise invalid_field("endpoint.host", str(error)) from None
    for name in ("username", "password", "database"):
        _check_text(f"endpoint.{name}", getattr(given, name))
    if given.ca is not None:
        _check_roots("endpoint.ca", given.ca)
    return Endpoint(host, given.port, given.database, given.username, given.ca)


def with_credentials(old: Endpoint, given: GivenCredentials) -> Endpoint:
    """Check new credentials; return the endpoint with the new user name and roots.

    The password is not in it. Raise `InvalidInput`, naming the field, if a credential is malformed.
    """
    username = old.username if given.username is UNSET else given.username
    ca = old.ca if given.ca is UNSET else given.ca
    for name, text in (("username", username), ("password", given.password)):
        _check_text(name, text)
    if ca is not None:
        _check_roots("ca", ca)
    return structs.replace(old, username=username, ca=ca)


def _check_text(field: str, text: str) -> None:
    if "\0" in text or not text.isprintable():
        raise invalid_field(field, "printable characters alone")


def _check_roots(field: str, pem: str) -> None:
    """Raise `InvalidInput`, naming the field, unless a text contains PEM certificates."""
    try:
        is_whole = bool(x509.load_pem_x509_certificates(pem.encode()))
    except (ValueError, x509.InvalidVersion):
        is_whole = False
    if not is_whole:
        raise invalid_field(field, "certificates in PEM")


def shown_endpoint(found: Cluster) -> EndpointRecord | None:
    """Return the endpoint of a registered cluster for an answer; None for a managed one."""
    if (of := found.endpoint) is None:
        return None
    return EndpointRecord(**structs.asdict(of) | {"ca": of.ca or UNSET})


def shown_size(found: Cluster) -> SizeRecord | None:
    """Return the size of a managed cluster for an answer; None for a registered one."""
    if found.type != "managed":
        return None
    return SizeRecord(memory_mb=found.memory_mb, cpu_millis=found.cpu_millis, disk_mb=found.disk_mb)


def shown_connection(found: Cluster) -> ClusterConnection | None:
    """Return what clients of a cluster connect to, or None until it is known."""
    if (of := found.endpoint) is not None:
        return ClusterConnection(**structs.asdict(of))
    if found.host is None or found.port is None:
        return None
    return ClusterConnection(
        host=found.host, port=found.port, database=DATABASE, username=OWNER, ca=found.ca
    )


def shown_source(found: Cluster) -> ClusterSource | None:
    """Return the source of a restored cluster for an answer; None if it was not restored."""
    if (of := found.source) is None:
        return None
    return ClusterSource(
        cluster_id=of.cluster_id,
        cluster_name=of.cluster_name,
        backup_id=of.backup_id or UNSET,
        target_time=UNSET if of.target_time is None else rfc3339(of.target_time),
    )
