"""``entrepot serve --tls-acme``: Pebble signs, strict and forgetful, while clients download."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.clients.images import noise
from tests.entrepot import copied_install, told
from tests.live import LiveRegistry, start_registry
from tests.pebble import Pebble, challenge_server, pebble
from tests.postgresql import free_port
from tests.waiting import until

NAME: Final = "registry.example"
BLOB_BYTES: Final = 4 << 20
LIFE: Final = 30
"""Seconds of a certificate. It is renewed when a third of them is left."""
LATEST: Final = 20
"""Seconds after the end of a certificate by which a busy machine must serve the next one."""
AT_ANY_TIME: Final = ssl.VerifyFlags(0x200000)
"""Take certificates that have ended (OpenSSL's ``X509_V_FLAG_NO_CHECK_TIME``)."""
pytestmark = [pytest.mark.client("pebble"), pytest.mark.client("pebble-challtestsrv")]


@pytest.fixture(scope="module")
def resolver() -> Iterator[str]:
    with challenge_server() as address:
        yield address


@contextmanager
def served(
    folder: Path, authority: Pebble, port: int, *options: str, names: str = NAME
) -> Iterator[LiveRegistry]:
    (folder / "shown").write_text(copied_install(folder / "data"))
    words = (
        *("--tls-acme", names, "--tls-acme-terms", "agree", "--tls-acme-email", "ops@example.com"),
        *("--tls-acme-directory", authority.directory, "--tls-acme-roots", str(authority.roots)),
    )
    registry = start_registry(
        folder / "data", "--port", str(port), *words, *options, command="serve"
    )
    try:
        yield registry
    finally:
        assert registry.stop() == 0, registry.log


class ByName(httpx.HTTPTransport):
    """Names the server in each handshake, though its address is that of this machine."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions = {**request.extensions, "sni_hostname": NAME}
        return super().handle_request(request)


class Named(httpx.Client):
    """A client of the registry at its name."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        super().__init__(
            transport=ByName(verify=trust),
            base_url=f"https://127.0.0.1:{port}",
            headers={"Host": NAME},
            timeout=60,
        )

    def sign_in(self, shown: str) -> dict[str, str]:
        """Return what authorizes pushes and pulls; `shown` is what ``init`` shows."""
        key = told("access key id", shown), told("secret access key", shown)
        form = {"grant_type": "client_credentials"}
        token = self.post("/v1/oauth/token", data=form, auth=key).json()["access_token"]
        login = self.post(
            "/v1/authorization-token", headers={"Authorization": f"Bearer {token}"}
        ).json()
        found = self.get(
            "/v2/token",
            params={"service": NAME, "scope": "repository:acme/app:pull,push"},
            auth=(login["username"], login["password"]),
        )
        return {"Authorization": f"Bearer {found.json()['token']}"}

    def push(self, blob: bytes, bearer: dict[str, str]) -> str:
        """Push a blob; return its path."""
        digest = f"sha256:{hashlib.sha256(blob).hexdigest()}"
        begun = self.post("/v2/acme/app/blobs/uploads/", headers=bearer)
        place = httpx.URL(begun.headers["location"]).raw_path.decode()
        joint = "&" if "?" in place else "?"
        ended = self.put(f"{place}{joint}digest={digest}", content=blob, headers=bearer)
        assert ended.status_code == 201, ended.text
        return f"/v2/acme/app/blobs/{digest}"

    @staticmethod
    def expiry(answer: httpx.Response) -> float:
        """Return when the certificate that an answer came under ends."""
        sock = answer.extensions["network_stream"].get_extra_info("ssl_object")
        return ssl.cert_time_to_seconds(sock.getpeercert()["notAfter"])


def handshake(port: int, trust: ssl.SSLContext, name: str = NAME) -> int | None:
    """Return the serial number of what is served, or None if `trust` refuses it."""
    with socket.create_connection(("127.0.0.1", port), 30) as plain:
        try:
            with trust.wrap_socket(plain, server_hostname=name) as sock:
                found = sock.getpeercert() or {}
                return int(str(found["serialNumber"]), 16)
        except ssl.SSLCertVerificationError:
            return None


def expiry(port: int, trust: ssl.SSLContext) -> float:
    """Return when the certificate that is served ends."""
    with (
        socket.create_connection(("127.0.0.1", port), 30) as plain,
        trust.wrap_socket(plain, server_hostname=NAME) as sock,
    ):
        return ssl.cert_time_to_seconds(str((sock.getpeercert() or {})["notAfter"]))


