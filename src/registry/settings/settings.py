"""The settings of a process: checks, and the values and addresses derived from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cloudcore.certificate.domains import DomainGrant, GrantError, parse_grants
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.mail import Smarthost, SmtpUrlError, parse_smarthost
from cloudcore.own_certificate.paths import local_folder, own_certificate, own_folder
from cloudcore.resource_names import REGION_PATTERN
from cloudcore.serving.tls.paths import TlsFiles
from registry.settings.fields import SettingFields
from registry.settings.groups import MOST_PORT, check_numbers, choice_problem
from registry.settings.store import MOST_S3_BLOB_BYTES
from registry.settings.texts import (
    HOST,
    PREFIX,
    PULL,
    SettingsError,
    address_and_port,
    allowed_destinations,
    is_every_address,
    listed,
    parse_family_hosts,
    parse_mirrors,
    parse_origins,
    ports_clash,
    public_url_problem,
    without_port,
)

_REGION: Final = re.compile(REGION_PATTERN)
_S3_HOST: Final = re.compile(r"(?=.{1,190}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_SENDER: Final = re.compile(r"[!-~]{1,64}@[A-Za-z0-9.-]{1,253}")
_PACKAGED_CATALOG: Final = Path(__file__).with_name("catalog.json")
_DATABASES = ("sqlite:///", "postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Settings(SettingFields):
    """The settings of a process. Creating them with an invalid value raises `SettingsError`."""

    def __post_init__(self) -> None:
        """Raise SettingsError if a value is invalid."""
        for group in (
            self,
            self.email,
            self.node,
            self.limits,
            self.delays,
            self.scrubbing,
            self.plain_sealing,
            self.store,
        ):
            check_numbers(group)
        for chosen in (self, self.billing, self.email, self.node):
            if problem := choice_problem(chosen):
                raise SettingsError(problem)
        self._check_tls()
        self._check_region()
        problems = (
            self.certificates.problem(self.zone),
            self.email.problem(self.smtp_url),
            self.billing.problem,
            self.node.problem,
            self.store.problem,
        )
        if problem := next(filter(None, problems), ""):
            raise SettingsError(problem)
        _ = self.hosts, self.proxies, self.database, self.origins, self.internal_issuers
        _ = self.allowed_upstreams, self.allowed_webhooks, self.metrics_address, self.mirrored
        _ = (
            self.hosts_by_part,
            self.smarthost,
            self.s3_name,
            self.granted_domains,
            self.zone,
            self.resolver,
        )
        self._check_metrics()
        self._check_blobs()
        for name in ("public_url", "certificate_url"):
            url = getattr(self, name)
            if url and (problem := public_url_problem(url)):
                raise SettingsError(f"{name}: {problem}")
        if self.kms_provider == "aws" and not self.kms_aws_key:
            raise SettingsError("kms_provider aws needs kms_aws_key, the ARN of a key in AWS KMS")

    def _check_region(self) -> None:
        """Raise SettingsError if the region cannot be part of resource names."""
        if not _REGION.fullmatch(self.region):
            raise SettingsError(
                f"region: {self.region!r} is no name of a region such as local or eu-1: lower-case"
                " letters, digits and hyphens, at most 63"
            )

    def _check_blobs(self) -> None:
        """Raise SettingsError if blobs may be larger than the store can take."""
        most = self.limits.max_blob_bytes
        if self.store.store_s3_bucket and most > MOST_S3_BLOB_BYTES:
            raise SettingsError(
                f"max_blob_bytes: a bucket of S3 takes blobs of at most {MOST_S3_BLOB_BYTES} bytes,"
                f" not {most}"
            )

    def _check_metrics(self) -> None:
        """Raise SettingsError if the metrics endpoint has the server's own address."""
        address = self.metrics_address
        if address is None or not address[1]:
            return
        for port, what in ((self.port, "registry"), (self.s3_port, "S3 endpoint")):
            if port == address[1] and ports_clash(self.host, address[0]):
                raise SettingsError(
                    f"metrics: {self.metrics!r} is where the {what} listens; name another port,"
                    " such as 127.0.0.1:9464"
                )

    def _check_tls(self) -> None:
        """Raise SettingsError if the TLS settings contradict each other."""
        if bool(self.tls_certificate) is not bool(self.tls_key):
            missing = "tls_key" if self.tls_certificate else "tls_certificate"
            raise SettingsError(f"a certificate and its key are set together; {missing} is not set")
        if problem := self.acme.problem:
            raise SettingsError(problem)
        if self.tls_certificate and self.acme.names:
            raise SettingsError("tls_certificate and tls_acme exclude each other; set one of them")
        named = {urlsplit(each).hostname or "" for each in self.urls if self.hosts_by_part}
        if self.acme.names and (left_out := sorted(named.difference(self.acme.names))):
            raise SettingsError(
                f"tls_acme does not list {', '.join(left_out)}, as family_hosts and public_url do:"
                " the certificate that is ordered has the names of tls_acme alone"
            )
        if self.speaks_tls and self.public_url.startswith("http://"):
            raise SettingsError(
                f"public_url: {self.public_url!r} is plain HTTP, but with a certificate the"
                f" server speaks TLS; set https://{self.public_url.removeprefix('http://')}"
            )

    @property
    def operator_handles(self) -> frozenset[str]:
        """Return the handles of the accounts that operate the install."""
        return frozenset(listed(self.operators))

    @property
    def own_folder(self) -> Path | None:
        """Return the folder of the certificate from the install's own authority; None if unused."""
        if not self.tls or self.tls_certificate or self.acme.names:
            return None
        return local_folder(self.root_key.absolute().parent)

    @property
    def acme_folder(self) -> Path | None:
        """Return the folder of the certificate ordered by ACME; None if none is ordered."""
        if not self.acme.names:
            return None
        return own_folder(self.root_key.absolute().parent, self.acme.tls_acme_directory)

    def check_data(self) -> None:
        """Raise SettingsError if the data folder, or a folder above it, is a file."""
        with suppress(OSError):  # a folder that may not be read: opening it gives the error
            for place in (self.data, *self.data.parents):
                if place.exists() and not place.is_dir():
                    raise SettingsError(
                        f"data: {place} is a file, and the data are in a folder; name one that"
                        " exists, or that can be made (--data)"
                    )

    @property
    def tls_files(self) -> TlsFiles | None:
        """Return the files of the certificate to serve, or None for plain HTTP."""
        folder = self.acme_folder or self.own_folder
        if folder is not None:
            return own_certificate(folder)
        if not self.tls_certificate:
            return None
        return TlsFiles(Path(self.tls_certificate), Path(self.tls_key))

    @property
    def seals(self) -> bool:
        """Return True if new blobs are stored encrypted."""
        return self.sealing == "on"

    @property
    def origins(self) -> tuple[str, ...]:
        """Return the origins in `cors_origins`."""
        return parse_origins("cors_origins", self.cors_origins)

    @property
    def internal_issuers(self) -> tuple[str, ...]:
        """Return the origins in `oidc_internal_origins`."""
        return parse_origins("oidc_internal_origins", self.oidc_internal_origins)

    @property
    def allowed_upstreams(self) -> Allowed:
        """Return the upstream registries allowed besides those on the public internet."""
        return allowed_destinations("upstream_allowed", self.upstream_allowed)

    @property
    def allowed_webhooks(self) -> Allowed:
        """Return the webhook destinations allowed besides those on the public internet."""
        return allowed_destinations("webhook_allowed", self.webhook_allowed)._replace(
            takes_plain_http=True
        )

    @property
    def smarthost(self) -> Smarthost | None:
        """Return the mail server in `smtp_url`; None if `smtp_url` is empty.

        Raise `SettingsError` if `smtp_url` is malformed, or `smtp_from` is not an address.
        """
        if not self.smtp_url:
            return None
        try:
            found = parse_smarthost(self.smtp_url)
        except SmtpUrlError as error:
            raise SettingsError(f"smtp_url: {error}") from None
        if not _SENDER.fullmatch(self.smtp_from):
            raise SettingsError("smtp_url needs smtp_from, an address such as news@example.com")
        return found

    @property
    def granted_domains(self) -> tuple[DomainGrant, ...]:
        """Return the domains in `certificate_grants`."""
        try:
            return parse_grants(listed(self.certificate_grants))
        except GrantError as error:
            raise SettingsError(f"certificate_grants: {error}") from None

    @property
    def zone(self) -> str:
        """Return `certificate_zone` in lower case, without a dot at its end."""
        zone = self.certificate_zone.lower().removesuffix(".")
        if zone and not HOST.fullmatch(zone):
            raise SettingsError(f"certificate_zone: {zone!r} is no domain such as example.com")
        return zone

    @property
    def resolver(self) -> tuple[str, int] | None:
        """Return the address and port in `dns_resolver`, or None to use the machine's resolvers."""
        if not self.dns_resolver:
            return None
        try:
            return address_and_port(self.dns_resolver)
        except ValueError:
            raise SettingsError(
                "dns_resolver: a resolver is ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, not "
                f"{self.dns_resolver!r}"
            ) from None

    @property
    def mirrored(self) -> Mapping[str, str]:
        """Map each registry or host in `mirrors` to its ``account/prefix``."""
        return parse_mirrors(self.mirrors)

    @property
    def root_key(self) -> Path:
        """Return the path of the root key's file."""
        return Path(self.root_key_file) if self.root_key_file else self.data / "root.key"

    @property
    def catalog(self) -> Path:
        """Return the path of the file with regions and prices."""
        return Path(self.catalog_file) if self.catalog_file else _PACKAGED_CATALOG

    @property
    def proxies(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Return the networks of trusted proxies."""
        try:
            return tuple(ip_network(text) for text in listed(self.trusted_proxies))
        except ValueError as error:
            raise SettingsError(f"trusted_proxies: {error}") from None

    @property
    def database(self) -> str:
        """Return the URL of the metadata database."""
        if self.database_url and not self.database_url.startswith(_DATABASES):
            raise SettingsError(f"database_url begins with {' or '.join(_DATABASES)}")
        return self.database_url or f"sqlite:///{self.data.absolute() / 'metadata.db'}"

    @property
    def buckets(self) -> Path:
        """Return the folder for the bytes of accounts' buckets."""
        return self.data.absolute() / "buckets"

    @property
    def cache(self) -> Path:
        """Return the folder of the disk cache for a bucket store; it may be deleted."""
        return self.data.absolute() / "cache"

    @property
    def blobs(self) -> Path:
        """Return the folder of the blob store."""
        return self.data.absolute() / "blobs"

    @property
    def url(self) -> str:
        """Return the registry's base URL, as in tokens and references.

        If no name is configured and `host` means every address, the URL has the loopback address.
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
    def certificate_names(self) -> tuple[str, ...]:
        """Return the host names and addresses at which clients reach the server, each once."""
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
        """Raise SettingsError if `host` means every address, and no setting names a URL."""
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
        """Return the ``host:port`` in image references and bearer tokens."""
        return urlsplit(self.url_of(PULL)).netloc

    def url_of(self, part: str) -> str:
        """Return the base URL of a part; `url` if `family_hosts` does not list the part."""
        return self.own_urls.get(part, self.url)

    @property
    def own_urls(self) -> Mapping[str, str]:
        """Map parts in `family_hosts`, and ``s3`` if it has a host, to their base URLs."""
        scheme, _, main = self.url.partition("://")
        found = {part: f"{scheme}://{hosts[0]}" for part, hosts in self.hosts_by_part.items()}
        if self.s3_host:
            found["s3"] = f"{scheme}://{self.s3_host}{main[len(without_port(main)) :]}"
        return found

    @property
    def hosts_by_part(self) -> Mapping[str, Sequence[str]]:
        """Map each part in `family_hosts` to its hosts; URLs use the first.

        Raise `SettingsError` if `family_hosts` is set without `public_url`, or is malformed.
        """
        found = parse_family_hosts(self.family_hosts)
        if found and not self.public_url:
            raise SettingsError("family_hosts needs public_url, where all is that it does not list")
        return found

    @property
    def urls(self) -> Sequence[str]:
        """Return `url`, then the base URL of each host in `family_hosts`."""
        scheme = self.url.partition("://")[0]
        hosts = (host for each in self.hosts_by_part.values() for host in each)
        return self.url, *(f"{scheme}://{host}" for host in hosts)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts in `allowed_hosts`, or else the names in `tls_acme`."""
        # Names without a port: clients use port 443, on whatever port the server listens.
        hosts = listed(self.allowed_hosts) or self.acme.names
        for host in hosts:
            if not HOST.fullmatch(host):
                raise SettingsError(f"allowed_hosts: {host!r} is no HOST or HOST:PORT")
        return hosts

    @property
    def s3_name(self) -> str:
        """Return `s3_host`, which may be empty.

        Raise `SettingsError` if `s3_host` is not a host name, or `s3_port` is the registry's port.
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
        """Return the name with which this machine greets mail servers."""
        return self.email.email_host_name or urlsplit(self.url).hostname or "localhost"
