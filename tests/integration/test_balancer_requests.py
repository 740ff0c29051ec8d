"""What both proxies of load balancers pass on, and what they refuse."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cloudcore.loadbalancer.driver import HealthPlan, ListenerPlan
from tests.balanced import Balanced, Server, balanced
from tests.certificates import self_signed

LISTENERS = (ListenerPlan(8080, "http", "web"), ListenerPlan(8443, "https", "web", "own.pem"))
END = b"Connection: close\r\n\r\n"


@pytest.fixture(params=["embedded", "haproxy"])
async def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    started = await Server("one").start()
    yield started
    await started.die()


@pytest.fixture
async def balancer(kind: str, server: Server, tmp_path: Path) -> AsyncIterator[Balanced]:
    certificate, key = self_signed(tmp_path, "own.example.com")
    async with balanced(tmp_path, kind, head_seconds=1) as made:
        pem = certificate.read_bytes() + key.read_bytes()
        await made.apply(made.plan(server, listeners=LISTENERS), certificates={"own.pem": pem})
        yield made


def lines_of(head: bytes) -> list[bytes]:
    """Return the lower-case lines of a head."""
    return head.lower().split(b"\r\n")


async def test_a_target_is_told_where_a_request_comes_from_and_by_what(
    balancer: Balanced, server: Server, tmp_path: Path
) -> None:
    await balancer.ask(b"GET /a?b=%20 HTTP/1.1\r\nHost: a.example.com\r\nX-Own: 1\r\n\r\n")
    first, *lines = lines_of(server.requests[-1])
    assert first == b"get /a?b=%20 http/1.1"
    own = {b"host: a.example.com", b"x-own: 1"}
    assert own | {b"x-forwarded-for: 127.0.0.1", b"x-forwarded-proto: http"} <= {*lines}
    trust = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    await balancer.ask(port=8443, tls=trust)
    assert b"x-forwarded-proto: https" in lines_of(server.requests[-1])


async def test_what_a_client_says_of_its_origin_is_not_the_last_word(
    balancer: Balanced, server: Server
) -> None:
    await balancer.ask(
        b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1, 192.0.2.2\r\n"
        b"X-Forwarded-Proto: https\r\nX_Forwarded_For: 192.0.2.3\r\nX-Forwarded_Proto: https\r\n"
        b"Connection: x-forwarded-for\r\n\r\n",
    )
    lines = lines_of(server.requests[-1])
    addresses = [line.partition(b": ")[2] for line in lines if line.startswith(b"x-forwarded-for")]
    assert b", ".join(addresses).split(b", ")[-1] == b"127.0.0.1"
    assert [line for line in lines if line.startswith(b"x-forwarded-proto")] == [
        b"x-forwarded-proto: http"
    ]
    assert not any(b"_" in line for line in lines)


async def test_fields_of_one_connection_are_not_passed_on(
    balancer: Balanced, server: Server
) -> None:
    await balancer.ask(
        b"GET / HTTP/1.1\r\nHost: a\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
        b"Connection: keep-alive, upgrade, http2-settings\r\n\r\n",
    )
    head = server.requests[-1].lower()
    for name in (b"keep-alive:", b"proxy-connection:", b"h2c", b"http2-settings:"):
        assert name not in head


CHUNKED = b"POST /%b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n%b\r\n"


async def test_bodies_go_through_however_they_are_framed(
    balancer: Balanced, server: Server
) -> None:
    body = bytes(range(256)) * 1000
    counted = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert (await balancer.ask(counted + body)).body == body
    chunks = b"".join(b"%x\r\n%b\r\n" % (1000, body[n : n + 1000]) for n in range(0, 256_000, 1000))
    # A chunk's size in hexadecimal; its extension and the trailer are dropped.
    chunks = chunks.replace(b"3e8\r\n", b"3E8;a=b\r\n", 1)
    whole = CHUNKED % (b"chunked", b"") + chunks + b"0\r\nX-Trailer: 1\r\n\r\n"
    assert (await balancer.ask(whole)).body == body
    await balancer.ask(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
    assert b"content-length: 0" in lines_of(server.requests[-1])
    expecting = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    client = await balancer.connect()
    assert (await client.ask(expecting + b"ok")).status in (100, 200)
    head = await balancer.ask(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"content-length: 3" in lines_of(head.head)
    absolute = b"GET http://b.example.com/c HTTP/1.1\r\nHost: b.example.com\r\n\r\n"
    assert (await balancer.ask(absolute)).status == 200
    client = await balancer.connect()
    client.writer.write(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert [(await client.read()).status for _ in range(2)] == [200, 200]
    old = await balancer.connect()
    assert (await old.ask(b"GET / HTTP/1.0\r\n\r\n")).body == b"one"
    assert await old.rest() == b""


async def test_a_client_of_http_1_0_gets_no_chunks(tmp_path: Path) -> None:
    async def chunked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")

    one = await Server("one", chunked).start()
    async with balanced(tmp_path, "embedded") as balancer:  # which asks by HTTP/1.1 in any case
        await balancer.apply(balancer.plan(one))
        client = await balancer.connect()
        client.writer.write(b"GET / HTTP/1.0\r\n\r\n")
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
        assert body == b"hello world"
        assert b"transfer-encoding" not in head.lower()
    await one.die()


async def test_half_a_response_without_a_length_ends_in_a_reset(tmp_path: Path) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")

    one = await Server("one", break_off).start()
    async with balanced(tmp_path, "embedded") as balancer:
        await balancer.apply(balancer.plan(one))
        client = await balancer.connect()
        client.writer.write(b"GET / HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await client.reader.read()
    await one.die()


async def test_a_target_that_refuses_a_body_unread_is_heard(tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
        await writer.drain()
        writer.close()  # with bytes unread, which resets the connection

    one = await Server("one", refuse).start()
    async with balanced(tmp_path, "embedded") as balancer:  # HAProxy often gives up
        await balancer.apply(balancer.plan(one, health=HealthPlan("tcp", "/", 300, 1, 1, 3)))
        for _ in range(20):
            client = await balancer.connect()
            head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n"
            client.writer.write(head + bytes(200_000))
            answer = await client.read()
            assert (answer.status, answer.body) == (413, b"too large")
            client.writer.close()
    await one.die()


async def test_a_head_of_a_target_that_is_too_large_is_not_the_clients_fault(
    kind: str, tmp_path: Path
) -> None:
    async def boast(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 17_000 + b"\r\nContent-Length: 0\r\n\r\n")

    one = await Server("one", boast).start()
    async with balanced(tmp_path, kind) as balancer:
        await balancer.apply(balancer.plan(one, health=HealthPlan("tcp", "/", 300, 1, 1, 3)))
        assert (await balancer.ask()).status == 502
    await one.die()


REFUSED = {
    "two lengths that differ": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
    b"Content-Length: 2\r\n\r\nab",
    "a length that is no number": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",
    "a coding that is not chunked": b"POST / HTTP/1.1\r\nHost: a\r\n"
    b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\n",
    "a space before a colon": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 1\r\n\r\na",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "CONNECT": b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x00\x00\r\n\r\n",
    "a head that is too large": b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 17_000 + b"\r\n\r\n",
    "too many fields": b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 150 + b"\r\n",
}


async def test_what_two_could_read_differently_is_refused(
    balancer: Balanced, server: Server
) -> None:
    for name, request in REFUSED.items():
        answer = await balancer.ask(request)
        assert 400 <= answer.status < 500, name
        assert b"connection: close" in answer.head.lower() or b"content-length" in (
            answer.head.lower()
        ), name
    assert server.requests == []


async def test_no_request_is_smuggled_behind_two_lengths(
    kind: str, balancer: Balanced, server: Server
) -> None:
    hidden = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
    for lengths in (
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 40\r\n",
        b"Content-Length: 40\r\nTransfer-Encoding: xchunked\r\n",
        b"Content-Length: 40\r\nTransfer-Encoding:\x0bchunked\r\n",
    ):
        client = await balancer.connect()
        client.writer.write(
            b"POST /outer HTTP/1.1\r\nHost: a\r\n%b\r\n0\r\n\r\n%b" % (lengths, hidden)
        )
        answered = await client.rest()
        client.writer.close()
        assert answered.count(b"HTTP/1.1 ") == 1, lengths
    assert not any(b"/hidden" in head for head in server.requests)
    if kind == "embedded":
        assert server.requests == []
    for head in server.requests:  # HAProxy: one length, which it has found, and the end after it
        assert b"content-length" not in head.lower()


async def test_what_a_target_leaves_of_a_body_is_no_request(tmp_path: Path) -> None:
    hidden = b"GET /hidden HTTP/1.1\r\nHost: a\r\nX: 34567890123456789012345678\r\n\r\n"
    assert len(hidden) == 64  # so that a read of the proxy ends where one of them does

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the head of a request, and leave the body unread, as a full server does."""
        head = await reader.readuntil(b"\r\n\r\n")
        one.heads.append(head)
        if head.startswith(b"POST"):
            await asyncio.sleep(0.001)
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    one = await Server("one", refuse).start(tmp_path / "one.socket")
    async with balanced(tmp_path, "embedded") as balancer:
        await balancer.apply(balancer.plan(one, health=HealthPlan("tcp", "/", 300, 1, 1, 3)))
        for _ in range(20):
            client = await balancer.connect()
            body = hidden * 65536
            head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nY: " % len(body)
            client.writer.write(head.ljust(128 - 4, b"y") + b"\r\n\r\n" + body)
            answered = await client.rest()
            client.writer.close()
            assert answered.count(b"HTTP/1.1 ") <= 1
        assert not any(b"/hidden" in head for head in one.heads)
    await one.die()


