"""Debian's ``docker-registry``, as an upstream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.clients.programs import daemon
from tests.tools import require_tool


@contextmanager
def running_registry(folder: Path, port: int) -> Iterator[str]:
    """Run it over a folder, in which its content stays; give its URL."""
    program = require_tool("docker-registry")
    url = f"http://127.0.0.1:{port}"
    folder.mkdir(exist_ok=True)
    config = folder / "config.json"
    document = {
        "version": "0.1",
        "log": {"accesslog": {"disabled": True}, "level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    config.write_text(json.dumps(document))

    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/v2/").is_success
        except httpx.TransportError:
            return False

    with daemon(program, "serve", config, log=folder / "log", ready=is_ready):
        yield url
