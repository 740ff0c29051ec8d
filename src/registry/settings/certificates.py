"""Settings of certificates: those ordered for the server's own names, and those of accounts.

Certificates of accounts come from an ACME authority, or from the install's own authority. The name
server answers DNS challenges in the certificate zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from registry.settings.groups import MOST_PORT
from registry.settings.texts import listed

AGREED: Final = "agree"
_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+(?![0-9]+\Z)[a-z0-9-]{2,63}"
)
_ADDRESS: Final = re.compile(r"(?P<host>[A-Za-z0-9.:-]*|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
EMAIL: Final = re.compile(r"(?:[!-~]{1,64}@[A-Za-z0-9.-]{1,253})?")


def parse_address(text: str) -> tuple[str, int] | None:
    """Return the host and port of ``HOST:PORT``, or None if the text is malformed."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > MOST_PORT:
        return None
    return found["host"].strip("[]"), int(found["port"])


@dataclass(frozen=True, slots=True)
class AcmeSettings:
    """The server's own certificate: its names, and the ACME authority that issues it."""

    tls_acme: str = ""
    """Host names, separated by commas, for which the server orders a certificate by ACME."""
    tls_acme_terms: str = ""
    """``agree``: the operator agrees to the terms of the authority."""
    tls_acme_email: str = ""
    """Address for the authority's messages to the operator."""
    tls_acme_directory: str = "https://acme-v02.api.letsencrypt.org/directory"
    """URL of the authority's directory; by default that of Let's Encrypt."""
    tls_acme_roots: str = ""
    """PEM file of the roots that verify the directory's own certificate; empty: the public ones."""
    tls_acme_http: str = ""
    """``host:port`` that answers the authority by plain HTTP (http-01), and redirects clients to
    https; empty: the authority is answered where TLS is served (tls-alpn-01)."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names in `tls_acme` in lower case, each once."""
        return tuple(dict.fromkeys(listed(self.tls_acme.lower())))

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Return host and port of `tls_acme_http`; None if it is empty or malformed."""
        return parse_address(self.tls_acme_http)

    @property
    def problem(self) -> str:
        """Return the first problem, with the setting's name before it, or an empty string."""
        if not self.tls_acme:
            return ""
        for name in self.names:
            if _NAME.fullmatch(name) is None:
                return (
                    f"tls_acme: {name!r} is no full name of a host, such as registry.example.com;"
                    " authorities sign no addresses, no wildcards and no single words this way"
                )
        if not self.tls_acme_directory.startswith("https://"):
            return f"tls_acme_directory is a URL of https://, not {self.tls_acme_directory!r}"
        if self.tls_acme_terms != AGREED:
            return (
                f"tls_acme_terms is not {AGREED!r}: read the terms of the authority, whose URL is"
                f" termsOfService in {self.tls_acme_directory}, and set it (--tls-acme-terms"
                f" {AGREED}) if you agree"
            )
        if EMAIL.fullmatch(self.tls_acme_email) is None:
            return f"tls_acme_email is an address, not {self.tls_acme_email!r}"
        if self.tls_acme_http and self.http_address is None:
            return f"tls_acme_http: an address is HOST:PORT, not {self.tls_acme_http!r}"
        return ""


_HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z]+")


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """The authority of the accounts' certificates, and the name server of the certificate zone."""

    certificate_acme_directory: str = ""
    """URL of the directory of an ACME authority that issues the certificates of accounts; empty:
    the install's own authority issues them."""
    certificate_acme_terms: str = ""
    """``agree``: the operator agrees to the terms of that authority."""
    certificate_acme_email: str = ""
    """Address for that authority's messages to the operator."""
    certificate_acme_roots: str = ""
    """PEM file of the roots that verify the directory's own certificate; empty: the public ones."""
    dns_listen: str = ""
    """``host:port``, over UDP and TCP, of the name server of `certificate_zone`; empty: none."""
    dns_name_servers: str = ""
    """Host names, separated by commas, of the servers that the zone is delegated to."""

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Return the names in `dns_name_servers` in lower case, each once."""
        names = listed(self.dns_name_servers.lower())
        return tuple(dict.fromkeys(name.removesuffix(".") for name in names))

    @property
    def dns_address(self) -> tuple[str, int] | None:
        """Return host and port of `dns_listen`; None if it is empty or malformed."""
        return parse_address(self.dns_listen)

    def problem(self, zone: str) -> str:
        """Return the first problem, with the setting's name before it, or an empty string.

        `zone` is the normalized `certificate_zone`; empty if there is none.
        """
        return self._acme_problem(zone) or self._dns_problem(zone)

    def _acme_problem(self, zone: str) -> str:
        directory = self.certificate_acme_directory
        if not directory:
            return ""
        if not directory.startswith("https://"):
            return f"certificate_acme_directory is a URL of https://, not {directory!r}"
        if not zone:
            return "certificate_acme_directory needs certificate_zone, where challenges lead to"
        if self.certificate_acme_terms != AGREED:
            return (
                f"certificate_acme_terms is not {AGREED!r}: read the terms of the authority, whose"
                f" URL is termsOfService in {directory}, and set it if you agree"
            )
        if EMAIL.fullmatch(self.certificate_acme_email) is None:
            return f"certificate_acme_email is an address, not {self.certificate_acme_email!r}"
        return ""

    def _dns_problem(self, zone: str) -> str:
        if not self.dns_listen:
            return ""
        if self.dns_address is None:
            return f"dns_listen: an address is HOST:PORT, not {self.dns_listen!r}"
        if not zone:
            return "dns_listen needs certificate_zone, the zone that is answered for"
        if not self.name_servers:
            return f"dns_listen needs dns_name_servers, those that {zone} is delegated to"
        for name in self.name_servers:
            if _HOST_NAME.fullmatch(name) is None:
                return f"dns_name_servers: {name!r} is no name of a host"
            if name == zone or name.endswith(f".{zone}"):
                return (
                    f"dns_name_servers: {name} is in {zone}, where no addresses are; name it"
                    " outside, such as ns1 in the zone above"
                )
        return ""
