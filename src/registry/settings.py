"""Settings: plain values, read once at the composition root."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from cloudcore.clock import MICROSECONDS
from cloudcore.iam.founders import Founders
from cloudcore.outbound.destinations import Allowed
from cloudcore.outbound.smarthosts import Smarthost, SmtpUrlError, parse_smarthost
from cloudcore.serving.tls_paths import TlsFiles
from registry.public_url import HOST, is_every_address, public_url_problem

PREFIX = "ENTREPOT_"
CLIENT_VARIABLES: Final = frozenset(
    PREFIX + name
    for name in (
        "ACCESS_KEY_ID",
        "CREDENTIALS",
        "INSECURE_HTTP",
        "REGISTRY",
        "SECRET_ACCESS_KEY",
        "SECRET_ACCESS_KEY_FILE",
    )
)
"""Variables of the commands that call a registry; a server ignores them."""

_ORIGIN: Final = re.compile(
    r"(?:http(?!://[^/]*:80\Z)|https(?!://[^/]*:443\Z))://"
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::[1-9][0-9]{0,4})?"
)

_PREFIX: Final = re.compile(
    r"(?=.{2,32}/)[a-z0-9]+(?:-[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*){1,3}"
)
"""``<account>/<prefix>``: an account's handle, and one to three components."""

_SENDER: Final = re.compile(r"[!-~]{1,64}@[A-Za-z0-9.-]{1,253}")
_PACKAGED_CATALOG: Final = Path(__file__).with_name("catalog.json")
_DATABASES = ("sqlite:///", "postgresql://", "postgres://")


MOST_INLINE_BYTES: Final = 16 * 1024
"""Most bytes of a blob in the database, whatever the setting."""


