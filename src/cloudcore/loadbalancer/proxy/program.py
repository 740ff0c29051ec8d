"""The embedded proxy: a program, one for each replica, that outlives the service.

    python -m cloudcore.loadbalancer.proxy.program CONFIGURATION CONTROL

It reads its configuration (`configuration.proxy_document`), and listens on the Unix socket CONTROL
for commands, one line each:

`state`: answer with a line of JSON that has health and metrics.
`apply CONFIGURATION`: apply the new configuration, and then answer as `state`; connections stay.

After SIGUSR1 it accepts no new connections and exits when the last one has ended; SIGTERM ends it
at once.

It imports only the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cloudcore.loadbalancer.proxy.relay import Conversation, Metrics, relay_stream
from cloudcore.loadbalancer.proxy.targets import BUFFER_BYTES, Channel, ProxyBackend

_BACKLOG: Final = 1024
_ACCEPTED_AT_ONCE: Final = 64
_HANDSHAKE_SECONDS: Final = 10
_CONTROL_BYTES: Final = 16 * 1024 * 1024
_OTHER_DESCRIPTORS: Final = 100
_PEM: Final = "certificate.pem"
_NOBODY: Final = 65534
_NAMESPACE_SETTINGS: Final = {
    "ip_unprivileged_port_start": "0",
    # Connections that an ending replica has not accepted go to another replica.
    "tcp_migrate_req": "1",
}


class Listener:
    """A listening port, and the handler of its connections."""

    def __init__(self, address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # With IPPROTO_TCP, asyncio sets TCP_NODELAY: small parts are sent at once.
        self.socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self.socket.bind((address, port))
            self.socket.listen(_BACKLOG)
            self.socket.settimeout(0)
        except OSError as error:
            self.socket.close()
            raise OSError(error.errno, f"{address} port {port}: {error.strerror}") from None
        self.protocol = ""
        self.backend = ProxyBackend()
        self.tls: ssl.SSLContext | None = None

    def accept(self, most: int) -> Iterator[tuple[socket.socket, str]]:
        """Accept up to `most` waiting connections; yield each with its client's IP address."""
        for _ in range(most):
            try:
                accepted, peer = self.socket.accept()
            except OSError:  # none is left, one was ended by its client, or no descriptor is free
                return
            accepted.settimeout(0)
            yield accepted, peer[0]


