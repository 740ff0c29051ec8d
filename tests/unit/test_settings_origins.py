"""Which origins may be listed: those that browsers send, letter for letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.settings.reading import from_environment
from registry.settings.settings import Settings

HERE = Path("here")


def test_origins_are_listed_in_the_environment() -> None:
    listed = "https://app.example.com, http://localhost:3000,http://[::1]:8080,"
    found = from_environment({"ENTREPOT_CORS_ORIGINS": listed}, Settings(HERE))
    assert found.origins == (
        *("https://app.example.com", "http://localhost:3000", "http://[::1]:8080"),
    )
    assert Settings(HERE).origins == ()


@pytest.mark.parametrize("origin", ["https://a:80", "http://a:443", "http://a:8080"])
def test_other_ports_are_a_part_of_an_origin(origin: str) -> None:
    assert Settings(HERE, cors_origins=origin).origins == (origin,)


def test_origins_of_identity_providers_inside_are_listed_too() -> None:
    listed = "http://127.0.0.1:9000, https://sso.internal"
    found = from_environment({"ENTREPOT_OIDC_INTERNAL_ORIGINS": listed}, Settings(HERE))
    assert found.internal_issuers == ("http://127.0.0.1:9000", "https://sso.internal")
    assert Settings(HERE).internal_issuers == ()


def test_upstreams_inside_are_origins_and_networks() -> None:
    listed = "http://registry.internal:5000, 10.20.0.0/16,fd00:5::/32,https://hub.internal"
    found = from_environment({"ENTREPOT_UPSTREAM_ALLOWED": listed}, Settings(HERE))
    allowed = found.allowed_upstreams
    assert allowed.origins == ("http://registry.internal:5000", "https://hub.internal")
    assert [str(network) for network in allowed.networks] == ["10.20.0.0/16", "fd00:5::/32"]
    assert allowed.setting == "ENTREPOT_UPSTREAM_ALLOWED"