class SettingsError(Exception):
    """A setting is unknown, or its value is invalid."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of uploads and touches. Sizes in bytes, times in seconds."""

    max_blob_bytes: int = 100 * 1024**3
    upload_idle_seconds: int = 24 * 3600
    max_open_uploads: int = 5000
    """Maximum of open upload sessions of an account."""
    max_open_uploads_per_repository: int = 1000
    inline_max_bytes: int = MOST_INLINE_BYTES
    """Size up to which a blob is kept in the database, and not in a file; 0: none is."""
    kept_answers_bytes: int = 32 * 1024**2
    """Memory of a worker for answers that it gives again; 0: none is kept."""
    touch_after_seconds: int = 12 * 3600
    """Age of a link's last use from which a HEAD refreshes it."""

    @property
    def upload_idle(self) -> int:
        """Return the idle time of an upload session in microseconds."""
        return self.upload_idle_seconds * MICROSECONDS

    @property
    def touch_after(self) -> int:
        """Return the age of a link's last use from which a HEAD refreshes it, in microseconds."""
        return self.touch_after_seconds * MICROSECONDS


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays before each step of the collector, in seconds.

    The collector is safe with all of them at 0, since foreign keys and locks protect what is in
    use. The delays give clients time to use a blob they have found, and operators time to recover.
    """

    gc_grace_seconds: int = 24 * 3600
    """Time that an unreferenced blob stays in its repository after its last use."""
    gc_condemned_seconds: int = 900
    """Time that an unlinked object is kept for another push of the same bytes."""
    gc_quarantine_seconds: int = 3600
    """Time for which the bytes of a swept object can be recovered."""
    gc_orphan_seconds: int = 7 * 24 * 3600
    """Time after which stored files without a row are deleted."""

    @property
    def grace(self) -> int:
        """Return `gc_grace_seconds` in microseconds."""
        return self.gc_grace_seconds * MICROSECONDS

    @property
    def condemned(self) -> int:
        """Return `gc_condemned_seconds` in microseconds."""
        return self.gc_condemned_seconds * MICROSECONDS

    @property
    def orphan(self) -> int:
        """Return `gc_orphan_seconds` in microseconds."""
        return self.gc_orphan_seconds * MICROSECONDS

    @property
    def quarantine(self) -> int:
        """Return `gc_quarantine_seconds` in microseconds."""
        return self.gc_quarantine_seconds * MICROSECONDS


@dataclass(frozen=True, slots=True)
class Scrubbing:
    """How the scrub in the background reads stored bytes, to find damaged ones."""

    scrub_every_seconds: int = 30 * 24 * 3600
    """Time within which the bytes of every blob and manifest are read once."""
    scrub_rate_bytes: int = 32 * 1024**2
    """Bytes that it may read per second; 0 turns it off."""

    @property
    def every(self) -> int:
        """Return `scrub_every_seconds` in microseconds."""
        return self.scrub_every_seconds * MICROSECONDS


@dataclass(frozen=True, slots=True)
class PlainSealing:
    """How the run in the background seals blobs that were stored plain."""

    seal_rate_bytes: int = 32 * 1024**2
    """Bytes that it may read per second; 0 turns it off."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a process."""

    data: Path
    """Folder of the blobs and, without a `database_url`, of the SQLite database."""
    database_url: str = ""
    host: str = "127.0.0.1"
    port: int = 5000
    workers: int = 1
    metrics: str = ""
    """``host:port`` of the Prometheus endpoint; empty: no endpoint."""
    public_url: str = ""
    """Base URL at which clients reach the registry, a scheme and a host; empty: ``http://``
    or, with a certificate, ``https://``, and the first of `allowed_hosts` or ``host:port``."""
    allowed_hosts: str = ""
    """`Host` headers, separated by commas, that may appear in sign-in challenges when no
    `public_url` is set. Any other gets the first of these."""
    region: str = "local"
    root_key_file: str = ""
    """File of the root key; empty: ``root.key`` in the `data` folder."""
    trusted_proxies: str = ""
    """Networks, separated by commas, of proxies whose ``X-Forwarded-For`` is trusted."""
    tls_certificate: str = ""
    """File of the certificate that is served, and behind it those of its issuers; empty: plain
    HTTP."""
    tls_key: str = ""
    """File of its private key."""
    founders: Founders = "nobody"
    """Who may create organizations and accounts through ``/v1``."""
    sealing: Literal["on", "off"] = "on"
    """Whether ``entrepot serve`` stores new blobs encrypted; sealed ones stay readable."""
    kms_provider: Literal["embedded", "aws"] = "embedded"
    """Who wraps the material of keys: the root key, or AWS KMS."""
    kms_aws_key: str = ""
    """ARN, id or alias of the key in AWS KMS."""
    kms_aws_endpoint: str = ""
    """URL of AWS KMS; empty: AWS's own in the key's region."""
    compression: Literal["on", "off"] = "on"
    """Whether new sealed blobs are compressed where that pays."""
    catalog_file: str = ""
    """JSON file of the regions and prices in ``/v1/regions`` and ``/v1/prices``; empty: the
    packaged file."""
    cors_origins: str = ""
    """Origins, separated by commas, whose web pages may read ``/v1`` and ``/v2``."""
    audit_seconds: int = 365 * 24 * 3600
    """Age at which events of the audit log are deleted."""
    oidc_internal_origins: str = ""
    """Origins, separated by commas, of identity providers that may have an address that is not
    public, and may be plain HTTP."""
    upstream_allowed: str = ""
    """Upstream registries inside, separated by commas: origins, which may have any address and be
    plain HTTP, and networks, whose hosts are asked over https."""
    webhook_allowed: str = ""
    """Webhooks inside, separated by commas: origins, and networks, that subscriptions may name
    besides those of the public internet."""
    smtp_url: str = ""
    """Mail server that takes the mail to subscribers: ``smtp://USER:PASSWORD@HOST:PORT``, or
    ``smtps://``; empty: nobody can subscribe by e-mail."""
    smtp_from: str = ""
    """Address that the mail to subscribers is from."""
    mirrors: str = ""
    """Registries whose names clients ask for as such, and the account and prefix of each here, such
    as ``docker.io=acme/hub``, separated by commas. Before the ``=`` may be a `Host` of requests."""
    limits: Limits = field(default_factory=Limits)
    delays: Delays = field(default_factory=Delays)
    scrubbing: Scrubbing = field(default_factory=Scrubbing)
    plain_sealing: PlainSealing = field(default_factory=PlainSealing)

    def __post_init__(self) -> None:
        """Raise SettingsError if a value is invalid."""
        _ = self.hosts, self.proxies, self.database, self.origins, self.internal_issuers
        _ = self.allowed_upstreams, self.allowed_webhooks, self.metrics_address, self.mirrored
        _ = self.smarthost
        for group in (self, self.limits, self.delays, self.scrubbing, self.plain_sealing):
            _check_numbers(group)
        if self.public_url and (problem := public_url_problem(self.public_url)):
            raise SettingsError(f"public_url: {problem}")
        if bool(self.tls_certificate) is not bool(self.tls_key):
            missing = "tls_key" if self.tls_certificate else "tls_certificate"
            raise SettingsError(f"a certificate and its key are set together; {missing} is not set")
        if self.tls_certificate and self.public_url.startswith("http://"):
            raise SettingsError(
                f"public_url: {self.public_url!r} is plain HTTP, but with tls_certificate the"
                f" server speaks TLS; set https://{self.public_url.removeprefix('http://')}"
            )
        if self.sealing not in ("on", "off"):
            raise SettingsError(f"sealing is on or off, not {self.sealing!r}")
        if self.kms_provider not in ("embedded", "aws"):
            raise SettingsError(f"kms_provider is embedded or aws, not {self.kms_provider!r}")
        if self.compression not in ("on", "off"):
            raise SettingsError(f"compression is on or off, not {self.compression!r}")
        if self.kms_provider == "aws" and not self.kms_aws_key:
            raise SettingsError("kms_provider aws needs kms_aws_key, the ARN of a key in AWS KMS")
        if self.founders not in get_args(Founders):
            raise SettingsError(
                f"founders is one of {', '.join(get_args(Founders))}, not {self.founders!r}"
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
        scheme = "https" if self.tls_certificate else "http"
        return f"{scheme}://{next(iter(self.hosts), f'{host}:{self.port}')}"

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
    def tls(self) -> TlsFiles | None:
        """Return the files of the certificate to serve, or None for plain HTTP."""
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
        is_port = port.isascii() and port.isdigit() and int(port) <= _RANGES["port"][1]
        if not colon or not is_port:
            raise SettingsError(f"metrics: an address is HOST:PORT, not {self.metrics!r}")
        return host.strip("[]"), int(port)

    @property
    def pull_host(self) -> str:
        """Return the ``host:port`` in image references and bearers."""
        return urlsplit(self.url).netloc

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts of `allowed_hosts`.

        Raises:
            SettingsError: one of them is not a host.

        """
        hosts = _listed(self.allowed_hosts)
        for host in hosts:
            if not HOST.fullmatch(host):
                raise SettingsError(f"allowed_hosts: {host!r} is no HOST or HOST:PORT")
        return hosts

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
        return _origins("cors_origins", self.cors_origins)

    @property
    def internal_issuers(self) -> tuple[str, ...]:
        """Return the origins of `oidc_internal_origins`.

        Raises:
            SettingsError: one of them is not an origin as browsers send it.

        """
        return _origins("oidc_internal_origins", self.oidc_internal_origins)

    @property
    def allowed_upstreams(self) -> Allowed:
        """Return what upstream registries may be asked besides those of the public internet.

        Raises:
            SettingsError: an entry is neither an origin nor a network.

        """
        return _allowed("upstream_allowed", self.upstream_allowed)

    @property
    def allowed_webhooks(self) -> Allowed:
        """Return what webhooks may be asked besides those of the public internet.

        Raises:
            SettingsError: an entry is neither an origin nor a network.

        """
        return _allowed("webhook_allowed", self.webhook_allowed)._replace(takes_plain_http=True)

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
    def mirrored(self) -> Mapping[str, str]:
        """Return the account and prefix by each registry or host of `mirrors`.

        Raises:
            SettingsError: an entry is not HOST=ACCOUNT/PREFIX, or a host is listed twice.

        """
        found: dict[str, str] = {}
        for entry in _listed(self.mirrors):
            host, _, prefix = entry.partition("=")
            if not HOST.fullmatch(host) or not _PREFIX.fullmatch(prefix):
                raise SettingsError(
                    f"mirrors: {entry!r} is no HOST=ACCOUNT/PREFIX such as docker.io=acme/hub"
                )
            if found.setdefault(host.lower(), prefix) != prefix:
                raise SettingsError(f"mirrors: {host} is listed twice")
        return found

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
            return tuple(ip_network(text) for text in _listed(self.trusted_proxies))
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
    def blobs(self) -> Path:
        """Return the folder of the blob store."""
        return self.data.absolute() / "blobs"

    @classmethod
    def from_env(cls, environ: Mapping[str, str], defaults: Settings) -> Settings:
        """Return `defaults` with the values of the ``ENTREPOT_*`` variables.

        Raises:
            SettingsError: a variable is not a setting, or a value is not a whole number.

        """
        values: dict[str, str | int] = {}
        for variable, text in environ.items():
            if not variable.startswith(PREFIX) or variable in CLIENT_VARIABLES:
                continue
            name = variable.removeprefix(PREFIX).lower()
            if name not in NAMES:
                alike = similar_name(name)
                meant = f"; did you mean {PREFIX}{alike.upper()}?" if alike else ""
                raise SettingsError(
                    f"{variable} is not a setting{meant or '; the README lists them'}"
                )
            values[name] = _number(variable, text) if name in NUMBERS else text
        return with_values(defaults, values)


_MOST_SECONDS: Final = 100 * 366 * 24 * 3600
"""A hundred years: a moment that much later is still a number of the database."""
_RANGES: Final = {
    "port": (0, 65535),
    "workers": (1, 1000),
    "scrub_every_seconds": (3600, _MOST_SECONDS),
    "inline_max_bytes": (0, MOST_INLINE_BYTES),
}
_GROUPS: Final = {
    "limits": Limits,
    "delays": Delays,
    "scrubbing": Scrubbing,
    "plain_sealing": PlainSealing,
}
_GROUP_OF: Final = {item.name: name for name, group in _GROUPS.items() for item in fields(group)}
NUMBERS: Final = frozenset({"port", "workers", "audit_seconds", *_GROUP_OF})
"""The settings that are whole numbers; all others are text."""
LISTS: Final = frozenset(
    {
        *("allowed_hosts", "trusted_proxies", "cors_origins"),
        *("oidc_internal_origins", "upstream_allowed", "webhook_allowed", "mirrors"),
    }
)
"""The settings that are lists, separated by commas."""
NAMES: Final = (
    *(item.name for item in fields(Settings) if item.name not in _GROUPS),
    *_GROUP_OF,
)
"""Every setting, those of the groups too."""


def with_values(defaults: Settings, values: Mapping[str, str | int]) -> Settings:
    """Return `defaults` with these values, by `NAMES`; numbers are numbers, all else is text."""
    top: dict[str, Any] = {
        name: Path(str(value)) if name == "data" else value
        for name, value in values.items()
        if name not in _GROUP_OF
    }
    for group in _GROUPS:
        numbers: dict[str, Any] = {
            name: value for name, value in values.items() if _GROUP_OF.get(name) == group
        }
        top[group] = replace(getattr(defaults, group), **numbers)
    return replace(defaults, **top)


def similar_name(name: str) -> str:
    """Return the setting whose name is most like this one, or an empty string if none is."""
    return next(iter(get_close_matches(name.lower(), NAMES, n=1)), "")


def _allowed(name: str, text: str) -> Allowed:
    listed = _listed(text)
    origins = ",".join(part for part in listed if "://" in part)
    try:
        networks = tuple(ip_network(part) for part in listed if "://" not in part)
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None
    return Allowed(PREFIX + name.upper(), _origins(name, origins), networks)


def _origins(name: str, text: str) -> tuple[str, ...]:
    origins = _listed(text)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise SettingsError(
                f"{name}: {origin!r} is no origin such as https://app.example.com: in "
                "lower case, without a path, a default port or *"
            )
    return origins


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _check_numbers(group: Settings | Limits | Delays | Scrubbing | PlainSealing) -> None:
    """Raise SettingsError for a number that is out of its range."""
    for item in fields(group):
        value, name = getattr(group, item.name), item.name
        if not isinstance(value, int):
            continue
        least, most = _RANGES.get(name, (0, _MOST_SECONDS if name.endswith("_seconds") else 2**53))
        if not least <= value <= most:
            raise SettingsError(f"{name} is a number from {least} to {most}, not {value}")


def _number(variable: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise SettingsError(f"{variable} must be a whole number, not {text!r}")
    return int(text)
