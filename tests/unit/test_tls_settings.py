"""The settings of TLS and of authorities, and the URLs that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from cloudcore.serving.asgi import Message, Receive, Scope
from cloudcore.serving.tls.validation import ValidationApplication, Validations
from registry.cli.server.dev import run_dev
from registry.settings.reading import with_values
from registry.settings.settings import Settings
from registry.settings.texts import SettingsError

TLS = {"tls_certificate": "cert.pem", "tls_key": "key.pem"}


def made(**values: str | int) -> Settings:
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
    assert made(tls="own").certificate_names == ("localhost", "127.0.0.1")
    assert made(tls="own", host="192.0.2.7").certificate_names == ("192.0.2.7",)
    named = made(tls="own", public_url="https://a.example.com", allowed_hosts="b:8443,[::1]:80")
    assert named.certificate_names == ("a.example.com", "b", "::1")
    stored = made(tls="own", public_url="https://a.example.com", s3_host="s3.example.com")
    assert stored.certificate_names == ("a.example.com", "s3.example.com", "*.s3.example.com")
    hosts = "pull=Cr.example.com:8443,auth=auth.example.com,pull=a.example.com"
    apart = made(tls="own", public_url="https://a.example.com", family_hosts=hosts)
    assert apart.certificate_names == ("a.example.com", "cr.example.com", "auth.example.com")
    assert named.tls_files is not None
    assert named.tls_files.key == Path("data").absolute() / "tls-own" / "certificate.pem"


def test_files_that_are_named_come_first() -> None:
    settings = made(tls="own", **TLS)
    assert settings.own_folder is None
    assert settings.tls_files == (Path("cert.pem"), Path("key.pem"))


def test_a_server_without_sign_in_makes_no_certificate() -> None:
    with pytest.raises(SettingsError, match="for 'entrepot serve'"):
        run_dev(made(tls="own"))


ACME = {"tls_acme": "registry.example.com", "tls_acme_terms": "agree"}


def test_the_names_are_those_that_clients_use() -> None:
    settings = made(**ACME, port=443, host="0.0.0.0")
    settings.check_has_url()
    assert settings.url == "https://registry.example.com"
    assert made(**ACME).url == "https://registry.example.com"  # a container publishes its 5000
    assert made(**ACME, public_url="https://a.example.com").url == "https://a.example.com"
    two = made(**ACME | {"tls_acme": "One.example.com, two.example.com,"}, port=443)
    assert two.hosts == ("one.example.com", "two.example.com")


def test_certificate_and_account_lie_beside_the_root_key() -> None:
    settings = made(**ACME, root_key_file="/keys/root.key")
    assert settings.tls_files is not None
    assert settings.tls_files.certificate == settings.tls_files.key
    assert settings.tls_files.key.is_relative_to("/keys/tls-acme")


def test_a_certificate_that_is_ordered_has_every_host_of_a_family() -> None:
    hosts = {"family_hosts": "pull=cr.example.com", "public_url": "https://registry.example.com"}
    both = ACME | {"tls_acme": "registry.example.com,cr.example.com"}
    assert made(**both, **hosts).urls == ("https://registry.example.com", "https://cr.example.com")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        (b"CR.example.com:80", "https://cr.example.com:8443"),
        (b"registry.example.com", "https://registry.example.com"),
        (b"elsewhere", "https://registry.example.com"),
    ],
)
async def test_plain_http_leads_to_https_at_the_same_name(
    tmp_path: Path, host: bytes, url: str
) -> None:
    sent: list[Message] = []

    async def keep(message: Message) -> None:
        sent.append(message)

    urls = ("https://registry.example.com", "https://cr.example.com:8443")
    scope: Scope = {
        "method": "GET",
        "path": "/v2/",
        "raw_path": b"/v2/",
        "query_string": b"n=1",
        "headers": [(b"host", host)],
    }
    application = ValidationApplication(Validations(tmp_path, ()), urls)
    await application(scope, cast("Receive", None), keep)
    assert dict(sent[0]["headers"])[b"location"] == f"{url}/v2/?n=1".encode()


AUTHORITY = {
    "certificate_zone": "cloud.example.com",
    "certificate_acme_directory": "https://ca.example.com/directory",
    "certificate_acme_terms": "agree",
    "dns_listen": "203.0.113.7:53",
    "dns_name_servers": "NS1.example.com., ns2.example.net",
}


def test_authority_and_name_server_are_set() -> None:
    found = made(**AUTHORITY).certificates
    assert found.dns_address == ("203.0.113.7", 53)
    assert found.name_servers == ("ns1.example.com", "ns2.example.net")
    assert made(**AUTHORITY | {"dns_listen": "[::]:53"}).certificates.dns_address == ("::", 53)
    assert made().certificates.dns_address is None
