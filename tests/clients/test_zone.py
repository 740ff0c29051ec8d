"""``entrepot serve`` answers for the zone of the platform, in each worker."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from registry.cli.server.serve import check_listeners
from registry.settings.certificates import CertificateSettings
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError
from tests.clients.programs import run
from tests.databases import planted
from tests.entrepot import initialized
from tests.live import start_registry
from tests.postgresql import free_port

ID = "0198c2f0-1111-7222-8333-444455556666"


@pytest.mark.client("dig")
def test_the_zone_is_served(tmp_path: Path) -> None:
    initialized(planted(tmp_path / "data"))
    port = free_port()
    settings = {
        "ENTREPOT_CERTIFICATE_ZONE": "cloud.example.com",
        "ENTREPOT_DNS_LISTEN": f"127.0.0.1:{port}",
        "ENTREPOT_DNS_NAME_SERVERS": "ns1.example.net",
        "ENTREPOT_WORKERS": "2",
    }
    registry = start_registry(tmp_path / "data", command="serve", env=settings)
    try:
        server = ("dig", "@127.0.0.1", "-p", str(port), "+tries=1")
        for number in range(8):  # from several ports: workers share the socket
            shown = run(*server, "+tcp" if number % 2 else "+notcp", "cloud.example.com", "SOA")
            assert "ns1.example.net. hostmaster.cloud.example.com." in shown
        shown = run(*server, f"1.{ID}.acme.cloud.example.com", "TXT")
        assert "status: NOERROR" in shown
        assert "ANSWER: 0" in shown
        assert "status: REFUSED" in run(*server, "example.org")
    finally:
        assert registry.stop() == 0, registry.log


def test_an_address_that_another_server_has_is_told_of_at_the_start(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        settings = Settings(
            tmp_path,
            certificate_zone="cloud.example.com",
            certificates=CertificateSettings(dns_listen=listen, dns_name_servers="ns1.example.net"),
        )
        with pytest.raises(SettingsError, match="in use; name an address"):
            check_listeners(settings)
