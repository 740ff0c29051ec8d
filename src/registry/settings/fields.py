"""The settings of a process as they are configured, with their defaults and their groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cloudcore.iam.principal import Founders
from registry.settings.certificates import AcmeSettings, CertificateSettings
from registry.settings.email import EmailSettings
from registry.settings.groups import (
    BillingSettings,
    Delays,
    Limits,
    PlainSealing,
    Scrubbing,
)
from registry.settings.node import NodeSettings
from registry.settings.store import StoreSettings


@dataclass(frozen=True, slots=True)
class SettingFields:
    """The settings as they are configured, before `Settings` derives values from them."""

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
    """Host name of the S3 endpoint, with buckets as subdomains; empty: the endpoint is only at
    `s3_port`, with buckets in paths."""
    s3_any_region: Literal["on", "off"] = "off"
    """``on``: the S3 endpoint accepts requests that are signed for any region."""
    public_url: str = ""
    """Base URL at which clients reach the registry, a scheme and a host, no path. Tokens,
    references and challenges contain it. Empty: ``http://`` or, with a certificate, ``https://``,
    and the first of `allowed_hosts` or ``host:port``."""
    allowed_hosts: str = ""
    """`Host` headers, separated by commas, that may appear in sign-in challenges when no
    `public_url` is set. Any other gets the first of these. ``entrepot dev`` answers under these
    names too, besides the loopback names."""
    family_hosts: str = ""
    """Separate hosts for parts of the install, such as ``pull=cr.example.com``, separated by
    commas. Before the ``=`` is ``pull``, ``console`` or a family, such as ``auth``. A part that is
    not listed is at `public_url`; a part that is listed twice is at both hosts, and URLs for
    clients have the first."""
    region: str = "local"
    """Region that names of resources carry: lower-case letters, digits and hyphens. Never change it
    later."""
    root_key_file: str = ""
    """File of the root key; empty: ``root.key`` in the `data` folder."""
    trusted_proxies: str = ""
    """Networks, separated by commas, of proxies whose ``X-Forwarded-For`` is trusted, such as one
    that terminates TLS. Without this setting, all clients of the proxy count as one address, and
    can block each other's sign-in."""
    tls: Literal["own", ""] = ""
    """``own``: without files, serve TLS with a certificate of the install's own authority."""
    tls_certificate: str = ""
    """File of the certificate to serve, followed by those of its issuers; empty: plain HTTP."""
    tls_key: str = ""
    """File of the certificate's private key."""
    founders: Founders = "nobody"
    """Who may create organizations and accounts through ``/v1``: ``nobody``; ``owners`` of an
    organization that is not personal, who may create accounts in it; or ``anyone`` who can sign in.
    """
    container_password_seconds: int = 12 * 3600
    """Maximum lifetime of a named password that a person makes for container clients."""
    sealing: Literal["on", "off"] = "on"
    """Whether ``entrepot serve`` stores new blobs encrypted. With ``off``, blobs that are encrypted
    stay readable, and no repository can be bound to a key."""
    kms_provider: Literal["embedded", "aws"] = "embedded"
    """What wraps the material of keys: ``embedded``, the root key; ``aws``, AWS KMS."""
    kms_aws_key: str = ""
    """ARN, id or alias of the key in AWS KMS, which needs the extra ``entrepot[aws]``."""
    kms_aws_endpoint: str = ""
    """URL of AWS KMS; empty: AWS's own in the key's region."""
    compression: Literal["on", "off"] = "on"
    """``on``: new sealed blobs are compressed where that pays."""
    catalog_file: str = ""
    """JSON file of the regions and prices in ``/v1/regions`` and ``/v1/prices``; empty: the
    packaged file."""
    cors_origins: str = ""
    """Origins, such as ``https://app.example.com``, separated by commas, whose web pages may read
    ``/v1`` and ``/v2`` with a bearer token, never with cookies. ``entrepot dev`` ignores it."""
    operators: str = ""
    """Handles of the accounts, separated by commas, that operate the install: principals of these
    accounts who have the right set the quotas of all accounts."""
    audit_seconds: int = 365 * 24 * 3600
    """Age at which events of the audit log are deleted."""
    oidc_internal_origins: str = ""
    """Origins, separated by commas, of identity providers that may have a private address and use
    plain HTTP."""
    upstream_allowed: str = ""
    """Upstream registries that are not on the public internet, separated by commas: origins, such
    as ``http://registry.internal:5000``, which may have any address and be plain HTTP, and
    networks, such as ``10.20.0.0/16``, whose hosts are reached by https."""
    webhook_allowed: str = ""
    """Webhooks that subscriptions may name besides those on the public internet, separated by
    commas: origins and networks."""
    smtp_url: str = ""
    """Mail server that sends the platform's own mail, such as mail to subscribers:
    ``smtp://USER:PASSWORD@HOST:PORT``, or ``smtps://``; empty: none is sent, unless `email_sending`
    is ``direct``."""
    smtp_from: str = ""
    """Sender address of the platform's own mail."""
    certificate_grants: str = ""
    """Domains, separated by commas, for which accounts get certificates without a proof by DNS,
    such as ``corp.example=acme``; ``corp.example=*`` grants it to all accounts."""
    certificate_zone: str = ""
    """DNS zone of the platform, such as ``cloud.example.com``, with the names to which accounts
    delegate the challenges of their certificates; empty: only granted domains get certificates."""
    certificate_url: str = ""
    """Base URL, preferably plain HTTP, at which clients that verify certificates find revocation
    lists; empty: that of the registry."""
    dns_resolver: str = ""
    """Resolver with which challenges are looked up, ``ADDRESS`` or ``ADDRESS:PORT``; empty: the
    machine's resolvers."""
    mirrors: str = ""
    """Upstream registries that this registry mirrors for clients, each with the account and prefix
    of its images here, such as ``docker.io=acme/hub``, separated by commas. Before the ``=`` may
    also be a `Host` of requests."""
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
