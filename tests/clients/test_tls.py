"""``entrepot serve`` with a certificate: real clients, and a renewal while they pull and push."""

from __future__ import annotations

import re
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.certificates import DAY, Issuer, self_signed
from tests.clients.archives import write_layout
from tests.clients.containers import Containers
from tests.clients.images import Store, noise
from tests.clients.programs import attempt, run
from tests.databases import planted
from tests.entrepot import initialized, told
from tests.live import LiveRegistry, start_registry
from tests.loaded import ENTREPOT, program_environment, run_loaded
from tests.postgresql import free_port
from tests.tools import require_tool
from tests.waiting import until


@dataclass(frozen=True)
class Site:
    """A served install, and its certificate."""

    registry: LiveRegistry
    trusted: Path
    certificate: Path
    key: Path
    user: str
    secret: str

    @property
    def host(self) -> str:
        return self.registry.url.removeprefix("https://")

    def client(self) -> httpx.Client:
        trust = ssl.create_default_context(cafile=self.trusted)
        url = self.registry.url.replace("127.0.0.1", "localhost")
        return httpx.Client(base_url=url, verify=trust, timeout=30)

    def login(self) -> tuple[str, str]:
        """Return user and password of container clients."""
        with self.client() as client:
            form = {"grant_type": "client_credentials"}
            made = client.post("/v1/oauth/token", data=form, auth=(self.user, self.secret))
            headers = {"Authorization": f"Bearer {made.json()['access_token']}"}
            login = client.post("/v1/authorization-token", headers=headers).json()
        return login["username"], login["password"]


