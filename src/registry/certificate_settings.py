"""The settings of an ACME authority for certificates, and of the name server of the zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from registry.acme_settings import AGREED, EMAIL, parse_address

_HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9])?\.)+[a-z]+")


@dataclass(frozen=True, slots=True)
class CertificateSettings:
    """Who issues the certificates of accounts, and who answers for the zone."""

    certificate_acme_directory: str = ""
    """URL of the directory of an ACME authority that issues the certificates of accounts; empty:
    the install's own authority does."""
    certificate_acme_terms: str = ""
    """``agree``: the operator agrees to the terms of that authority."""
    certificate_acme_email: str = ""
    """Address for that authority's messages to the operator."""
    certificate_acme_roots: str = ""
    """File of the roots, PEM, of the directory's own certificate; empty: the public ones."""
    dns_listen: str = ""
    """``host:port``, over UDP and TCP, of the name server of `certificate_zone`; empty: none."""
    dns_name_servers: str = ""
    """Host names, separated by commas, of the servers that the zone is delegated to."""

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Return the names in lower case, each once."""
        listed = (part.strip().lower() for part in self.dns_name_servers.split(","))
        return tuple(dict.fromkeys(name.removesuffix(".") for name in listed if name))

    @property
    def dns_address(self) -> tuple[str, int] | None:
        """Return host and port of `dns_listen`, or None."""
        return parse_address(self.dns_listen)

    def problem(self, zone: str) -> str:
        """Return what is wrong, with the setting before it, or an empty string."""
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
