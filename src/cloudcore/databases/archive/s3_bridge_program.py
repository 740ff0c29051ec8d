"""The S3 bridge: it adds TLS, which pgBackRest requires, to the install's S3 endpoint.

It runs as a program that imports only the standard library, so that gigabytes of backups do not
pass through a server process. It relays bytes and has no credentials. It exits when its standard
input closes, which happens at the latest when the process that started it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
from functools import partial
from typing import Any

_CHUNK = 1 << 16


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until either side ends, then close `writer`."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _relay(
    order: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        pinned = _pinned(order["pinned"]) if order["pinned"] else None
        name = order["name"] if order["pinned"] else None
        answers, asks = await asyncio.open_connection(
            order["host"], order["port"], ssl=pinned, server_hostname=name
        )
    except OSError as error:
        print(f"the S3 endpoint cannot be reached: {error}", file=sys.stderr, flush=True)  # noqa: T201
        writer.close()
        return
    await asyncio.gather(_pump(reader, asks), _pump(answers, writer))


def _pinned(file: str) -> ssl.SSLContext:
    """Return a TLS context that trusts only the certificate in a file, that of our own server.

    The file is read for each connection, as the certificate is renewed.
    """
    context = ssl.create_default_context(cafile=file)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


async def _serve(order: dict[str, Any]) -> None:
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(f"/proc/self/fd/{order['certificate']}")
    server = await asyncio.start_server(
        partial(_relay, order), "127.0.0.1", order["listens"], ssl=shown, limit=_CHUNK
    )
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(_serve(json.loads(sys.stdin.buffer.readline())))
