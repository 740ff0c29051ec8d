"""``entrepot certificates`` against a served registry, which issues by its own jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import load_der_x509_csr

from cloudcore.certificate.keys import public_der
from cloudcore.clock import system_clock
from cloudcore.key_pairs import new_private_key, signing_request
from tests.certificates import uploaded
from tests.integration.cli_world import World, cli_world
from tests.waiting import until


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    grants = {"ENTREPOT_CERTIFICATE_GRANTS": "corp.example=acme"}
    with cli_world(tmp_path_factory.mktemp("world"), **grants) as made:
        yield made


def until_status(world: World, name: str, status: str) -> dict[str, Any]:
    """Wait until a certificate has a status; return its record."""

    last: dict[str, Any] = {}

    def found() -> dict[str, Any]:
        last.update(world.read("certificates", "show", name))
        return last if last["status"] == status else {}

    return until(found, lambda: last, pause=0.1)


def test_a_certificate_is_issued_revoked_uploaded_and_deleted(world: World, tmp_path: Path) -> None:
    domains = ("--domain", "www.corp.example", "--domain", "*.corp.example")
    made = world.done("certificates", "create", "web", *domains, "--tag", "a=b")
    assert made.text == (
        "web is issuing; 'entrepot certificates challenges web' says what it waits for\n"
    )
    issued = until_status(world, "web", "active")
    names = ["www.corp.example", "*.corp.example"]
    assert (issued["domains"], issued["tags"]) == (names, {"a": "b"})
    head, *rows = world.done("certificates", "challenges", "web").lines
    assert head == "DOMAIN PUBLISH CNAME AT POINTING TO VERIFIED"
    assert [row.split()[0] for row in rows] == names
    status, words = world.told("certificates", "create", "x", "--domain", "www.example.com")
    assert (status, words.startswith("ACCESS_DENIED: the operator has not")) == (1, True)
    pems = uploaded("up.example.com", system_clock() - 10_000_000)
    for name, text in pems.items():
        (tmp_path / name).write_text(text)
    files = (
        *("--certificate", str(tmp_path / "certificate_pem")),
        *("--key", str(tmp_path / "private_key_pem")),
        *("--chain", str(tmp_path / "chain_pem")),
    )
    assert world.done("certificates", "upload", "up", *files).text == "Uploaded up\n"
    assert world.done("certificates", "revoke", "web", "--yes").text == (
        "Revoking web; 'entrepot certificates show web' says when it is\n"
    )
    until_status(world, "web", "revoked")
    root = world.done("certificates", "authority").text
    assert x509.load_pem_x509_certificate(root.encode()).extensions
    assert world.read("certificates", "authority") == {"root_pem": root}
    status, words = world.told("certificates", "recheck", "up")
    assert (status, words.startswith("CONFLICT: an uploaded certificate has no")) == (1, True)
    assert world.done("certificates", "delete", "up", "--yes").text == "Deleted up\n"


def test_a_key_made_here_is_written_to_a_file_once_and_a_signing_request_is_taken(
    world: World, tmp_path: Path
) -> None:
    world.done("certificates", "create", "kept", "--domain", "kept.corp.example")
    request = load_der_x509_csr(
        signing_request(new_private_key("ecdsa-p256"), ["own.corp.example"])
    )
    (tmp_path / "own.csr").write_bytes(request.public_bytes(Encoding.PEM))
    world.done("certificates", "create", "own", "--csr", str(tmp_path / "own.csr"))
    assert until_status(world, "own", "active")["domains"] == ["own.corp.example"]
    until_status(world, "kept", "active")
    assert not world.read("certificates", "settings", "--no-private-key-export")[
        "private_key_export"
    ]
    target = tmp_path / "kept.key"
    export = ("certificates", "export-private-key", "kept")
    status, words = world.told(*export, str(target))
    assert (status, "private_key_export" in words, target.exists()) == (1, True, False)
    world.done("certificates", "settings", "--private-key-export")
    assert world.done(*export, str(target)).text.startswith("Wrote the private key to ")
    assert target.stat().st_mode & 0o777 == 0o600
    key = load_pem_private_key(target.read_bytes(), None)
    issued = world.read("certificates", "show", "kept")["certificate_pem"].encode()
    certificate = x509.load_pem_x509_certificate(issued)
    assert public_der(key.public_key()) == public_der(certificate.public_key())
    status, words = world.told(*export, str(target))
    assert (status, "exists" in words) == (2, True)
    assert world.told(*export, "-")[0] == 1
    world.done("certificates", "create", "piped", "--domain", "piped.corp.example")
    until_status(world, "piped", "active")
    written = world.done("certificates", "export-private-key", "piped", "-").text
    issued = world.read("certificates", "show", "piped")["certificate_pem"].encode()
    certificate = x509.load_pem_x509_certificate(issued)
    key = load_pem_private_key(written.encode(), None)
    assert public_der(key.public_key()) == public_der(certificate.public_key())
    (tmp_path / "bytes.csr").write_bytes(b"\xff\xfe")
    status, words = world.told(
        "certificates", "create", "odd", "--csr", str(tmp_path / "bytes.csr")
    )
    assert (status, words.endswith("bytes.csr holds no UTF-8 text")) == (2, True)
