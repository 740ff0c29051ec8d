"""The settings of TLS, and the URLs that follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.settings import Settings, SettingsError, with_values

TLS = {"tls_certificate": "cert.pem", "tls_key": "key.pem"}


def made(**values: str) -> Settings:
    """Return settings with these values."""
    return with_values(Settings(Path("data")), values)


def test_a_certificate_makes_urls_https() -> None:
    assert made().url == "http://127.0.0.1:5000"
    assert made().tls is None
    settings = made(**TLS)
    assert settings.url == "https://127.0.0.1:5000"
    assert settings.tls == (Path("cert.pem"), Path("key.pem"))
    named = made(allowed_hosts="registry.example.com", **TLS)
    assert named.url == "https://registry.example.com"
    assert named.pull_host == "registry.example.com"


@pytest.mark.parametrize("name", list(TLS))
def test_one_without_the_other_is_refused(name: str) -> None:
    (other,) = set(TLS) - {name}
    with pytest.raises(SettingsError, match=f"{other} is not set"):
        made(**{name: "file"})


def test_a_plain_public_url_is_refused_with_tls() -> None:
    with pytest.raises(SettingsError, match=r"set https://registry\.example\.com"):
        made(public_url="http://registry.example.com", **TLS)
    assert made(public_url="https://a.example.com", **TLS).url == "https://a.example.com"
