"""TLS in process: versions, plain HTTP, handshakes that stall, and borrowed connections."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudcore.serving.limits import MIB, ServerLimits
from cloudcore.serving.request_record import PLAIN_HTTP
from cloudcore.serving.tls.stream import TlsStream
from cloudcore.serving.tls.transport import TlsAcceptor
from tests.integration.serving_app import (
    Client,
    RunningServer,
    SampleApplication,
    made_certificate,
    serving,
)
from tests.waiting import until

LIMITS = ServerLimits(
    head_seconds=1, linger_seconds=1, sweep_seconds=0.1, receive_threads=2, send_threads=2
)
SIZE = 16 * MIB  # more than the buffers of a connection hold
CONTENT = random.Random(5).randbytes(SIZE)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "content"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def server(file: Path) -> Iterator[RunningServer]:
    with serving(SampleApplication(file), LIMITS, loop="uvloop+tls") as running:
        yield running


def client_context() -> ssl.SSLContext:
    """Return settings of a client that trusts anything, to be narrowed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken_and_http_1_1_chosen(
    server: RunningServer, version: ssl.TLSVersion
) -> None:
    """And no certificate of a client is asked for."""
    assert server.worker.tls is not None
    assert server.worker.tls.context.verify_mode is ssl.CERT_NONE
    context = client_context()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    with Client(context.wrap_socket(server.connect_plain(), server_hostname="other")) as client:
        assert isinstance(client.sock, ssl.SSLSocket)
        assert client.sock.selected_alpn_protocol() == "http/1.1"
        cipher = client.sock.cipher()
        assert cipher is not None
        assert any(part in cipher[0] for part in ("GCM", "CHACHA20"))
        assert client.ask(b"GET /v2/a HTTP/1.1\r\nHost: a\r\n\r\n")[0].status == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_older_versions_and_weak_ciphers_are_refused(server: RunningServer) -> None:
    old, weak = client_context(), client_context()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("AES128-SHA")
    for context in (old, weak):
        with contextlib.closing(server.connect_plain()) as sock, pytest.raises(ssl.SSLError):
            context.wrap_socket(sock, server_hostname="localhost")


def test_plain_http_is_told_to_use_https(server: RunningServer) -> None:
    for path, shape in ((b"/v2/", b'"errors"'), (b"/v1/x", b'"error"')):
        with Client(server.connect_plain()) as client:
            response, body = client.ask(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path)
            assert response.status == 400
            assert PLAIN_HTTP.encode() in body
            assert shape in body
            assert client.is_closed()
    with Client(server.connect_plain()) as client:
        client.send(b"\x16" * 100)  # no handshake: it is ended, and is no request
        client.rest()
    until(lambda: server.server_connections == 0)
    assert [record.reason for record in server.records] == [PLAIN_HTTP, PLAIN_HTTP]


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_a_handshake_that_stalls_is_ended(server: RunningServer, sent: bytes) -> None:
    stalled = [server.connect_plain() for _ in range(30)]
    for sock in stalled:
        sock.sendall(sent)
    with server.connect() as client:  # who shakes hands meanwhile is served
        assert client.ask(b"GET /v2/a HTTP/1.1\r\nHost: a\r\n\r\n")[0].status == 200
    for sock in stalled:
        with contextlib.closing(sock):
            assert sock.recv(1) == b""
    until(lambda: server.server_connections == 0)


def test_a_head_in_many_records_and_pipelined_requests(server: RunningServer) -> None:
    request = b"GET /v2/%d HTTP/1.1\r\nHost: a\r\n\r\n"
    with server.connect() as client:
        for at in range(len(request % 1)):
            client.send((request % 1)[at : at + 1])
        assert client.response()[1] == b"/v2/1?"
        client.send(b"".join(request % number for number in range(50)))
        for number in range(50):
            assert client.response()[1] == b"/v2/%d?" % number


def test_a_request_behind_a_body_is_read_after_the_loan(server: RunningServer) -> None:
    head = b"PUT /v2/sink HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % SIZE
    with server.connect() as client:
        for _ in range(2):
            client.send(head)
            # The next request arrives in the same records as the end of the body.
            client.send(CONTENT + b"GET /v2/b HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = client.response()[1].decode().split()
            assert answer[0] == hashlib.sha256(CONTENT).hexdigest()
            assert answer[1].startswith("bulk-receive")
            assert client.response()[1] == b"/v2/b?"


def test_a_request_behind_a_slow_reader_is_answered_after_the_loan(server: RunningServer) -> None:
    with server.connect() as client:
        client.send(b"GET /v2/file HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: bool(server.worker.senders.jobs))
        client.send(b"GET /v2/b HTTP/1.1\r\nHost: a\r\n\r\n")
        assert client.response()[1] == CONTENT
        assert client.response()[1] == b"/v2/b?"


def test_a_client_that_leaves_in_a_loan_leaves_nothing(server: RunningServer) -> None:
    client = server.connect()
    client.send(b"GET /v2/file HTTP/1.1\r\nHost: a\r\n\r\n")
    client.sock.recv(1000)
    client.close()
    until(lambda: not server.worker.senders.jobs and server.server_connections == 0)


def test_an_end_that_is_read_with_what_is_before_it_is_told_again() -> None:
    """The event loop may tell of it once: uvloop stops to watch a socket that was reset."""
    tls, trust = made_certificate()
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        raw = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    with contextlib.closing(TlsStream(accepted, tls.context)) as stream:
        shaking = threading.Thread(target=stream.shake_hands)
        shaking.start()
        client = trust.wrap_socket(raw, server_hostname="localhost")
        shaking.join()
        client.sendall(b"request")
        socket.socket.shutdown(client, socket.SHUT_WR)
        buffer = bytearray(100)
        assert stream.recv_into(buffer) == len(b"request")
        assert stream.is_pending
        assert stream.recv_into(buffer) == 0
        client.close()


class AcceptedTransport(asyncio.Transport):
    """What an event loop gives of a connection."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_a_connection_without_a_descriptor_of_its_own_is_ended() -> None:
    """Its client would otherwise keep it for ever, at no cost."""
    with contextlib.closing(asyncio.new_event_loop()) as loop, socket.socket() as sock:
        sock.close()  # it cannot be duplicated, as if there were too many
        transport = AcceptedTransport({"socket": sock})
        served, _ = made_certificate()
        acceptor = TlsAcceptor(loop, served, lambda: pytest.fail("connected"))
        acceptor.connection_made(transport)
        assert transport.aborted


def test_the_end_is_told_before_the_connection_closes(server: RunningServer) -> None:
    """Without the farewell, a client could not tell an end from a cut."""
    context = client_context()
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    sock = context.wrap_socket(
        server.connect_plain(), server_hostname="localhost", suppress_ragged_eofs=False
    )
    with contextlib.closing(sock):
        sock.sendall(b"GET /v2/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        got = b""
        while part := sock.recv(4096):  # it raises SSLEOFError at a cut
            got += part
    assert got.endswith(b"/v2/a?")
