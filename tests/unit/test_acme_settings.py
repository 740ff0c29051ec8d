"""The settings of a certificate that is ordered, and the URLs that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from cloudcore.serving.asgi import Message, Receive, Scope
from cloudcore.serving.tls.validation import ValidationApplication, Validations
from registry.settings.reading import with_values
from registry.settings.settings import Settings

ACME = {"tls_acme": "registry.example.com", "tls_acme_terms": "agree"}


def made(**values: str | int) -> Settings:
    """Return settings with these values."""
    return with_values(Settings(Path("/data")), values)


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
