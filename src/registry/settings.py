"""Settings: plain values, read once at the composition root."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final, Literal, get_args
from urllib.parse import urlsplit

from cloudcore.certificate.domains import Grant, GrantError, parse_grants
from cloudcore.iam.principal import Founders
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.mail import Smarthost, SmtpUrlError, parse_smarthost
from cloudcore.own_certificate.paths import local_folder, own_certificate, own_folder
from cloudcore.resource_names import REGION_PATTERN
from cloudcore.serving.tls.paths import TlsFiles
from registry.acme_settings import AcmeSettings
from registry.billing_settings import BillingSettings
from registry.certificate_settings import CertificateSettings
from registry.email_settings import EmailSettings
from registry.node_settings import NodeSettings
from registry.public_url import (
    HOST,
    is_every_address,
    public_url_problem,
    share_a_port,
    without_port,
)
from registry.setting_groups import (
    MOST_PORT,
    Delays,
    Limits,
    PlainSealing,
    Scrubbing,
    check_numbers,
)
from registry.setting_texts import (
    PREFIX,
    PULL,
    SettingsError,
    address_and_port,
    allowed_destinations,
    hosts_of_parts,
    listed,
    listed_origins,
    mirrored_prefixes,
)
from registry.store_settings import MOST_S3_BLOB_BYTES, StoreSettings

_REGION: Final = re.compile(REGION_PATTERN)
_WORDS: Final = {
    "sealing": ("on", "off"),
    "s3_any_region": ("on", "off"),
    "kms_provider": ("embedded", "aws"),
}
"""Settings that are one of two words."""
_S3_HOST: Final = re.compile(r"(?=.{1,190}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_SENDER: Final = re.compile(r"[!-~]{1,64}@[A-Za-z0-9.-]{1,253}")
_PACKAGED_CATALOG: Final = Path(__file__).with_name("catalog.json")
_DATABASES = ("sqlite:///", "postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a process."""

    data: Path
    """Folder of the blobs, the root key and, without `database_url`, the SQLite database."""
    database_url: str = ""
    """``sqlite:////path/to.db`` or ``postgresql://user@host/name``; empty: SQLite in the folder
    `data`."""
    host: str = "127.0.0.1"
    """Address to listen on. Every address, ``0.0.0.0`` or ``::``, needs `public_url` or
    `allowed_hosts`."""
    port: int = 5000
    """Port to listen on; 0 takes a free one."""
    workers: int = 1
    """Worker processes: one for each core that the registry may use."""
    metrics: str = ""
    """``host:port`` of the Prometheus endpoint; empty: no endpoint."""
    s3_port: int = 0
    """Port of the S3 endpoint, at the same `host`; 0: it has none of its own."""
    s3_host: str = ""
    """Host name of the S3 endpoint, of which buckets are subdomains; empty: it is at `s3_port`
    alone, and buckets are in paths."""
    s3_any_region: Literal["on", "off"] = "off"
    """Whether the S3 endpoint takes requests that are signed for any region."""
    public_url: str = ""
    """Base URL at which clients reach the registry, a scheme and a host, no path: named in tokens,
    references and challenges; empty: ``http://`` or, with a certificate, ``https://``, and the
    first of `allowed_hosts` or ``host:port``."""
    allowed_hosts: str = ""
    """`Host` headers, separated by commas, that may appear in sign-in challenges when no
    `public_url` is set. Any other gets the first of these. ``entrepot dev`` answers under these
    names too, besides the loopback names."""
    family_hosts: str = ""
    """Hosts of their own, such as ``pull=cr.example.com``, separated by commas; before the ``=`` is
    ``pull``, ``console`` or a family, such as ``auth``. What is not listed is at `public_url`; what
    is listed twice is at both, and clients are told the first."""
    region: str = "local"
    """Region that names of resources carry: lower-case letters, digits and hyphens. Never change it
    later."""
    root_key_file: str = ""
    """File of the root key; empty: ``root.key`` in the `data` folder."""
    trusted_proxies: str = ""
    """Networks, separated by commas, of proxies whose ``X-Forwarded-For`` is trusted: of the one
    that TLS ends at. Without it, all clients of the proxy count as one address, and can block each
    other's sign-in."""
    tls: Literal["", "own"] = ""
    """``own``: without files, serve TLS with a certificate of the install's own authority."""
    tls_certificate: str = ""
    """File of the certificate that is served, and behind it those of its issuers; empty: plain
    HTTP."""
    tls_key: str = ""
    """File of its private key."""
    founders: Founders = "nobody"
    """Who may create organizations and accounts through ``/v1``: ``nobody``; ``owners`` of an
    organization that is not personal, accounts in their own; or ``anyone`` who can sign in."""
    container_password_seconds: int = 12 * 3600
    """Longest life of a named password for container clients that a person makes."""
    sealing: Literal["on", "off"] = "on"
    """Whether ``entrepot serve`` stores new blobs encrypted. With ``off``, those that are stay
    readable, and no repository can be bound to a key."""
    kms_provider: Literal["embedded", "aws"] = "embedded"
    """Who wraps the material of keys: the root key, or AWS KMS."""
    kms_aws_key: str = ""
    """ARN, id or alias of the key in AWS KMS, which needs the extra ``entrepot[aws]``."""
    kms_aws_endpoint: str = ""
    """URL of AWS KMS; empty: AWS's own in the key's region."""
    compression: Literal["on", "off"] = "on"
    """Whether new sealed blobs are compressed where that pays."""
    catalog_file: str = ""
    """JSON file of the regions and prices in ``/v1/regions`` and ``/v1/prices``; empty: the
    packaged file."""
    cors_origins: str = ""
    """Origins, such as ``https://app.example.com``, separated by commas, whose web pages may read
    ``/v1`` and ``/v2`` with a bearer token, never with cookies; of ``entrepot serve`` alone."""
    operators: str = ""
    """Handles of accounts, separated by commas, that act for the install: who has the right in one
    of them sets quotas of all accounts."""
    audit_seconds: int = 365 * 24 * 3600
    """Age at which events of the audit log are deleted."""
    oidc_internal_origins: str = ""
    """Origins, separated by commas, of identity providers that may have an address that is not
    public, and may be plain HTTP."""
    upstream_allowed: str = ""
    """Upstream registries that are not on the public internet, separated by commas: origins, such
    as ``http://registry.internal:5000``, which may have any address and be plain HTTP, and
    networks, such as ``10.20.0.0/16``, whose hosts are asked over https."""
    webhook_allowed: str = ""
    """Webhooks that subscriptions may name besides those on the public internet, separated by
    commas: origins and networks."""
    smtp_url: str = ""
    """Mail server that takes the platform's own mail, such as that to subscribers:
    ``smtp://USER:PASSWORD@HOST:PORT``, or ``smtps://``; empty: it sends none, unless
    `email_sending` is ``direct``."""
    smtp_from: str = ""
    """Address that the platform's own mail is from."""
    certificate_grants: str = ""
    """Domains, separated by commas, for which accounts get certificates without a proof by DNS,
    such as ``corp.example=acme``; ``=*`` grants one to all accounts."""
    certificate_zone: str = ""
    """Zone of the platform, such as ``cloud.example.com``, below which the names are that the
    challenges of certificates lead to; empty: only granted domains get certificates."""
    certificate_url: str = ""
    """Base URL, best of plain HTTP, at which clients of certificates find revocation lists; empty:
    that of the registry."""
    dns_resolver: str = ""
    """Address of the resolver that challenges are looked up with, ``ADDRESS`` or ``ADDRESS:PORT``;
    empty: those of the machine."""
    mirrors: str = ""
    """Registries whose names clients ask for as such, and the account and prefix of each here, such
    as ``docker.io=acme/hub``, separated by commas. Before the ``=`` may be a `Host` of requests."""
    acme: AcmeSettings = field(default_factory=AcmeSettings)
    certificates: CertificateSettings = field(default_factory=CertificateSettings)
    billing: BillingSettings = field(default_factory=BillingSettings)
    email: EmailSettings = field(default_factory=EmailSettings)
    node: NodeSettings = field(default_factory=NodeSettings)
    limits: Limits = field(default_factory=Limits)
    delays: Delays = field(default_factory=Delays)
    scrubbing: Scrubbing = field(default_factory=Scrubbing)
    plain_sealing: PlainSealing = field(default_factory=PlainSealing)
    store: StoreSettings = field(default_factory=StoreSettings)

    def __post_init__(self) -> None:
        """Raise SettingsError if a value is invalid."""
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
            self.own_hosts,
            self.smarthost,
            self.s3_name,
            self.granted_domains,
            self.zone,
            self.resolver,
        )
        groups = (
            self.email,
            self.node,
            self.limits,
            self.delays,
            self.scrubbing,
            self.plain_sealing,
            self.store,
        )
        for group in (self, *groups):
            check_numbers(group)
        self._check_metrics()
        self._check_blobs()
        for name in ("public_url", "certificate_url"):
            url = getattr(self, name)
            if url and (problem := public_url_problem(url)):
                raise SettingsError(f"{name}: {problem}")
        for name, words in _WORDS.items():
            if (given := getattr(self, name)) not in words:
                raise SettingsError(f"{name} is {' or '.join(words)}, not {given!r}")
        if self.compression not in ("on", "off"):
            raise SettingsError(f"compression is on or off, not {self.compression!r}")
        if self.kms_provider == "aws" and not self.kms_aws_key:
            raise SettingsError("kms_provider aws needs kms_aws_key, the ARN of a key in AWS KMS")
        if self.founders not in get_args(Founders):
            raise SettingsError(
                f"founders is one of {', '.join(get_args(Founders))}, not {self.founders!r}"
            )

    def _check_region(self) -> None:
        """Raise SettingsError if names of resources cannot carry the region."""
        if not _REGION.fullmatch(self.region):
            raise SettingsError(
                f"region: {self.region!r} is no name of a region such as local or eu-1: lower-case"
                " letters, digits and hyphens, at most 63"
            )

    def _check_blobs(self) -> None:
        """Raise SettingsError if a blob may be larger than its store takes."""
        most = self.limits.max_blob_bytes
        if self.store.store_s3_bucket and most > MOST_S3_BLOB_BYTES:
            raise SettingsError(
                f"max_blob_bytes: a bucket of S3 takes blobs of at most {MOST_S3_BLOB_BYTES} bytes,"
                f" not {most}"
            )

    def _check_metrics(self) -> None:
        """Raise SettingsError if the endpoint of the metrics is where the server itself listens."""
        address = self.metrics_address
        if address is None or not address[1]:
            return
        for port, what in ((self.port, "registry"), (self.s3_port, "S3 endpoint")):
            if port == address[1] and share_a_port(self.host, address[0]):
                raise SettingsError(
                    f"metrics: {self.metrics!r} is where the {what} listens; name another port,"
                    " such as 127.0.0.1:9464"
                )

    def _check_tls(self) -> None:
        """Raise SettingsError if the settings of TLS do not fit together."""
        if bool(self.tls_certificate) is not bool(self.tls_key):
            missing = "tls_key" if self.tls_certificate else "tls_certificate"
            raise SettingsError(f"a certificate and its key are set together; {missing} is not set")
        if self.tls not in ("", "own"):
            raise SettingsError(f"tls is own or empty, not {self.tls!r}")
        if problem := self.acme.problem:
            raise SettingsError(problem)
        if self.tls_certificate and self.acme.names:
            raise SettingsError("tls_certificate and tls_acme exclude each other; set one of them")
        named = {urlsplit(each).hostname or "" for each in self.urls if self.own_hosts}
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
    def operator_handles(self) -> frozenset[str]:
        """Return the handles of the accounts that act for the install."""
        return frozenset(each.strip() for each in self.operators.split(",") if each.strip())

    @property
    def speaks_tls(self) -> bool:
        """Return True if the server has a certificate, or orders one."""
        return bool(self.tls or self.tls_certificate or self.acme.names)

    @property
    def own_folder(self) -> Path | None:
        """Return the folder of a certificate of the install's own authority, or None."""
        if not self.tls or self.tls_certificate or self.acme.names:
            return None
        return local_folder(self.root_key.absolute().parent)

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

    @property
    def acme_folder(self) -> Path | None:
        """Return the folder of the certificate that is ordered, or None if none is."""
        if not self.acme.names:
            return None
        return own_folder(self.root_key.absolute().parent, self.acme.tls_acme_directory)

    def check_data(self) -> None:
        """Raise SettingsError if the data folder is a file, or would be below one."""
        with suppress(OSError):  # a folder that may not be read: opening it gives the error
            for place in (self.data, *self.data.parents):
                if place.exists() and not place.is_dir():
                    raise SettingsError(
                        f"data: {place} is a file, and the data are in a folder; name one that"
                        " exists, or that can be made (--data)"
                    )

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
    def tls_files(self) -> TlsFiles | None:
        """Return the files of the certificate to serve, or None for plain HTTP."""
        folder = self.acme_folder or self.own_folder
        if folder is not None:
            return own_certificate(folder)
        if not self.tls_certificate:
            return None
        return TlsFiles(Path(self.tls_certificate), Path(self.tls_key))

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Return host and port of the Prometheus endpoint, or None if there is none.

        Raises:
            SettingsError: `metrics` is no address.

        """
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
        """Return the hosts of each part that `family_hosts` lists; the first is told to clients.

        Raises:
            SettingsError: an entry is not NAME=HOST, or there is no `public_url`.

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
        """Return the hosts of `allowed_hosts`, else those that a certificate is ordered for.

        Raises:
            SettingsError: one of them is not a host.

        """
        # Port 443 of a name leads here, whatever the port is that the server listens on.
        hosts = listed(self.allowed_hosts) or self.acme.names
        for host in hosts:
            if not HOST.fullmatch(host):
                raise SettingsError(f"allowed_hosts: {host!r} is no HOST or HOST:PORT")
        return hosts

    @property
    def s3_name(self) -> str:
        """Return the host name of the S3 endpoint, or an empty text.

        Raises:
            SettingsError: `s3_host` is none, or `s3_port` is the registry's.

        """
        if self.s3_host and not _S3_HOST.fullmatch(self.s3_host):
            raise SettingsError(
                f"s3_host: {self.s3_host!r} is no host name in lower case such as s3.example.com"
            )
        if self.s3_port and self.s3_port == self.port:
            raise SettingsError("s3_port: the S3 endpoint has another port than the registry")
        return self.s3_host

    @property
    def seals(self) -> bool:
        """Return True if new blobs are stored encrypted."""
        return self.sealing == "on"

    @property
    def origins(self) -> tuple[str, ...]:
        """Return the origins of `cors_origins`.

        Raises:
            SettingsError: one of them is not an origin as browsers send it.

        """
        return listed_origins("cors_origins", self.cors_origins)

    @property
    def internal_issuers(self) -> tuple[str, ...]:
        """Return the origins of `oidc_internal_origins`.

        Raises:
            SettingsError: one of them is not an origin as browsers send it.

        """
        return listed_origins("oidc_internal_origins", self.oidc_internal_origins)

    @property
    def allowed_upstreams(self) -> Allowed:
        """Return what upstream registries may be asked besides those of the public internet.

        Raises:
            SettingsError: an entry is neither an origin nor a network.

        """
        return allowed_destinations("upstream_allowed", self.upstream_allowed)

    @property
    def allowed_webhooks(self) -> Allowed:
        """Return what webhooks may be asked besides those of the public internet.

        Raises:
            SettingsError: an entry is neither an origin nor a network.

        """
        return allowed_destinations("webhook_allowed", self.webhook_allowed)._replace(
            takes_plain_http=True
        )

    @property
    def smarthost(self) -> Smarthost | None:
        """Return the mail server of `smtp_url`, or None if there is none.

        Raises:
            SettingsError: it is no URL of one, or there is no `smtp_from` that is an address.

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
    def mail_host_name(self) -> str:
        """Return the name by which this machine greets mail servers."""
        return self.email.email_host_name or urlsplit(self.url).hostname or "localhost"

    @property
    def granted_domains(self) -> tuple[Grant, ...]:
        """Return the domains of `certificate_grants`.

        Raises:
            SettingsError: an entry is not DOMAIN=ACCOUNT.

        """
        try:
            return parse_grants(listed(self.certificate_grants))
        except GrantError as error:
            raise SettingsError(f"certificate_grants: {error}") from None

    @property
    def zone(self) -> str:
        """Return `certificate_zone` in lower case, without a dot at its end.

        Raises:
            SettingsError: it is no domain.

        """
        zone = self.certificate_zone.lower().removesuffix(".")
        if zone and not HOST.fullmatch(zone):
            raise SettingsError(f"certificate_zone: {zone!r} is no domain such as example.com")
        return zone

    @property
    def resolver(self) -> tuple[str, int] | None:
        """Return address and port of `dns_resolver`, or None for those of the machine.

        Raises:
            SettingsError: it is no address.

        """
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
        """Return the account and prefix by each registry or host of `mirrors`.

        Raises:
            SettingsError: an entry is not HOST=ACCOUNT/PREFIX, or a host is listed twice.

        """
        return mirrored_prefixes(self.mirrors)

    @property
    def root_key(self) -> Path:
        """Return the file of the root key."""
        return Path(self.root_key_file) if self.root_key_file else self.data / "root.key"

    @property
    def catalog(self) -> Path:
        """Return the file of regions and prices."""
        return Path(self.catalog_file) if self.catalog_file else _PACKAGED_CATALOG

    @property
    def proxies(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Return the networks of trusted proxies.

        Raises:
            SettingsError: one of them is not a network.

        """
        try:
            return tuple(ip_network(text) for text in listed(self.trusted_proxies))
        except ValueError as error:
            raise SettingsError(f"trusted_proxies: {error}") from None

    @property
    def database(self) -> str:
        """Return the URL of the metadata database.

        Raises:
            SettingsError: the URL has an unsupported scheme.

        """
        if self.database_url and not self.database_url.startswith(_DATABASES):
            raise SettingsError(f"database_url begins with {' or '.join(_DATABASES)}")
        return self.database_url or f"sqlite:///{self.data.absolute() / 'metadata.db'}"

    @property
    def buckets(self) -> Path:
        """Return the folder of the bytes of buckets."""
        return self.data.absolute() / "buckets"

    @property
    def cache(self) -> Path:
        """Return the folder of what this machine keeps of a bucket; it may be deleted."""
        return self.data.absolute() / "cache"

    @property
    def blobs(self) -> Path:
        """Return the folder of the blob store."""
        return self.data.absolute() / "blobs"
