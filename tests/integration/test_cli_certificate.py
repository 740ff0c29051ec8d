"""``entrepot certificate`` against a served registry, which issues by its own jobs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from cryptography import x509

from cloudcore.clock import system_clock
from tests.certificates import uploaded
from tests.integration.cli_world import World, cli_world


def until_status(world: World, name: str, status: str) -> dict[str, Any]:
    """Wait until a certificate has a status; return its record."""
    ends = time.monotonic() + 30
    while (shown := world.read("certificate", "show", name))["status"] != status:
        assert time.monotonic() < ends, shown
    return dict(shown)


def test_a_certificate_is_issued_revoked_uploaded_and_deleted(tmp_path: Path) -> None:
    grants = {"ENTREPOT_CERTIFICATE_GRANTS": "corp.example=acme"}
    with cli_world(tmp_path / "world", **grants) as world:
        domains = ("--domain", "www.corp.example", "--domain", "*.corp.example")
        made = world.done("certificate", "create", "web", *domains, "--tag", "a=b")
        assert made.text == (
            "web is issuing; 'entrepot certificate challenges web' says what it waits for\n"
        )
        issued = until_status(world, "web", "active")
        assert (issued["domains"], issued["tags"]) == (
            ["www.corp.example", "*.corp.example"],
            {"a": "b"},
        )
        head, *rows = world.done("certificate", "challenges", "web").lines
        assert head == "DOMAIN PUBLISH CNAME AT POINTING TO VERIFIED"
        assert [row.split()[0] for row in rows] == ["www.corp.example", "*.corp.example"]
        status, words = world.told("certificate", "create", "x", "--domain", "www.example.com")
        assert (status, words.startswith("ACCESS_DENIED: the operator has not")) == (
            1,
            True,
        )
        pems = uploaded("up.example.com", system_clock() - 10_000_000)
        for name, text in pems.items():
            (tmp_path / name).write_text(text)
        files = (
            *("--certificate", str(tmp_path / "certificate_pem")),
            *("--key", str(tmp_path / "private_key_pem")),
            *("--chain", str(tmp_path / "chain_pem")),
        )
        assert world.done("certificate", "upload", "up", *files).text == "Uploaded up\n"
        assert world.done("certificate", "revoke", "web", "--yes").text == (
            "Revoking web; 'entrepot certificate show web' says when it is\n"
        )
        until_status(world, "web", "revoked")
        root = world.done("certificate", "authority").text
        assert x509.load_pem_x509_certificate(root.encode()).extensions
        assert world.read("certificate", "authority") == {"root_pem": root}
        status, words = world.told("certificate", "recheck", "up")
        assert (status, words.startswith("CONFLICT: an uploaded certificate has no")) == (1, True)
        assert world.done("certificate", "delete", "up", "--yes").text == "Deleted up\n"
