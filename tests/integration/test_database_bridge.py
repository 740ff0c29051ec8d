"""The bridge: who trusts its certificate alone reaches the S3 endpoint, which is our own server."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from cloudcore.databases.archive import s3_bridge_program
from cloudcore.databases.archive.driver import BackupFailed
from cloudcore.databases.archive.s3_bridge import NAME, Bridge, S3Address
from registry.composition.database_archive import s3_endpoint
from registry.settings.settings import Settings
from tests.certificates import self_signed
from tests.postgresql import free_port
from tests.waiting import close_server


@asynccontextmanager
async def echoing(shown: tuple[Path, Path] | None) -> AsyncIterator[int]:
    """Serve at a port what answers with what it gets, over TLS with a certificate and its key."""
    tls = None
    if shown is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*shown)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # the bridge may have hung up
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await close_server(server)


async def asked(bridge: Bridge, sent: bytes) -> bytes:
    """Return what comes back for some bytes through a bridge."""
    port = await bridge.port()
    trusted = ssl.create_default_context(cadata=bridge.certificate.decode())
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trusted, server_hostname=NAME
    )
    writer.write(sent)
    try:
        return await reader.readexactly(len(sent))
    finally:
        writer.close()


@pytest.mark.parametrize("speaks_tls", [True, False], ids=["tls", "plain"])
async def test_bytes_come_through(tmp_path: Path, speaks_tls: bool) -> None:
    shown = self_signed(tmp_path, "s3.example.com") if speaks_tls else None
    async with echoing(shown) as port:
        pinned = None if shown is None else shown[0]
        bridge = Bridge(S3Address("127.0.0.1", port, "s3.example.com", pinned))
        try:
            assert await asked(bridge, b"bytes " * 100_000) == b"bytes " * 100_000
            first = await bridge.port()
            assert await bridge.port() == first
        finally:
            await bridge.close()


async def test_a_renewed_certificate_of_our_server_is_taken(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    pinned, _ = self_signed(tmp_path / "old", "s3.example.com")
    renewed = self_signed(tmp_path / "new", "s3.example.com")
    async with echoing(renewed) as port:
        bridge = Bridge(S3Address("127.0.0.1", port, "s3.example.com", pinned))
        try:
            await bridge.port()
            renewed[0].replace(pinned)
            assert await asked(bridge, b"bytes") == b"bytes"
        finally:
            await bridge.close()


async def test_a_killed_bridge_comes_back_for_those_who_know_it() -> None:
    async with echoing(None) as port:
        bridge = Bridge(S3Address("127.0.0.1", port, "localhost", None))
        try:
            assert await asked(bridge, b"before") == b"before"
            first, trusted = await bridge.port(), bridge.certificate
            for each in bridges():
                os.kill(each, signal.SIGKILL)
            context = ssl.create_default_context(cadata=trusted.decode())
            assert await answered(first, context, b"after") == b"after"  # nobody asked for its port
            assert await bridge.port() == first
        finally:
            await bridge.close()


async def answered(port: int, trusted: ssl.SSLContext, sent: bytes) -> bytes:
    """Return what comes back from a bridge, once there is one."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=trusted, server_hostname=NAME
            )
            writer.write(sent)
            said = await reader.readexactly(len(sent))
            writer.close()
            return said
        await asyncio.sleep(0.05)


def bridges() -> list[int]:
    """Return the bridges that this process has started."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    program = s3_bridge_program.__file__.encode()
    return [int(each) for each in listed if program in Path(f"/proc/{each}/cmdline").read_bytes()]


async def test_another_server_than_ours_gets_nothing(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    pinned, _ = self_signed(tmp_path / "ours", "s3.example.com")
    async with echoing(self_signed(tmp_path / "theirs", "s3.example.com")) as port:
        bridge = Bridge(S3Address("127.0.0.1", port, "s3.example.com", pinned))
        try:
            with pytest.raises((asyncio.IncompleteReadError, OSError)):
                await asked(bridge, b"secret")
        finally:
            await bridge.close()


async def test_an_endpoint_that_is_away_is_known_at_once() -> None:
    bridge = Bridge(S3Address("127.0.0.1", free_port(), "localhost", None))
    with pytest.raises(BackupFailed, match="cannot be reached"):
        await bridge.port()


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, None),
        ({"s3_port": 9000}, ("127.0.0.1", 9000, "localhost", None)),
        ({"s3_port": 9000, "host": "0.0.0.0"}, ("127.0.0.1", 9000, "localhost", None)),
        ({"s3_port": 9000, "host": "192.0.2.1"}, ("192.0.2.1", 9000, "localhost", None)),
        ({"s3_host": "s3.example.com", "port": 80}, ("127.0.0.1", 80, "s3.example.com", None)),
        (
            {"s3_port": 9000, "tls_certificate": "c.pem", "tls_key": "k.pem"},
            ("127.0.0.1", 9000, "localhost", Path("c.pem")),
        ),
    ],
)
def test_the_endpoint_is_the_one_that_this_machine_serves(
    tmp_path: Path, settings: dict[str, object], found: tuple[object, ...] | None
) -> None:
    assert s3_endpoint(Settings(data=tmp_path, **settings)) == found  # type: ignore[arg-type]