async def test_malformed_chunks_end_a_request(kind: str, balancer: Balanced) -> None:
    broken = [b"0x5\r\nhello\r\n0\r\n\r\n", b"2\r\nhello\r\n0\r\n\r\n"]
    if kind == "embedded":  # HAProxy takes the end of a line alone, and writes both
        broken.append(b"5\nhello\r\n0\r\n\r\n")
    for chunks in broken:
        client = await balancer.connect()
        client.writer.write(CHUNKED % (b"broken", b"") + chunks)
        assert (await client.rest())[9:10] == b"4", chunks
        client.writer.close()
    assert (await balancer.ask()).status == 200


async def test_slow_heads_are_ended_and_keep_nobody_waiting(
    balancer: Balanced, server: Server
) -> None:
    slow = [await balancer.connect() for _ in range(50)]
    ends = [asyncio.create_task(client.rest()) for client in slow]
    for client in slow:
        client.writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")
    while not all(end.done() for end in ends):
        for client in slow:
            client.writer.write(b"X: 1\r\n")  # more and more, never the end
        assert (await balancer.ask()).status == 200
    assert {end.result()[:12] for end in ends} <= {
        b"HTTP/1.1 408",
        b"HTTP/1.1 431",
        b"HTTP/1.1 400",
    }


async def test_a_web_socket_goes_through(balancer: Balanced) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"websocket" in head.lower():
            writer.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello"
            )
            writer.write(await reader.readexactly(4))

    socketed = await Server("socketed", serve).start()
    await balancer.apply(balancer.plan(socketed, health=HealthPlan("tcp")))
    client = await balancer.connect()
    answer = await client.ask(
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    assert answer.status == 101
    assert b"upgrade: websocket" in lines_of(answer.head)
    client.writer.write(b"ping")
    assert await client.rest() == b"helloping"
    await socketed.die()


async def test_tls_is_1_2_or_newer_and_haproxy_speaks_http_2(
    kind: str, balancer: Balanced, tmp_path: Path
) -> None:
    trust = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    trust.set_alpn_protocols(["h2", "http/1.1"])
    client = await balancer.connect(8443, trust)
    secured = client.writer.get_extra_info("ssl_object")
    assert secured.version() == "TLSv1.3"
    assert secured.selected_alpn_protocol() == ("h2" if kind == "haproxy" else "http/1.1")
    old = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await balancer.connect(8443, old)
