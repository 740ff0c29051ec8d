"""Run the server: bind, serve with uvicorn on our own protocol, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

import uvicorn.lifespan.on  # which uvicorn would load in each worker, and the next
import uvicorn.loops.uvloop
import uvicorn.server
from uvicorn.config import Config
from uvicorn.server import ServerState

from cloudcore.serving.counters import ApplicationEvents, Counter, Counters, Gauge
from cloudcore.serving.dispatch import Application, Dispatcher
from cloudcore.serving.http.protocol import HttpProtocol
from cloudcore.serving.http.worker import ServerWorker
from cloudcore.serving.limits import ServerLimits
from cloudcore.serving.logs import AccessLog
from cloudcore.serving.planes import PLAIN, Planes
from cloudcore.serving.processes.supervisor import Supervisor, release_unused
from cloudcore.serving.tls.files import CertificateKeeper, ServedTls, TlsIdentity, load_tls
from cloudcore.serving.tls.paths import TlsFiles
from cloudcore.serving.tls.transport import TlsAcceptor
from cloudcore.serving.tls.validation import ValidationApplication

logger = logging.getLogger("cloudcore.serving")

BACKLOG = 2048
CONNECTION_DESCRIPTORS = 4
"""Descriptors per transfer: its socket, a bulk job's duplicate, and the files of an upload."""
JOB_GRACE_SECONDS = 2.0
APPLICATION_GRACE_SECONDS = 2.0
TICKS_OF_KEPT = 100
"""Ticks, of a tenth of a second, between two removals of expired kept answers."""
TICKS_OF_TLS = 10
"""Ticks between two checks of the certificate's files."""
EXIT_GRACE_SECONDS = 4.5
"""Seconds after the drain in which a process must end by itself."""
SWITCH_SECONDS = 0.0005
"""Seconds for which a computing thread, such as one that parses a large document, may hold the
interpreter's lock. The event loop needs it several times per request, and would wait up to
Python's default of 5 ms each time."""

Address = tuple[str, int]


class ListenError(OSError):
    """The server cannot listen at an address, which is the `filename`."""


@dataclass(frozen=True, slots=True)
class Service:
    """The configuration of every worker: the application and its addresses."""

    app_factory: Callable[[], Dispatcher]
    listeners: Sequence[socket.socket]
    limits: ServerLimits
    planes: Planes
    counters: Counters
    metrics_listener: socket.socket | None
    tls: tuple[TlsFiles, TlsIdentity] | None = None
    keeper: CertificateKeeper | None = None
    validation: tuple[socket.socket, Sequence[str]] | None = None
    """Listener of plain HTTP that answers http-01 challenges (RFC 8555 §8.3), and the public URLs
    to which it redirects all other requests."""


