"""Mail that comes back is taken by all workers: when one dies, the others go on."""

from __future__ import annotations

import smtplib
import socket
from contextlib import closing
from pathlib import Path

from cloudcore.email.bounces.mail_server import MOST_OF_ONE
from tests.databases import planted
from tests.entrepot import initialized
from tests.fault.workers import kill, owner_of, workers_of
from tests.live import start_registry
from tests.postgresql import free_port

TRIES = 12
"""Each from a port of its own, by which the system chooses the worker."""
REFUSED = (550, b"5.1.1 No such address here")


def answer(port: int) -> tuple[int, bytes]:
    """Return what is said to a recipient that is no return path."""
    with smtplib.SMTP("127.0.0.1", port) as client:
        client.ehlo("mx.test")
        assert client.mail("")[0] == 250
        return client.rcpt("anybody@bounces.example.com")


def greeted(port: int) -> tuple[socket.socket, bytes]:
    """Return a connection, and what it begins with."""
    opened = socket.create_connection(("127.0.0.1", port))
    return opened, opened.recv(4)


def test_mail_is_taken_by_every_worker_and_when_one_has_died(tmp_path: Path) -> None:
    initialized(planted(tmp_path / "data"))
    port = free_port()
    settings = {
        "ENTREPOT_BOUNCE_DOMAIN": "bounces.example.com",
        "ENTREPOT_BOUNCE_LISTEN": f"127.0.0.1:{port}",
        "ENTREPOT_WORKERS": "2",
    }
    registry = start_registry(tmp_path / "data", command="serve", env=settings)
    try:
        with closing(socket.create_connection(("127.0.0.1", port))) as client:
            assert client.recv(4) == b"220 "
            workers = workers_of(registry.process.pid)
            kill([owner_of(client.getsockname()[1], port, workers)])
        assert {answer(port) for _ in range(TRIES)} == {REFUSED}
        opened = [greeted(port) for _ in range(2 * MOST_OF_ONE + 3)]
        assert {said for _, said in opened} == {b"220 ", b"421 "}
        for connection, _ in opened:
            connection.close()
    finally:
        status = registry.stop()
    assert status == 0, registry.log
    assert '"logger":"asyncio"' not in registry.log
