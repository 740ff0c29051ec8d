"""Connect to a registered server, to check that it is reachable and to learn its version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from cloudcore.databases.archive.driver import RegisteredEndpoint
from cloudcore.outbound.destinations import (
    Allowed,
    Destination,
    NotAllowed,
    check_addresses,
    literal_address,
)
from cloudcore.outbound.host_lookup import Resolve, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudcore.outbound.destinations import Address, Network

NETWORKS_SETTING: Final = "ENTREPOT_DATABASE_NETWORKS"
_CONNECT_SECONDS: Final = "10"
_WHOLE_SECONDS: Final = 30
_MOST_REASON: Final = 300
_SETS_REQUIRED_AUTH: Final = 160_000
"""The first version of libpq that can refuse to send a password in plain text."""


class EndpointUnreachable(Exception):
    """A server did not answer as PostgreSQL; the message has the reason, and no secret."""


def check_literal(host: str, port: int, networks: Sequence[Network]) -> None:
    """Raise `NotAllowed` if `host` is a forbidden IP address; a name is checked when resolved."""
    if (found := literal_address(host)) is not None:
        _vet(host, port, [found], networks)


async def addresses_of(
    host: str, port: int, networks: Sequence[Network], look_up: Resolve = resolve
) -> Sequence[Address]:
    """Resolve a host to its addresses.

    Raise `EndpointUnreachable` if the host has none, or if connections to one of them are
    forbidden.
    """
    literal = literal_address(host)
    try:
        found = [literal] if literal is not None else await look_up(host, port)
        _vet(host, port, found, networks)
    except (OSError, UnicodeError) as error:  # of a label that is too long
        raise EndpointUnreachable(f"{host} has no address: {error}") from None
    except NotAllowed as error:
        raise EndpointUnreachable(str(error)) from None
    return found


def conninfo(endpoint: RegisteredEndpoint, addresses: Sequence[Address]) -> dict[str, str]:
    """Return libpq's parameters for a server: host name, checked addresses, user and TLS mode."""
    return {
        "host": ",".join(endpoint.host for _ in addresses),
        "hostaddr": ",".join(map(str, addresses)),
        "port": str(endpoint.port),
        "user": endpoint.username,
        "sslmode": "require" if endpoint.ca is None else "verify-full",
        "gssencmode": "disable",
        "connect_timeout": _CONNECT_SECONDS,
    }


async def server_version(
    endpoint: RegisteredEndpoint, database: str, networks: Sequence[Network]
) -> int:
    """Connect to a server and return its major version.

    Raise `EndpointUnreachable` if the server could not be reached, or refused the login.
    """
    addresses = await addresses_of(endpoint.host, endpoint.port, networks)
    try:
        async with asyncio.timeout(_WHOLE_SECONDS):
            return await _connect(endpoint, database, addresses)
    except TimeoutError:
        raise EndpointUnreachable("it did not answer in time") from None


async def _connect(
    endpoint: RegisteredEndpoint, database: str, addresses: Sequence[Address]
) -> int:
    import psycopg  # noqa: PLC0415 - an install on SQLite has no other use for it

    with TemporaryDirectory(prefix="entrepot-") as folder:
        told = _parameters(endpoint, database, addresses, Path(folder))
        try:
            async with await psycopg.AsyncConnection.connect(**told) as on:
                await on.execute("SELECT 1")
                return on.info.server_version // 10_000
        except psycopg.Error as error:
            raise EndpointUnreachable(_reason(error)) from None


def _parameters(
    endpoint: RegisteredEndpoint, database: str, addresses: Sequence[Address], folder: Path
) -> dict[str, Any]:
    """Return all connection parameters, so that libpq takes none from the environment."""
    from psycopg import pq  # noqa: PLC0415 - as above

    roots = folder / "roots.pem"  # without this file, the certificate is not checked
    if endpoint.ca is not None:
        roots.write_text(endpoint.ca)
    found: dict[str, Any] = {
        **conninfo(endpoint, addresses),
        "dbname": database,
        "password": endpoint.password,
        "sslrootcert": str(roots),
        "sslcert": str(folder / "none"),
        "sslkey": str(folder / "none"),
        "application_name": "entrepot",
        "client_encoding": "UTF8",
        "options": "-c search_path=pg_catalog -c statement_timeout=10s",
        "autocommit": True,
    }
    if endpoint.ca is None and pq.version() >= _SETS_REQUIRED_AUTH:
        # The server is not authenticated: send no password that it could use elsewhere.
        found["require_auth"] = "scram-sha-256"
    return found


def _reason(error: Exception) -> str:
    """Return libpq's error on one line, without control characters that a server may have sent."""
    text = " ".join(str(error).split()) or "it closed the connection"
    return "".join(each if each.isprintable() else "?" for each in text)[:_MOST_REASON]


def _vet(host: str, port: int, found: Sequence[Address], networks: Sequence[Network]) -> None:
    destination = Destination("postgresql", host, port, "", is_listed=False)
    check_addresses(destination, found, Allowed(NETWORKS_SETTING, networks=networks))
