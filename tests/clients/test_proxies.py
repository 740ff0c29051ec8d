"""The proxies of ``deploy/proxy`` as they are shipped: TLS, large layers, chunked uploads."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.clients.images import MIB
from tests.clients.programs import daemon, require_root, run
from tests.clients.remote import Remote
from tests.databases import ROOT
from tests.entrepot import copied_install
from tests.live import LiveRegistry, start_registry
from tests.postgresql import free_port
from tests.tools import require_tool

PROXIES: Final = ROOT / "deploy" / "proxy"
LAYER_MIB: Final = 12
"""More than a proxy takes or keeps unless its settings say so."""
ENDLESS_MIB: Final = 32
"""More than sockets and proxies on the way hold of an answer that nobody reads."""
UNREAD: Final = (socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
"""Has a client's socket hold that much at most, where the system would let it grow."""
PART: Final = bytes(range(256)) * (MIB // 256)


class Site(NamedTuple):
    """Where a proxy listens, what is behind it, and its certificate."""

    folder: Path
    port: int
    plain_port: int
    upstream: str

    @property
    def certificate(self) -> Path:
        return self.folder / "cert.pem"

    @property
    def key(self) -> Path:
        return self.folder / "key.pem"


def certify(site: Site) -> None:
    """Write a certificate for 127.0.0.1 that signs itself, its key, and both in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    site.certificate.write_bytes(pem)
    site.key.write_bytes(secret)
    (site.folder / "both.pem").write_bytes(pem + secret)


def shipped(name: str, *changes: tuple[str, str]) -> str:
    """Return a file of ``deploy/proxy`` with places of this test; each change must match."""
    text = (PROXIES / name).read_text()
    for pattern, replacement in changes:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        assert count, f"{name} has no {pattern}"
    return text


def nginx(site: Site) -> tuple[list[str], list[str]]:
    """Return the commands that check and run nginx."""
    require_root("nginx")
    server = shipped(
        "nginx.conf",
        (r"^ *listen \[::\].*\n", ""),
        (r"listen 80;", f"listen 127.0.0.1:{site.plain_port};"),
        (r"listen 443 ssl;", f"listen 127.0.0.1:{site.port} ssl;"),
        (r"server 127\.0\.0\.1:5000;", f"server {site.upstream};"),
        (r"/etc/ssl/entrepot", str(site.folder)),
    )
    temporary = "".join(
        f"{kind}_temp_path {site.folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = site.folder / "nginx.conf"
    config.write_text(
        f"daemon off; user root; pid {site.folder}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{server}}}\n"
    )
    command = [require_tool("nginx"), "-p", str(site.folder), "-c", str(config)]
    return [*command, "-t"], command


def haproxy(site: Site) -> tuple[list[str], list[str]]:
    """Return the commands that check and run HAProxy."""
    config = site.folder / "haproxy.cfg"
    config.write_text(
        shipped(
            "haproxy.cfg",
            (r"bind :80$", f"bind 127.0.0.1:{site.plain_port}"),
            (r"bind :443 ", f"bind 127.0.0.1:{site.port} "),
            (r"/etc/ssl/entrepot/cert-and-key\.pem", str(site.folder / "both.pem")),
            (r"127\.0\.0\.1:5000", site.upstream),
        )
    )
    command = [require_tool("haproxy"), "-db", "-f", str(config)]
    return [*command, "-c"], command


def caddy(site: Site, *changes: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Return the commands that check and run Caddy."""
    config = site.folder / "Caddyfile"
    own = f"admin off\n\tauto_https disable_redirects\n\tstorage file_system {site.folder}/caddy"
    block = shipped(
        "Caddyfile",
        (r"^\{$", f"{{\n\t{own}"),
        (
            r"^registry\.example\.com \{",
            f"https://127.0.0.1:{site.port} {{\n\ttls {site.certificate} {site.key}",
        ),
        (r"127\.0\.0\.1:5000", site.upstream),
        *changes,
    )
    config.write_text(block)
    words = ["--config", str(config), "--adapter", "caddyfile"]
    program = require_tool("caddy")
    return [program, "validate", *words], [program, "run", *words]


@contextmanager
def proxied(
    made: Callable[[Site], tuple[list[str], list[str]]],
    folder: Path,
    registry: LiveRegistry,
    *options: tuple[int, int, int],
) -> Iterator[httpx.Client]:
    """Run a proxy in front of a registry, and connect to it with options of sockets."""
    site = Site(folder, free_port(), free_port(), registry.url.removeprefix("http://"))
    certify(site)
    check, command = made(site)
    run(*check)
    trusted = ssl.create_default_context(cafile=str(site.certificate))
    url = f"https://127.0.0.1:{site.port}"
    transport = httpx.HTTPTransport(verify=trusted, socket_options=options)
    with httpx.Client(base_url=url, transport=transport, timeout=110) as client:

        def is_ready() -> bool:
            try:
                return client.get("/healthz").status_code == 200
            except httpx.TransportError:
                return False

        with daemon(*command, log=folder / "log", ready=is_ready):
            yield client


def parts() -> Iterator[bytes]:
    for _ in range(LAYER_MIB):
        yield PART


def held_until_it_grows(folder: Path) -> Iterator[bytes]:
    """Yield a part, and the rest once the registry has some of it: no proxy may keep a body.

    The registry stages it in a file in `folder`.
    """

    def staged_bytes() -> int:
        return sum(each.stat().st_size for each in folder.iterdir())

    before = staged_bytes()
    yield PART
    until = time.monotonic() + 60
    while staged_bytes() <= before:
        assert time.monotonic() < until, "the proxy keeps the body until its end"
        time.sleep(0.01)
    yield b"end"


@pytest.mark.parametrize("made", [nginx, haproxy, caddy])
def test_large_layers_and_chunked_uploads_go_through(
    made: Callable[[Site], tuple[list[str], list[str]]],
    workspace: Path,
    live_registry: LiveRegistry,
    remote: Remote,
) -> None:
    hasher = hashlib.sha256()
    for part in parts():
        hasher.update(part)
    digest, size = f"sha256:{hasher.hexdigest()}", LAYER_MIB * MIB
    with proxied(made, workspace, live_registry) as client:
        ping = client.get("/v2/")
        assert (ping.status_code, ping.headers["docker-distribution-api-version"]) == (
            200,
            "registry/2.0",
        )
        uploads = f"{remote.base}/blobs/uploads/"
        # In one request, as skopeo and buildah: all bytes with the POST.
        answer = client.post(
            uploads,
            params={"digest": digest},
            content=parts(),
            headers={"content-length": str(size), "content-type": "application/octet-stream"},
        )
        assert answer.status_code == 201, answer.text
        # In parts of unknown length, as docker: the offset is known after each.
        begun = client.post(uploads)
        assert begun.status_code == 202
        location = client.base_url.join(begun.headers["location"])
        assert location.host == "127.0.0.1"
        sent = hashlib.sha256()
        staged = live_registry.data / "blobs" / "uploads"
        for number in (1, 2):
            answer = client.patch(location, content=held_until_it_grows(staged))
            assert answer.status_code == 202, answer.text
            assert answer.headers["range"] == f"0-{number * (MIB + 3) - 1}"
            location = client.base_url.join(answer.headers["location"])
            sent.update(PART + b"end")
        answer = client.put(location.copy_merge_params({"digest": f"sha256:{sent.hexdigest()}"}))
        assert answer.status_code == 201, answer.text
        pulled, length = hashlib.sha256(), 0
        with client.stream("GET", f"{remote.base}/blobs/{digest}") as answer:
            assert int(answer.headers["content-length"]) == size
            for chunk in answer.iter_raw(MIB):
                pulled.update(chunk)
                length += len(chunk)
        assert (length, pulled.hexdigest()) == (size, hasher.hexdigest())
        ranged = client.get(f"{remote.base}/blobs/{digest}", headers={"range": "bytes=5-9"})
        assert (ranged.status_code, ranged.content) == (206, PART[5:10])


def test_a_layer_larger_than_any_limit_of_other_bodies_goes_there_and_back(
    live_registry: LiveRegistry, remote: Remote
) -> None:
    """And larger than what the layers of container clients have in these tests."""
    zeros, count = bytes(MIB), 72
    hasher = hashlib.sha256()
    for _ in range(count):
        hasher.update(zeros)
    digest = f"sha256:{hasher.hexdigest()}"
    with httpx.Client(base_url=live_registry.url, timeout=110) as client:
        answer = client.post(
            f"{remote.base}/blobs/uploads/",
            params={"digest": digest},
            content=(zeros for _ in range(count)),
            headers={"content-length": str(count * MIB)},
        )
        assert answer.status_code == 201, answer.text
        pulled = hashlib.sha256()
        with client.stream("GET", f"{remote.base}/blobs/{digest}") as answer:
            for chunk in answer.iter_raw():
                pulled.update(chunk)
    assert pulled.hexdigest() == hasher.hexdigest()


def impatient_caddy(site: Site) -> tuple[list[str], list[str]]:
    """Return the commands of a Caddy whose hour is two seconds."""
    return caddy(site, (r" 1h$", " 2s"))


def drips(registry: LiveRegistry, path: str) -> Iterator[bytes]:
    """Yield a byte at a time, for longer than the limit, until the registry has ended it.

    This client reads no answer before its last byte, and nginx lets it send for 30 s more.
    """
    until = time.monotonic() + 60
    while time.monotonic() < until and f'"PATCH","path":"{path}"' not in registry.log:
        yield b"."
        time.sleep(0.05)


@pytest.fixture
def impatient_registry(workspace: Path) -> Iterator[LiveRegistry]:
    """Run a registry whose hour is two seconds."""
    registry = start_registry(workspace / "data", env={"ENTREPOT_REQUEST_SECONDS": "2"})
    yield registry
    assert registry.stop() == 0


def pushed(registry: LiveRegistry, content: bytes) -> str:
    """Push a blob in parts, none of which takes a busy machine two seconds; return its path."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    with httpx.Client(base_url=registry.url, timeout=110) as client:
        answer = client.post("/v2/dev/hour/blobs/uploads/")
        assert answer.status_code == 202
        for at in range(0, len(content), 4 * MIB):
            location = client.base_url.join(answer.headers["location"])
            answer = client.patch(location, content=content[at : at + 4 * MIB])
            assert answer.status_code == 202
        location = client.base_url.join(answer.headers["location"])
        answer = client.put(location.copy_merge_params({"digest": digest}))
    assert answer.status_code == 201
    return f"/v2/dev/hour/blobs/{digest}"


def is_ended(client: httpx.Client, location: httpx.URL, registry: LiveRegistry) -> bool:
    """Tell whether an upload that goes on steadily is ended: by an answer, or without one."""
    try:
        return client.patch(location, content=drips(registry, location.path)).status_code >= 400
    except httpx.TransportError:
        return True


def test_caddy_ends_any_request_at_its_hour(workspace: Path, live_registry: LiveRegistry) -> None:
    """In both directions, however steadily it goes on."""
    blob = pushed(live_registry, PART * ENDLESS_MIB)
    with (
        proxied(impatient_caddy, workspace, live_registry, UNREAD) as client,
        client.stream("GET", blob) as pulled,
    ):
        begun = client.post("/v2/dev/hour/blobs/uploads/")
        assert is_ended(client, client.base_url.join(begun.headers["location"]), live_registry)
        with pytest.raises(httpx.TransportError):
            pulled.read()


@pytest.mark.parametrize("made", [nginx, haproxy])
def test_the_registry_ends_any_request_behind_a_proxy_at_its_hour(
    made: Callable[[Site], tuple[list[str], list[str]]],
    workspace: Path,
    impatient_registry: LiveRegistry,
) -> None:
    """And an upload goes on where it stopped."""
    blob = pushed(impatient_registry, PART * ENDLESS_MIB)
    with (
        proxied(made, workspace, impatient_registry, UNREAD) as client,
        client.stream("GET", blob) as pulled,
    ):
        begun = client.post("/v2/dev/hour/blobs/uploads/")
        location = client.base_url.join(begun.headers["location"])
        assert is_ended(client, location, impatient_registry)
        with pytest.raises(httpx.TransportError):
            pulled.read()
        state = client.get(location)
        assert state.status_code == 204
        taken = int(state.headers["range"].removeprefix("0-")) + 1
        assert taken > 1
        digest = hashlib.sha256(b"." * taken + b"end").hexdigest()
        ended = client.put(
            location.copy_merge_params({"digest": f"sha256:{digest}"}), content=b"end"
        )
        assert ended.status_code == 201, ended.text
    assert impatient_registry.stop() == 0
    records = [json.loads(line) for line in impatient_registry.lines if line.startswith("{")]
    overdue = [each for each in records if each.get("reason") == "the request took longer than 2 s"]
    assert {each["method"] for each in overdue} == {"GET", "PATCH"}


@pytest.mark.parametrize("made", [nginx, haproxy])
def test_hosts_of_families_are_told_apart_behind_a_proxy(
    made: Callable[[Site], tuple[list[str], list[str]]], workspace: Path
) -> None:
    data = workspace / "data"
    copied_install(data)
    env = {
        "ENTREPOT_PUBLIC_URL": "https://cloud.example.com",
        "ENTREPOT_FAMILY_HOSTS": "pull=cr.example.com",
        "ENTREPOT_TRUSTED_PROXIES": "127.0.0.1",
    }
    registry = start_registry(data, command="serve", env=env)
    try:
        with proxied(made, workspace, registry) as client:
            refused = client.get("/v2/", headers={"Host": "cr.example.com"})
            assert refused.status_code == 401
            realm = 'Bearer realm="https://cr.example.com/v2/token"'
            assert refused.headers["www-authenticate"].startswith(realm)
            for host, path in (("cloud.example.com", "/v2/"), ("cr.example.com", "/v1/queues")):
                assert client.get(path, headers={"Host": host}).status_code == 404
    finally:
        assert registry.stop() == 0, registry.log
