"""Pebble, an authority that speaks ACME, and a resolver for it, as processes of a test."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.certificates import Issuer
from tests.postgresql import free_port
from tests.tools import require_tool


class Pebble(NamedTuple):
    """A running authority."""

    directory: str
    roots: Path
    """Of the authority's own address."""
    management: str
    log: Path

    def trust(self, path: Path) -> Path:
        """Write the root of what it signs to a file; return it."""
        context = ssl.create_default_context(cafile=self.roots)
        with urllib.request.urlopen(f"{self.management}/roots/0", context=context) as answer:
            path.write_bytes(answer.read())
        return path


@contextmanager
def challenge_server() -> Iterator[str]:
    """Run a resolver that knows every name as this machine; yield its address."""
    dns, management = free_port(), free_port()
    command = (
        *(require_tool("pebble-challtestsrv"), "-dns01", f"127.0.0.1:{dns}"),
        *("-management", f"127.0.0.1:{management}", "-defaultIPv6", ""),
        *("-http01", "", "-https01", "", "-tlsalpn01", ""),
    )
    with _running(command):
        _wait_for(dns, management)
        yield f"127.0.0.1:{dns}"


@contextmanager
def pebble(
    folder: Path,
    resolver: str,
    *,
    tls_port: int = 9,
    http_port: int = 9,
    life: int = 90 * 86400,
    rejects: int = 20,
    reuses: int = 50,
) -> Iterator[Pebble]:
    """Run Pebble, strict, which refuses `rejects` percent of good nonces.

    Of domains that an account has proved before, it takes `reuses` percent without a new proof.
    It validates at `tls_port` and `http_port` of this machine; what it signs lives `life` seconds.
    """
    port, management = free_port(), free_port()
    issuer = Issuer(folder)
    certificate, key = folder / "pebble.pem", folder / "pebble.key"
    issuer.write(certificate, key, "localhost")
    config = folder / "pebble.json"
    made = {
        "listenAddress": f"127.0.0.1:{port}",
        "managementListenAddress": f"127.0.0.1:{management}",
        "certificate": str(certificate),
        "privateKey": str(key),
        "httpPort": http_port,
        "tlsPort": tls_port,
        "certificateValidityPeriod": life,
    }
    config.write_text(json.dumps({"pebble": made}))
    command = (require_tool("pebble"), "-config", str(config), "-strict", "-dnsserver", resolver)
    settings = {
        "PEBBLE_VA_NOSLEEP": "1",
        "PEBBLE_WFE_NONCEREJECT": str(rejects),
        "PEBBLE_AUTHZREUSE": str(reuses),
    }
    log = folder / "pebble.log"
    with _running(command, settings, log):
        _wait_for(port, management, log=log)  # it says that it is there before it listens
        yield Pebble(
            f"https://localhost:{port}/dir", issuer.root, f"https://localhost:{management}", log
        )


@contextmanager
def _running(
    command: tuple[str, ...], settings: dict[str, str] | None = None, log: Path | None = None
) -> Iterator[None]:
    with ExitStack() as stack:
        output = subprocess.DEVNULL if log is None else stack.enter_context(log.open("wb"))
        process = subprocess.Popen(
            command,
            env={**os.environ, **(settings or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _wait_for(*ports: int, log: Path | None = None) -> None:
    """Wait until every port accepts a connection."""
    waiter, left = threading.Event(), list(ports)
    for _ in range(6000):  # a minute, on a machine that is busy
        with suppress(ConnectionRefusedError):
            while left:
                socket.create_connection(("127.0.0.1", left[0]), 30).close()
                del left[0]
            return
        waiter.wait(0.01)
    raise AssertionError(f"nobody listens on {left}: {log.read_text() if log else ''}")
