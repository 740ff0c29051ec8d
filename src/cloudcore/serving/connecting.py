"""What a worker does with each connection: plain HTTP, or TLS below it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from cloudcore.serving.protocol import HttpProtocol
from cloudcore.serving.tls_transport import TlsAcceptor
from cloudcore.serving.worker import ServerWorker

if TYPE_CHECKING:
    from cloudcore.serving.tls_serving import ServedTls


def http_protocol(worker: ServerWorker) -> type[asyncio.Protocol]:
    """Return a factory of `worker`'s connections for ``uvicorn.Config(http=...)``."""
    if worker.tls is not None:
        return cast("type[asyncio.Protocol]", partial(_tls_protocol, worker, worker.tls))
    return cast("type[asyncio.Protocol]", partial(HttpProtocol, worker))


def _tls_protocol(
    worker: ServerWorker,
    tls: ServedTls,
    config: Config,
    server_state: ServerState,
    app_state: dict[str, Any],
    _loop: asyncio.AbstractEventLoop | None = None,
) -> asyncio.Protocol:
    loop = _loop or asyncio.get_running_loop()
    connect = partial(HttpProtocol, worker, config, server_state, app_state, loop)
    return TlsAcceptor(loop, tls, connect)
