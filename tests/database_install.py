"""A served install that runs database servers, as root or not, and backs them up."""

from __future__ import annotations

import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.entrepot import Install, copied_install, installed
from tests.postgresql import free_port
from tests.tools import require_tool

_PORTS: Final = 5
_UIDS: Final = 250_000


@contextmanager
def database_install() -> Iterator[tuple[Install, Path]]:
    """Serve an install; yield it with a folder for the test."""
    for program in ("pgbackrest", "bwrap"):
        require_tool(program)
    with tempfile.TemporaryDirectory(prefix="entrepot-databases-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        first = _first_of_free_ports()
        environment = {
            "ENTREPOT_DATABASE_DRIVER": "bubblewrap",
            "ENTREPOT_DATABASE_PORTS": f"{first}-{first + _PORTS - 1}",
            # No other install that runs now has these ports, and so none has these users.
            "ENTREPOT_DATABASE_FIRST_UID": str(_UIDS + first),
            "ENTREPOT_S3_PORT": str(free_port()),
        }
        with installed(folder / "data", copied_install(folder / "data"), **environment) as install:
            yield install, folder


def _first_of_free_ports() -> int:
    """Return the first of some ports that nobody listens on, below those of connections."""
    while True:
        first = random.randrange(22_000, 32_000)
        with suppress(OSError), ExitStack() as stack:
            for port in range(first, first + _PORTS):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
