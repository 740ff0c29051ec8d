"""The settings of an ACME authority for accounts, and of the name server of the zone."""

from __future__ import annotations

from pathlib import Path

from registry.settings.reading import with_values
from registry.settings.settings import Settings

GOOD = {
    "certificate_zone": "cloud.example.com",
    "certificate_acme_directory": "https://ca.example.com/directory",
    "certificate_acme_terms": "agree",
    "dns_listen": "203.0.113.7:53",
    "dns_name_servers": "NS1.example.com., ns2.example.net",
}


def made(**values: str) -> Settings:
    """Return settings with these values."""
    return with_values(Settings(Path("data")), values)


def test_authority_and_name_server_are_set() -> None:
    found = made(**GOOD).certificates
    assert found.dns_address == ("203.0.113.7", 53)
    assert found.name_servers == ("ns1.example.com", "ns2.example.net")
    assert made(**GOOD | {"dns_listen": "[::]:53"}).certificates.dns_address == ("::", 53)
    assert made().certificates.dns_address is None
