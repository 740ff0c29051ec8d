"""Host names and URLs that follow from the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from registry.settings.fields import SettingFields
from registry.settings.groups import MOST_PORT
from registry.settings.texts import (
    HOST,
    PREFIX,
    PULL,
    SettingsError,
    hosts_of_parts,
    is_every_address,
    listed,
    without_port,
)

_S3_HOST: Final = re.compile(r"(?=.{1,190}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Addresses(SettingFields):
    """Settings, and the host names and URLs that follow from them.

    A property raises `SettingsError` if its setting is malformed.
    """

    @property
    def url(self) -> str:
        """Return the base URL in tokens and references.

        For a host that is every address of this machine and no name, it is the loopback address.
        """
        if self.public_url:
            return self.public_url.rstrip("/")
        host = "127.0.0.1" if is_every_address(self.host) else self.host
        host = f"[{host}]" if ":" in host else host
        scheme = "https" if self.speaks_tls else "http"
        return f"{scheme}://{next(iter(self.hosts), f'{host}:{self.port}')}"

    @property
    def speaks_tls(self) -> bool:
        """Return True if the server has a certificate, or orders one."""
        return bool(self.tls or self.tls_certificate or self.acme.names)

    @property
    def own_names(self) -> tuple[str, ...]:
        """Return the host names and addresses at which clients reach the server."""
        named = (urlsplit(f"//{each}").hostname or "" for each in self.hosts)
        found = [*(urlsplit(each).hostname or "" for each in self.urls if self.public_url), *named]
        if not any(found):
            found = [urlsplit(self.url).hostname or ""]
        if found == ["127.0.0.1"]:
            found = ["localhost", *found]
        if self.s3_host:
            found += [self.s3_host, f"*.{self.s3_host}"]
        return tuple(dict.fromkeys(name for name in found if name))

    def check_has_url(self) -> None:
        """Raise SettingsError if no setting says under which URL clients reach the registry."""
        if is_every_address(self.host) and not self.public_url and not self.hosts:
            raise SettingsError(
                f"{self.host or 'an empty host'} is every address of this machine and no URL for"
                f" clients: set {PREFIX}PUBLIC_URL to the one they use, such as"
                " https://registry.example.com, or without TLS name the host and port they use:"
                " --allowed-host HOST:PORT"
            )

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Return host and port of the Prometheus endpoint, or None if there is none."""
        if not self.metrics:
            return None
        host, colon, port = self.metrics.rpartition(":")
        is_port = port.isascii() and port.isdigit() and int(port) <= MOST_PORT
        if not colon or not is_port:
            raise SettingsError(f"metrics: an address is HOST:PORT, not {self.metrics!r}")
        return host.strip("[]"), int(port)

    @property
    def pull_host(self) -> str:
        """Return the ``host:port`` in image references and bearers."""
        return urlsplit(self.url_of(PULL)).netloc

    def url_of(self, part: str) -> str:
        """Return the base URL of a family by its `host`, or of another part (`family_hosts`)."""
        return self.own_urls.get(part, self.url)

    @property
    def own_urls(self) -> Mapping[str, str]:
        """Return the base URL of each part of `family_hosts`, and of ``s3`` if it has a host."""
        scheme, _, main = self.url.partition("://")
        found = {part: f"{scheme}://{hosts[0]}" for part, hosts in self.own_hosts.items()}
        if self.s3_host:
            found["s3"] = f"{scheme}://{self.s3_host}{main[len(without_port(main)) :]}"
        return found

    @property
    def own_hosts(self) -> Mapping[str, Sequence[str]]:
        """Return the hosts of each part in `family_hosts`; clients are sent to the first.

        Raise `SettingsError` if one is set without `public_url`, or is malformed.
        """
        found = hosts_of_parts(self.family_hosts)
        if found and not self.public_url:
            raise SettingsError("family_hosts needs public_url, where all is that it does not list")
        return found

    @property
    def urls(self) -> Sequence[str]:
        """Return every base URL at which clients reach the server; the first is `url`."""
        scheme = self.url.partition("://")[0]
        hosts = (host for each in self.own_hosts.values() for host in each)
        return self.url, *(f"{scheme}://{host}" for host in hosts)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts of `allowed_hosts`, else those that a certificate is ordered for."""
        # Port 443 of a name leads here, whatever the port is that the server listens on.
        hosts = listed(self.allowed_hosts) or self.acme.names
        for host in hosts:
            if not HOST.fullmatch(host):
                raise SettingsError(f"allowed_hosts: {host!r} is no HOST or HOST:PORT")
        return hosts

    @property
    def s3_name(self) -> str:
        """Return the host name of the S3 endpoint, or an empty text.

        Raise `SettingsError` if `s3_host` is no host name, or `s3_port` is the registry's port.
        """
        if self.s3_host and not _S3_HOST.fullmatch(self.s3_host):
            raise SettingsError(
                f"s3_host: {self.s3_host!r} is no host name in lower case such as s3.example.com"
            )
        if self.s3_port and self.s3_port == self.port:
            raise SettingsError("s3_port: the S3 endpoint has another port than the registry")
        return self.s3_host

    @property
    def mail_host_name(self) -> str:
        """Return the name by which this machine greets mail servers."""
        return self.email.email_host_name or urlsplit(self.url).hostname or "localhost"
