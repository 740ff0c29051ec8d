"""What an authority is shown that looks whether a name is ours, over TLS and over plain HTTP."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from cloudcore.serving.tls.validation import (
    ValidationApplication,
    Validations,
    proof_file,
    token_file,
)
from tests.certificates import self_signed
from tests.integration.serving_app import RunningServer, serving

NAME = "registry.example.com"


@pytest.fixture
def proofs(tmp_path: Path) -> Path:
    """Write a proof of the name, which is ours, and of another; return the folder."""
    folder = tmp_path / "proofs"
    folder.mkdir()
    for name in (NAME, "other.example.com"):
        certificate, key = self_signed(tmp_path, name)
        proof_file(folder, name).write_bytes(certificate.read_bytes() + key.read_bytes())
    return folder


@pytest.fixture
def server(proofs: Path) -> Iterator[RunningServer]:
    with serving(loop="uvloop+tls", validations=Validations(proofs, (NAME,))) as running:
        yield running


def asker(proofs: Path, protocol: str = "acme-tls/1", name: str = NAME) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=proof_file(proofs, name))
    context.set_alpn_protocols([protocol])
    return context


def test_an_authority_is_shown_the_proof_and_nothing_else(
    server: RunningServer, proofs: Path
) -> None:
    with closing(server.connect_plain()) as plain:
        sock = asker(proofs).wrap_socket(plain, server_hostname=NAME)
        assert sock.selected_alpn_protocol() == "acme-tls/1"
        assert sock.recv(1) == b""
        sock.close()


def test_a_name_that_is_not_ours_is_unknown_and_clients_are_served_as_ever(
    server: RunningServer, proofs: Path
) -> None:
    for name in ("other.example.com", "missing.example.com"):
        with closing(server.connect_plain()) as plain, pytest.raises(ssl.SSLError):
            asker(proofs).wrap_socket(plain, server_hostname=name)
    with closing(server.connect_plain()) as plain:
        plain.sendall(b"\x16\x03\x01\x02\x00\x01")  # a hello that ends in the middle
        plain.shutdown(socket.SHUT_WR)
        plain.settimeout(60)
        while plain.recv(4096):
            pass
    with closing(server.shake_hands(server.connect_plain())) as sock:
        sock.sendall(b"GET /v2/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_hello_in_pieces_is_understood(server: RunningServer, proofs: Path) -> None:
    """Hellos with keys of post-quantum exchanges are larger than a packet."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asker(proofs).wrap_bio(incoming, outgoing, server_hostname=NAME)
    with closing(server.connect_plain()) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        hello = outgoing.read()
        for piece in (hello[:1], hello[1:4], hello[4:60], hello[60:-1], hello[-1:]):
            plain.sendall(piece)
            _sent(plain)
        while True:
            incoming.write(plain.recv(65536))
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                continue
            break
        plain.sendall(outgoing.read())
        assert client.selected_alpn_protocol() == "acme-tls/1"


def test_without_an_order_nobody_is_shown_a_proof(server: RunningServer, proofs: Path) -> None:
    context = asker(proofs)
    for file in proofs.iterdir():
        file.unlink()
    proofs.rmdir()
    with closing(server.connect_plain()) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname=NAME)


def test_only_tokens_that_are_there_are_answered(proofs: Path) -> None:
    token_file(proofs, "token").write_bytes(b"token.thumbprint")
    validations = Validations(proofs, (NAME,))
    place = "/.well-known/acme-challenge"
    assert validations.find_answer(f"{place}/token") == b"token.thumbprint"
    for path in ("", "/", "/../token", "/a/b", "/other", "/%74oken"):
        assert validations.find_answer(place + path) is None
    for token in ("", "../token", "a" * 201):
        with pytest.raises(ValueError, match="base64url"):
            token_file(proofs, token)


async def test_over_plain_http_authorities_are_answered_and_nobody_writes(proofs: Path) -> None:
    place = "http://registry.example.com/.well-known/acme-challenge"
    token_file(proofs, "token").write_bytes(b"token.thumbprint")
    application = ValidationApplication(
        Validations(proofs, (NAME,)), [f"https://{NAME}", "https://pull.example.com:8443"]
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application)) as client:
        for method, url, status, told in (
            ("GET", f"{place}/token", 200, "token.thumbprint"),
            ("GET", f"{place}/other", 404, "not found\n"),
            ("POST", f"{place}/token", 403, "use https://\n"),
            ("PUT", f"http://{NAME}/v2/a", 403, "use https://\n"),
        ):
            answer = await client.request(method, url)
            assert (answer.status_code, answer.text) == (status, told), (method, url)
            assert "location" not in answer.headers
        for host, target in (
            ("pull.example.com", "https://pull.example.com:8443/a%2Fb?c=d"),
            ("evil.example", f"https://{NAME}/a%2Fb?c=d"),
        ):
            moved = await client.get(f"http://{host}/a%2Fb?c=d")
            assert (moved.is_redirect, moved.headers["location"]) == (True, target)


def _sent(sock: socket.socket) -> None:
    """Wait until the server's machine has taken all that was sent (TCP_INFO's unacked)."""
    while struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 24)[0]:
        pass