def run(
    app_factory: Callable[[], Dispatcher],
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    planes: Planes,
    application_events: ApplicationEvents = ApplicationEvents(),  # noqa: B008 - immutable
    workers: int = 1,
    limits: ServerLimits | None = None,
    metrics_bind: Address | None = None,
    on_ready: Callable[[str], None],
    tls: TlsFiles | None = None,
    keeper: CertificateKeeper | None = None,
    validation: tuple[Address, Sequence[str]] | None = None,
    more_ports: Sequence[int] = (),
) -> int:
    """Serve until SIGTERM or SIGINT, then drain; return the exit status of the process.

    `app_factory` is called once in each worker process. Several workers are forked from this
    process and share what it has loaded: it must have no threads and no open databases. `planes`
    are those that the application dispatches to, `application_events` are what it counts besides
    requests. `on_ready` is called with the base URL once every worker accepts connections. A `port`
    of 0 means any free one. With `tls`, connections are encrypted; renewed certificate files are
    loaded automatically, and `keeper` renews them. `validation` is the address of a plain HTTP
    listener for http-01 challenges, and the URLs to which it redirects all other requests.
    `more_ports` of the same host serve the same as `port`.

    Raise `TlsFilesError` if the certificate cannot be served.
    """
    identity = None if tls is None else (tls, load_tls(tls, time.time()))
    limits = limits or ServerLimits()
    crowd = min(limits.crowd, _raise_descriptor_limit() // (2 * CONNECTION_DESCRIPTORS))
    listeners = [bind(host, each) for each in (port, *more_ports)]
    url_host = f"[{host}]" if ":" in host else host
    url = f"{'http' if tls is None else 'https'}://{url_host}:{listeners[0].getsockname()[1]}"
    service = Service(
        app_factory,
        listeners,
        replace(limits, crowd=crowd),
        planes,
        Counters(workers, planes, application_events),
        bind(*metrics_bind) if metrics_bind else None,
        identity,
        keeper,
        (bind(*validation[0]), validation[1]) if validation else None,
    )

    ready = partial(on_ready, url)
    if workers == 1:
        return serve(service, 0, ready)
    if service.metrics_listener is not None:
        import_module("cloudcore.serving.metrics")  # which each worker would import
    drain = service.limits.leaving_seconds + service.limits.shutdown_seconds
    patience = drain + EXIT_GRACE_SECONDS + 1
    beside = (service.metrics_listener, service.validation and service.validation[0])
    sockets = [*listeners, *(each for each in beside if each)]
    supervisor = Supervisor(
        partial(serve, service, is_supervised=True),
        workers,
        sockets,
        patience,
        reloads=tls is not None,
    )
    return supervisor.run(ready)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket; raise `ListenError` if it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(error.errno, error.strerror, f"{host}:{port}") from None
    listener.setblocking(False)  # noqa: FBT003
    return listener


def _raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit, for slow clients; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def serve(
    service: Service, slot: int, on_ready: Callable[[], object], *, is_supervised: bool = False
) -> int:
    """Run worker number `slot`: serve until a signal, drain, and return the exit status.

    If it `is_supervised`, the worker ignores SIGTERM after it has drained: the supervisor's second
    SIGTERM may arrive only then.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    scheme = "http" if service.tls is None else "https"
    access_log = AccessLog(service.planes, scheme=scheme)
    counter = service.counters.counter(slot)
    keeper = service.keeper
    validations = None if keeper is None else keeper.validations
    tls = None if service.tls is None else ServedTls(*service.tls, counter.count, validations)
    worker = ServerWorker(service.planes, service.limits, counter, access_log, tls=tls)
    application = service.app_factory()
    application.on_event = counter.count
    config = Config(
        application,
        http=http_protocol(worker),
        ws="none",
        loop="uvloop",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=True,
        backlog=BACKLOG,
    )
    server = WorkerServer(config, application, service, worker, counter, on_ready)
    server.is_supervised = is_supervised
    if keeper is not None and slot == 0:
        server.keep = partial(keeper.keep, counter.count)
    access_log.start()
    try:
        server.run(list(service.listeners))
    except SystemExit as error:
        return int(error.code or 0)
    finally:
        worker.close()
        access_log.close()
    return 0


class WorkerServer(uvicorn.server.Server):
    """A uvicorn server whose drain has a time limit."""

    def __init__(
        self,
        config: Config,
        application: Dispatcher,
        service: Service,
        worker: ServerWorker,
        counter: Counter,
        on_ready: Callable[[], object],
    ) -> None:
        super().__init__(config)
        self._application = application
        self._service = service
        self._worker = worker
        self._counter = counter
        self._on_ready = on_ready
        self.keep: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Renews the certificate until it is cancelled; only one worker has this."""
        self._keeping: asyncio.Task[None] | None = None
        self.is_supervised = False
        """True if the process ends with the server, and gets SIGTERM twice."""
        self._leaves_at: float | None = None
        """When the drain begins; None until the server is told to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain on SIGTERM and SIGINT; unlike uvicorn, do not raise them again afterwards."""
        previous = {
            sig: signal.signal(sig, self._drain)
            for sig in (signal.SIGTERM, signal.SIGINT)
            if signal.getsignal(sig) is not signal.SIG_IGN
        }
        if self._worker.tls is not None:
            previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._reload)
        try:
            yield
        finally:
            if self.is_supervised:
                previous[signal.SIGTERM] = signal.SIG_IGN
            for sig, handler in previous.items():
                signal.signal(sig, handler)

    def _drain(self, sig: int, frame: Any) -> None:  # noqa: ANN401 - signal's own signature
        """Begin to drain: `leaving_seconds` after the first SIGTERM, otherwise at once."""
        seconds = self._service.limits.leaving_seconds
        if sig == signal.SIGTERM and self._leaves_at is None and seconds:
            self._leaves_at = time.monotonic() + seconds
            self._application.leave()
            return
        if not self.should_exit:
            _end_process_after(self._service.limits.shutdown_seconds + EXIT_GRACE_SECONDS)
        self.handle_exit(sig, frame)

    def _reload(self, sig: int, frame: Any) -> None:  # noqa: ANN401, ARG002 - signal's own signature
        if self._worker.tls is not None:
            self._worker.tls.must_reload = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start uvicorn and the other listeners; call `on_ready` when all accept connections."""
        await super().startup(sockets)
        self._worker.kept = self._application.kept
        if self._service.metrics_listener is not None:
            from cloudcore.serving.metrics import MetricsApplication  # noqa: PLC0415 - 60 ms

            metrics = MetricsApplication(self._service.counters, self._measure_all)
            self.servers.append(await self._serve_beside(self._service.metrics_listener, metrics))
        if self._service.validation is not None:
            listener, urls = self._service.validation
            tls = self._worker.tls
            assert tls is not None
            assert tls.validations is not None
            answers = ValidationApplication(tls.validations, urls)
            self.servers.append(await self._serve_beside(listener, answers))
        if self.keep is not None:
            self._keeping = asyncio.create_task(self.keep())
        release_unused()
        self._on_ready()

    async def _serve_beside(
        self, listener: socket.socket, application: Application
    ) -> asyncio.Server:
        """Serve a small application in plain HTTP, beside the main one."""
        config = cast("Config", SimpleNamespace(loaded_app=application))
        connect = partial(
            HttpProtocol, ServerWorker(PLAIN, self._service.limits), config, ServerState(), {}
        )
        return await asyncio.get_running_loop().create_server(connect, sock=listener)

    async def _measure_all(self) -> Sequence[Gauge]:
        tls = self._worker.tls
        return [*await self._application.measure(), *(() if tls is None else (tls.gauge(),))]

    async def on_tick(self, counter: int) -> bool:
        """Run uvicorn's tick (ten times a second), and publish the counters."""
        kept = self._worker.kept
        if kept is not None and not counter % TICKS_OF_KEPT:
            kept.drop_ended()
        if self._worker.tls is not None and not counter % TICKS_OF_TLS:
            self._worker.tls.check()
        self._counter.publish(len(self.server_state.tasks), kept)
        if self._leaves_at is not None and time.monotonic() >= self._leaves_at:
            self._drain(signal.SIGTERM, None)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, end long polls, let requests finish, abort slow ones, and stop."""
        if self._keeping is not None:
            self._keeping.cancel()
        self._application.ending.set()
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        connections = cast("set[HttpProtocol]", self.server_state.connections)
        for connection in tuple(connections):
            connection.shutdown()
        await self._wait_for(
            lambda: not connections and not self.server_state.tasks,
            self._service.limits.shutdown_seconds,
        )
        if connections or self.server_state.tasks:
            logger.warning("cut %d exchanges that did not end in time", len(connections))
            for connection in tuple(connections):
                connection.abort("the server stopped before the exchange had ended")
            for task in tuple(self.server_state.tasks):
                task.cancel()
        receivers, senders = self._worker.receivers, self._worker.senders
        await self._wait_for(lambda: not receivers.jobs and not senders.jobs, JOB_GRACE_SECONDS)
        try:
            await asyncio.wait_for(self.lifespan.shutdown(), APPLICATION_GRACE_SECONDS)
        except TimeoutError:
            logger.warning("cut the application, which did not stop in time")
            self.lifespan.shutdown_failed = True  # else uvicorn logs the cut with a traceback

    async def _wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline and not self.force_exit:  # noqa: ASYNC110 - several conditions, none with an event
            await asyncio.sleep(0.02)


def _end_process_after(seconds: float) -> None:
    """Exit the process if it still runs after `seconds`, so that a drain cannot hang."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


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
