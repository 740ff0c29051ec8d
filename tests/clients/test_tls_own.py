"""``entrepot serve --tls``: a certificate of the install's own authority, renewed by itself."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace as replace_settings
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from cloudcore.own_certificate.renewal import names_in
from cloudcore.serving.counters import count_nothing
from registry.cli.server.own_certificate import prepare_own_certificate
from registry.settings.settings import Settings
from tests.certificates import DAY, self_signed
from tests.clients.programs import run
from tests.databases import planted
from tests.entrepot import initialized
from tests.live import LiveRegistry, start_registry
from tests.postgresql import free_port
from tests.tools import require_tool
from tests.waiting import until


def started(data: Path, *options: str) -> LiveRegistry:
    return start_registry(data, "--tls", *options, command="serve")


def test_the_certificate_is_of_the_server_and_checked_by_its_root(tmp_path: Path) -> None:
    data = tmp_path / "data"
    initialized(planted(data))
    registry = started(data, "--workers", "2", "--allowed-host", "registry.example.com:8443")
    try:
        root = data / "tls-own" / "root.pem"
        until(lambda: f"let clients trust {root}" in registry.log)
        trust = ssl.create_default_context(cafile=root)
        host = registry.url.removeprefix("https://")
        shown = run(
            *(require_tool("openssl"), "s_client", "-connect", host, "-x509_strict"),
            *("-verify_hostname", "registry.example.com", "-CAfile", root, "-verify_return_error"),
        )
        assert "Verify return code: 0 (ok)" in shown
        with httpx.Client(verify=trust, timeout=60) as client:
            extensions = {"sni_hostname": "registry.example.com"}
            answer = client.get(
                f"{registry.url}/v1/certificate-authorities/root", extensions=extensions
            )
        assert answer.content == root.read_bytes()
    finally:
        assert registry.stop() == 0, registry.log
    for file in (data / "tls-own").iterdir():
        assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [((), "registry.example.com"), (("--s3-host", "s3.example.com"), "s3.example.com")],
)
def test_the_address_of_s3_that_is_printed_has_a_name_of_the_certificate(
    tmp_path: Path, options: tuple[str, ...], named: str
) -> None:
    data = tmp_path / "data"
    initialized(planted(data))
    s3 = ("--s3-port", str(free_port()), *options)
    registry = started(data, "--allowed-host", "registry.example.com:8443", *s3)
    try:
        until(lambda: "S3 endpoint: " in registry.log)
        (line,) = [each for each in registry.log.splitlines() if "S3 endpoint: " in each]
        printed = httpx.URL(line.rpartition(" ")[2])
        assert (printed.scheme, printed.host) == ("https", named)
        shown = run(
            *(require_tool("openssl"), "s_client", "-connect", f"127.0.0.1:{printed.port}"),
            *("-verify_hostname", named, "-CAfile", data / "tls-own" / "root.pem"),
            "-verify_return_error",
        )
        assert "Verify return code: 0 (ok)" in shown
    finally:
        assert registry.stop() == 0, registry.log


def test_it_is_kept_through_a_restart_and_renewed_in_time(tmp_path: Path) -> None:
    data = tmp_path / "data"
    initialized(planted(data))
    settings = Settings(data, tls="own")
    own, _ = prepare_own_certificate(settings)
    file = data / "tls-own" / "certificate.pem"
    first = file.read_bytes()
    assert names_in(first) == {"localhost", "127.0.0.1"}
    prepare_own_certificate(settings)
    assert file.read_bytes() == first

    def replace(ends: timedelta) -> bytes:
        certificate, key = self_signed(tmp_path, "localhost", begins=-2 * ends, ends=ends)
        file.write_bytes(key.read_bytes() + certificate.read_bytes())
        return file.read_bytes()

    due = replace(10 * DAY)  # a third of its life is left
    prepare_own_certificate(settings)
    assert file.read_bytes() != due
    prepare_own_certificate(replace_settings(settings, allowed_hosts="registry.example.com"))
    assert names_in(file.read_bytes()) == {"registry.example.com"}

    due = replace(10 * DAY)

    async def keep() -> None:
        kept = asyncio.create_task(own.keep(count_nothing))
        while file.read_bytes() == due:  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
        kept.cancel()

    asyncio.run(keep())
    assert names_in(file.read_bytes()) == {"localhost", "127.0.0.1"}