@contextmanager
def served(folder: Path, *options: str, issuer: Issuer | None = None) -> Iterator[Site]:
    if issuer is None:
        certificate, key = self_signed(folder, "localhost", ends=90 * DAY)
    else:
        certificate, key = folder / "certificate.pem", folder / "key.pem"
        issuer.write(certificate, key, "localhost")
    shown = initialized(planted(folder / "data"))
    words = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    port = str(free_port())
    registry = start_registry(folder / "data", "--port", port, *words, *options, command="serve")
    try:
        user, secret = told("access key id", shown), told("secret access key", shown)
        trusted = certificate if issuer is None else issuer.root
        yield Site(registry, trusted, certificate, key, user, secret)
    finally:
        assert registry.stop() == 0, registry.log
    assert '"level":"error"' not in registry.log.replace(" ", "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with served(tmp_path_factory.mktemp("tls"), "--workers", "2") as made:
        yield made


@pytest.mark.client("curl")
def test_curl_is_sent_to_sign_in_over_https(site: Site) -> None:
    shown = run("curl", "-sS", "-i", "--cacert", site.certificate, f"{site.registry.url}/v2/")
    assert shown.startswith("HTTP/1.1 401")
    assert f'realm="{site.registry.url}/v2/token"' in shown
    plain = run("curl", "-sS", "-i", f"http://{site.host}/v2/")
    assert plain.startswith("HTTP/1.1 400")
    assert "https://" in plain


def test_the_health_check_speaks_tls(site: Site) -> None:
    port = site.host.rpartition(":")[2]
    files = ("--tls-certificate", str(site.certificate), "--tls-key", str(site.key))
    words = (*files, "--port", port)

    def ready(*words: str) -> subprocess.CompletedProcess[str]:
        return run_loaded(ENTREPOT, ("ready", *words), program_environment())

    secure = ready(*words)
    assert secure.returncode == 0, secure.stderr
    assert '"database":"ok"' in secure.stdout.replace(" ", "")
    plain = ready("--port", port)
    assert plain.returncode == 1
    assert "not ready (400)" in plain.stderr
    nobody = ready("--port", str(free_port()))
    assert nobody.returncode == 1
    assert "no answer from 127.0.0.1" in nobody.stderr


@pytest.mark.client("curl")
def test_who_does_not_trust_the_certificate_is_not_served(site: Site) -> None:
    assert attempt("curl", "-sS", f"{site.registry.url}/v2/").returncode == 60


def test_openssl_sees_the_certificate_and_no_request_for_its_own(site: Site) -> None:
    shown = attempt(
        *(require_tool("openssl"), "s_client", "-connect", site.host, "-servername", "localhost"),
        *("-alpn", "h2,http/1.1", "-CAfile", site.certificate, "-verify_return_error"),
    ).stdout
    assert "Verify return code: 0 (ok)" in shown
    assert "ALPN protocol: http/1.1" in shown
    assert "No client certificate CA names sent" in shown


@pytest.mark.client("skopeo")
@pytest.mark.client("podman")
def test_an_image_is_pushed_by_skopeo_and_pulled_by_podman(
    site: Site, store: Store, tmp_path: Path
) -> None:
    image = store.image([{"big": noise(20 << 20, "big")}, {"hello": b"hello\n"}])
    write_layout(image, tmp_path / "pushed")
    tools = Containers(tmp_path / "home", "another.example.com")
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    shutil.copy(site.trusted, trusted / "ca.crt")
    login = ":".join(site.login())
    target, source = f"{site.host}/acme/hello:1", f"oci:{tmp_path}/pushed:latest"
    there = ("--dest-cert-dir", trusted, "--dest-creds", login)
    assert tools.attempt("skopeo", "copy", *there[2:], source, f"docker://{target}").returncode
    tools.run("skopeo", "copy", *there, source, f"docker://{target}")
    back = ("--src-cert-dir", trusted, "--src-creds", login)
    tools.run("skopeo", "copy", *back, f"docker://{target}", f"oci:{tmp_path}/pulled:latest")
    pulled = Store(tmp_path / "pulled")
    assert [pulled.read(blob) for blob in image.blobs] == [store.read(b) for b in image.blobs]
    tools.run("podman", "pull", "--cert-dir", trusted, "--creds", login, target)


def test_a_renewal_under_load_fails_no_request(tmp_path: Path) -> None:
    """Connections that are open stay, new ones get the renewed certificate."""
    issuer = Issuer(tmp_path)
    with served(tmp_path, "--workers", "2", issuer=issuer) as site:
        done, failed, seen = [0], list[Exception](), set[int]()
        ends = threading.Event()

        def ask(*, again: bool) -> None:
            """Send requests on one connection, or each on a new one."""
            client = site.client()
            while not ends.is_set():
                try:
                    answer = client.get("/healthz")
                    stream = answer.extensions["network_stream"]
                    found = stream.get_extra_info("ssl_object").getpeercert()
                    seen.add(int(found["serialNumber"], 16))
                    assert answer.status_code == 200
                except Exception as error:  # noqa: BLE001 - any is a failed request
                    failed.append(error)
                    return
                done[0] += 1
                if again:
                    client.close()
                    client = site.client()
            client.close()

        threads = [
            threading.Thread(target=ask, kwargs={"again": number % 2 == 0}) for number in range(4)
        ]
        for thread in threads:
            thread.start()
        try:
            until(lambda: seen or failed)  # of the certificate before the first renewal
            for signals in (True, False):
                serial = issuer.write(site.certificate, site.key, "localhost")
                if signals:
                    site.registry.process.send_signal(signal.SIGHUP)
                until(partial(_is_done, serial, seen, failed))
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        assert not failed, failed
        assert len(seen) == 3


def _is_done(serial: int, seen: set[int], failed: list[Exception]) -> bool:
    return serial in seen or bool(failed)


def test_settings_that_cannot_be_served_are_refused_at_the_start(tmp_path: Path) -> None:
    expired, key = self_signed(tmp_path, "localhost", begins=-2 * DAY, ends=-DAY)
    initialized(planted(tmp_path / "data"))
    for options, words in (
        (("--tls-certificate", str(expired), "--tls-key", str(key)), "expired at"),
        (("--tls-certificate", str(expired)), "tls_key is not set"),
    ):
        for command in (("serve",), ("config", "show")):
            arguments = (*command, "--data", str(tmp_path / "data"), *options)
            shown = run_loaded(ENTREPOT, arguments, program_environment())
            assert shown.returncode == 2
            assert re.search(words, shown.stderr)
            assert "Traceback" not in shown.stderr