class Proxy:
    """The state of the program: its listeners, backends, connections and counters."""

    def __init__(self) -> None:
        self._listeners: dict[int, Listener] = {}
        self._backends: dict[str, ProxyBackend] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._most_connections = 0
        self._digest = ""
        self._metrics = Metrics()
        self._is_draining = False
        self._is_full = False
        self._head_seconds = 0.0
        self.drain_seconds = 0.0

    def apply(self, text: str) -> None:
        """Apply a configuration; if that is impossible, raise `OSError` and change nothing."""
        plan = json.loads(text)
        contexts = {
            name: _tls_of(pem.encode()) for name, pem in sorted(plan["certificates"].items())
        }
        wanted = {one["port"]: one for one in plan["listeners"]}
        new: dict[int, Listener] = {}
        try:
            for port in wanted.keys() - self._listeners.keys():
                new[port] = Listener(plan["vip"], port)
        except OSError:
            for listener in new.values():
                listener.socket.close()
            raise
        self._most_connections = _descriptors_for(plan["connections"])
        self.drain_seconds = plan["drain_seconds"]
        self._head_seconds = plan["head_seconds"]
        self._set_backends(plan["backends"])
        for port in self._listeners.keys() - wanted.keys():
            self._end(self._listeners.pop(port))
        self._listeners.update(new)
        for port, one in wanted.items():
            listener = self._listeners[port]
            listener.protocol = one["protocol"]
            listener.backend = self._backends[one["backend"]]
            listener.tls = contexts[one["certificate"]] if one["certificate"] else None
        self._digest = hashlib.sha256(text.encode()).hexdigest()
        self._listen()

    def _set_backends(self, planned: list[dict[str, Any]]) -> None:
        before, self._backends = self._backends, {}
        for one in planned:
            backend = self._backends[one["name"]] = before.pop(one["name"], ProxyBackend())
            backend.set(one)
        for backend in before.values():
            backend.forget()

    def _listen(self) -> None:
        self._is_full = False
        for listener in self._listeners.values():
            asyncio.get_running_loop().add_reader(listener.socket, self._accept, listener)

    def _end(self, listener: Listener) -> None:
        """Accept the connections that already wait, then stop listening."""
        asyncio.get_running_loop().remove_reader(listener.socket)
        self._accept(listener, _BACKLOG)
        listener.socket.close()

    def _accept(self, listener: Listener, most: int = _ACCEPTED_AT_ONCE) -> None:
        free = self._most_connections - len(self._connections)
        for accepted, address in listener.accept(min(most, free)):
            serving = asyncio.create_task(self._serve(listener, accepted, address))
            self._connections.add(serving)
            serving.add_done_callback(self._ended)
        if len(self._connections) >= self._most_connections and not self._is_full:
            self._is_full = True  # new connections wait in the kernel, or go to another replica
            for one in self._listeners.values():
                asyncio.get_running_loop().remove_reader(one.socket)

    def _ended(self, serving: asyncio.Task[None]) -> None:
        self._connections.discard(serving)
        if not serving.cancelled() and (error := serving.exception()) is not None:
            sys.stderr.write(f"connection: {error!r}\n")
        if self._is_full and not self._is_draining:
            self._listen()

    async def _serve(self, listener: Listener, accepted: socket.socket, address: str) -> None:
        self._metrics.connections += 1
        protocol, backend = listener.protocol, listener.backend
        try:
            client = await channel_of(accepted, listener.tls)
        except OSError:
            accepted.close()
            return
        try:
            if protocol == "tcp":
                await relay_stream(client, backend, self._metrics)
            else:
                await Conversation(
                    client,
                    backend,
                    self._metrics,
                    address=address,
                    protocol=protocol,
                    head_seconds=self._head_seconds,
                    is_draining=lambda: self._is_draining,
                ).run()
        except OSError:
            client.writer.transport.abort()
        finally:
            client.close()

    async def drain(self) -> None:
        """Accept no more connections; return when none is left, or after `drain_seconds`."""
        self._is_draining = True
        while self._listeners:
            self._end(self._listeners.popitem()[1])
        if self._connections:
            await asyncio.wait(self._connections, timeout=self.drain_seconds)

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry out one command from the control socket, and answer with the state."""
        with contextlib.suppress(OSError, ValueError):
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                line = (await reader.readline()).decode()
            error = None
            if line.startswith("apply ") and line.endswith("\n"):
                try:
                    self.apply(line[6:-1])
                except OSError as failed:  # an error of TLS is one, too
                    error = str(failed)
            state = json.dumps({**self._state(), "error": error})
            writer.write(state.encode() + b"\n")
            await writer.drain()
        writer.close()

    def _state(self) -> dict[str, Any]:
        return {
            "digest": self._digest,
            "targets": {
                name: {target.name: target.status for target in backend.targets.values()}
                for name, backend in self._backends.items()
            },
            "metrics": vars(self._metrics),
        }


def _tls_of(pem: bytes) -> ssl.SSLContext:
    """Return a TLS context for a certificate chain and its key, both in PEM.

    Python can load them only from a file, which is deleted at once.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.set_alpn_protocols(["http/1.1"])
    try:
        # By a relative path, as the user nobody has no access to the folders above.
        with os.fdopen(os.open(_PEM, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(pem)
        context.load_cert_chain(_PEM)
    finally:
        Path(_PEM).unlink(missing_ok=True)
    return context


async def channel_of(accepted: socket.socket, tls: ssl.SSLContext | None) -> Channel:
    """Return an accepted connection as a channel, after its TLS handshake if `tls` is not None.

    Raise `OSError` if the handshake fails.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(BUFFER_BYTES, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol,
        accepted,
        ssl=tls,
        ssl_handshake_timeout=_HANDSHAKE_SECONDS if tls else None,
    )
    return Channel(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def _descriptors_for(connections: int) -> int:
    """Raise the limit of open files; return how many connections it allows, at two files each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = min(hard, 2 * connections + _OTHER_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(connections, (soft - _OTHER_DESCRIPTORS) // 2))


def _give_up_root() -> None:
    """Allow low ports to all users of the network namespace, and become the user nobody."""
    for name, value in _NAMESPACE_SETTINGS.items():
        Path("/proc/sys/net/ipv4", name).write_text(value)
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)


async def _run(text: str, control: str) -> None:
    loop = asyncio.get_running_loop()
    proxy = Proxy()
    is_over = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, is_over.set)
    proxy.apply(text)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(control)  # noqa: PTH108 - of a replica that was killed
    control_server = await asyncio.start_unix_server(proxy.control, control, limit=_CONTROL_BYTES)
    await is_over.wait()
    await proxy.drain()
    control_server.close()


def main() -> None:
    """Run until a signal ends the program."""
    configuration, control = sys.argv[1:]
    text = Path(configuration).read_text()
    folder, name = os.path.split(control)
    os.chdir(folder)  # its path may be too long for a socket, and closed to nobody
    os.umask(0o077)
    if json.loads(text)["is_unprivileged"]:
        _give_up_root()
    try:
        asyncio.run(_run(text, name))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