@pytest.mark.timeout(240)
def test_a_certificate_is_ordered_and_renewed_while_clients_download(
    tmp_path: Path, resolver: str
) -> None:
    """No connection is dropped, every download ends whole, and the renewal is in time.

    A busy machine may take longer for it than the old certificate lives, but not much.
    """
    port = free_port()
    with (
        pebble(tmp_path, resolver, tls_port=port, life=LIFE) as authority,
        served(tmp_path, authority, port, "--workers", "2") as registry,
    ):
        trust = ssl.create_default_context(cafile=authority.trust(tmp_path / "roots.pem"))
        trust.verify_flags |= AT_ANY_TIME
        until(
            lambda: registry.log.count("to new connections") >= 2, lambda: registry.log
        )  # of each worker
        assert handshake(port, trust)
        assert f"There is no certificate of {NAME} yet" in registry.log
        assert "tls-alpn-01" in registry.log
        blob = noise(BLOB_BYTES, "blob")
        with Named(port, trust) as client:
            bearer = client.sign_in((tmp_path / "shown").read_text())
            place = client.push(blob, bearer)
        done, failed = [0], list[Exception]()
        first_seen: dict[float, float] = {}  # by the ends of certificates
        ends = threading.Event()

        def download(*, again: bool) -> None:
            """Download on one connection, or each time on a new one."""
            client = Named(port, trust)
            try:
                while not ends.wait(0.3):
                    answer = client.get(place, headers=bearer)
                    assert answer.content == blob, answer
                    done[0] += 1
                    if again:
                        first_seen.setdefault(client.expiry(answer), time.time())
                        client.close()
                        client = Named(port, trust)
            except Exception as error:  # noqa: BLE001 - any is a dropped connection
                failed.append(error)
            finally:
                client.close()

        threads = [
            threading.Thread(target=download, kwargs={"again": number % 2 == 0})
            for number in range(4)
        ]
        # Until shortly before the renewal, nothing is to be seen.
        ends.wait(max(0, expiry(port, trust) - time.time() - LIFE / 3 - 6))
        for thread in threads:
            thread.start()
        try:
            until(lambda: (len(first_seen) >= 2 and done[0] > 8) or failed, lambda: registry.log)
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        assert not failed, failed
        first, second, *_ = sorted(first_seen)
        assert first_seen[second] < first + LATEST
        folder = next((tmp_path / "data" / "tls-acme").iterdir())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for file in folder.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert not (folder / "proofs").exists()
    assert "PRIVATE KEY" not in registry.log


def test_two_names_are_proved_by_plain_http_which_sends_clients_to_https(
    tmp_path: Path, resolver: str
) -> None:
    port, http = free_port(), free_port()
    with (
        pebble(tmp_path, resolver, http_port=http) as authority,
        served(
            *(tmp_path, authority, port, "--tls-acme-http", f"127.0.0.1:{http}"),
            names=f"{NAME},www.{NAME}",
        ) as registry,
    ):
        trust = ssl.create_default_context(cafile=authority.trust(tmp_path / "roots.pem"))
        until(lambda: handshake(port, trust), lambda: registry.log)
        assert handshake(port, trust, f"www.{NAME}")
        with closing(socket.create_connection(("127.0.0.1", http), 30)) as sock:
            sock.sendall(b"GET /v2/?n=1 HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = sock.recv(65536)
        assert answer.startswith(b"HTTP/1.1 308")
        assert f"location: https://{NAME}/v2/?n=1\r\n".encode() in answer.lower()


def test_an_authority_that_cannot_reach_the_server_is_told_of_with_what_to_do(
    tmp_path: Path, resolver: str
) -> None:
    port, metrics = free_port(), free_port()
    with (
        pebble(tmp_path, resolver, tls_port=free_port()) as authority,
        served(tmp_path, authority, port, "--metrics", f"127.0.0.1:{metrics}") as registry,
    ):
        until(lambda: "signed no certificate" in registry.log, lambda: registry.log)
        assert re.search(r"must reach port 443 of registry\.example", registry.log)
        assert "it is asked again in 2 minutes" in registry.log
        assert "clients refuse what is served until then" in registry.log
        failed = 'entrepot_tls_orders_total{outcome="failed"} 1.0'
        until(lambda: failed in _metrics(metrics), lambda: registry.log)
        assert "entrepot_tls_certificate_expiry_seconds 0.0" in _metrics(metrics)


def _metrics(port: int) -> str:
    with closing(socket.create_connection(("127.0.0.1", port), 30)) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: sock.recv(65536), b"")).decode()
