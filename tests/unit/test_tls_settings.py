"""The settings of TLS, and the URLs that follow from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.cli.server.dev import run_dev
from registry.settings.reading import with_values
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

TLS = {"tls_certificate": "cert.pem", "tls_key": "key.pem"}


def made(**values: str) -> Settings:
    """Return settings with these values."""
    return with_values(Settings(Path("data")), values)


def test_a_certificate_makes_urls_https() -> None:
    assert made().url == "http://127.0.0.1:5000"
    assert made().tls_files is None
    settings = made(**TLS)
    assert settings.url == "https://127.0.0.1:5000"
    assert settings.tls_files == (Path("cert.pem"), Path("key.pem"))
    named = made(allowed_hosts="registry.example.com", **TLS)
    assert named.url == "https://registry.example.com"
    assert named.pull_host == "registry.example.com"
    assert made(public_url="https://a.example.com", **TLS).url == "https://a.example.com"


def test_a_certificate_of_the_install_is_of_the_names_that_clients_use() -> None:
    assert made(tls="own").own_names == ("localhost", "127.0.0.1")
    assert made(tls="own", host="192.0.2.7").own_names == ("192.0.2.7",)
    named = made(tls="own", public_url="https://a.example.com", allowed_hosts="b:8443,[::1]:80")
    assert named.own_names == ("a.example.com", "b", "::1")
    stored = made(tls="own", public_url="https://a.example.com", s3_host="s3.example.com")
    assert stored.own_names == ("a.example.com", "s3.example.com", "*.s3.example.com")
    hosts = "pull=Cr.example.com:8443,auth=auth.example.com,pull=a.example.com"
    apart = made(tls="own", public_url="https://a.example.com", family_hosts=hosts)
    assert apart.own_names == ("a.example.com", "cr.example.com", "auth.example.com")
    assert named.tls_files is not None
    assert named.tls_files.key == Path("data").absolute() / "tls-own" / "certificate.pem"


def test_files_that_are_named_come_first() -> None:
    settings = made(tls="own", **TLS)
    assert settings.own_folder is None
    assert settings.tls_files == (Path("cert.pem"), Path("key.pem"))


def test_a_server_without_sign_in_makes_no_certificate() -> None:
    with pytest.raises(SettingsError, match="for 'entrepot serve'"):
        run_dev(made(tls="own"))
