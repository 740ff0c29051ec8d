"""What the texts of settings say: lists, origins, networks, addresses and mirrors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from cloudcore.outbound.destinations import Allowed
from registry.public_url import HOST

PREFIX: Final = "ENTREPOT_"
PULL: Final = "pull"
"""What the setting ``family_hosts`` calls ``/v2``."""
AUTH: Final = "auth"
CONSOLE: Final = "console"
_ORIGIN: Final = re.compile(
    r"(?:http(?!://[^/]*:80\Z)|https(?!://[^/]*:443\Z))://"
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::[1-9][0-9]{0,4})?"
)
_PREFIX: Final = re.compile(
    r"(?=.{2,32}/)[a-z0-9]+(?:-[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*){1,3}"
)
"""``<account>/<prefix>``: an account's handle, and one to three components."""
_DNS_PORT: Final = 53


class SettingsError(Exception):
    """A setting is unknown, or its value is invalid."""


def allowed_destinations(name: str, text: str) -> Allowed:
    """Return the origins and networks that the setting `name` lists.

    Raises:
        SettingsError: an entry is neither an origin nor a network.

    """
    entries = listed(text)
    origins = ",".join(part for part in entries if "://" in part)
    try:
        networks = tuple(ip_network(part) for part in entries if "://" not in part)
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None
    return Allowed(f"{PREFIX}{name.upper()}", listed_origins(name, origins), networks)


def listed_origins(name: str, text: str) -> tuple[str, ...]:
    """Return the origins that the setting `name` lists.

    Raises:
        SettingsError: one of them is not an origin as browsers send it.

    """
    origins = listed(text)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise SettingsError(
                f"{name}: {origin!r} is no origin such as https://app.example.com: in "
                "lower case, without a path, a default port or *"
            )
    return origins


def address_and_port(text: str) -> tuple[str, int]:
    """Return an IP address and a port, by default that of DNS; raise ValueError for all else."""
    try:
        return str(ip_address(text.strip("[]"))), _DNS_PORT
    except ValueError:
        host, _, port = text.rpartition(":")
        return str(ip_address(host.strip("[]"))), int(port)


def listed(text: str) -> tuple[str, ...]:
    """Return the entries of a list that is separated by commas, without empty ones."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def mirrored_prefixes(text: str) -> Mapping[str, str]:
    """Return the account and prefix by each registry or host of the setting ``mirrors``.

    Raises:
        SettingsError: an entry is not HOST=ACCOUNT/PREFIX, or a host is listed twice.

    """
    found: dict[str, str] = {}
    for entry in listed(text):
        host, _, prefix = entry.partition("=")
        if not HOST.fullmatch(host) or not _PREFIX.fullmatch(prefix):
            raise SettingsError(
                f"mirrors: {entry!r} is no HOST=ACCOUNT/PREFIX such as docker.io=acme/hub"
            )
        if found.setdefault(host.lower(), prefix) != prefix:
            raise SettingsError(f"mirrors: {host} is listed twice")
    return found


def hosts_of_parts(text: str) -> Mapping[str, Sequence[str]]:
    """Return the hosts of each part that the setting ``family_hosts`` lists, in lower case.

    Raises:
        SettingsError: an entry is not NAME=HOST.

    """
    found: dict[str, list[str]] = {}
    for entry in listed(text):
        part, _, host = entry.partition("=")
        if not part or not HOST.fullmatch(host):
            raise SettingsError(
                f"family_hosts: {entry!r} is no NAME=HOST such as pull=cr.example.com: a host has"
                " no path, and the scheme is that of public_url"
            )
        found.setdefault(part, []).append(host.lower())
    return found
