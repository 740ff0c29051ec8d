"""Connections to webhooks."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.integration.notifications_world import World


async def test_no_connection_to_a_webhook_is_kept_since_no_post_would_use_it(
    notified: World,
) -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = notified.served.notifications.client
    client.allowed = client.allowed._replace(origins=[url])
    async with server:
        async with client.request("POST", f"{url}/hook", {}, b"") as got:
            assert got.head.status == 200
        async with asyncio.timeout(60):
            await ended.wait()
