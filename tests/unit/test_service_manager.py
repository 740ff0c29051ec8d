"""The service manager is told once the server is ready, if there is one."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.cli.server.serve import notify_ready


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    """Return a socket that does not wait for what was not sent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.setblocking(False)
        yield listening


def test_a_manager_with_a_path_is_told(manager: socket.socket) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's may be too long for a socket
        path = str(Path(folder) / "notify")
        manager.bind(path)
        notify_ready({"NOTIFY_SOCKET": path})
        assert manager.recv(100) == b"READY=1"


def test_a_manager_in_the_abstract_namespace_is_told(manager: socket.socket) -> None:
    manager.bind("")  # the kernel chooses a free name there
    notify_ready({"NOTIFY_SOCKET": f"@{manager.getsockname()[1:].decode()}"})
    assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "/no/such/socket"])
def test_without_a_manager_nothing_happens(address: str | None) -> None:
    notify_ready({} if address is None else {"NOTIFY_SOCKET": address})
