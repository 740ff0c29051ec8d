"""Start a counting S3 server (`benchmarks.counting_s3`) beside a benchmark, or SeaweedFS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.counting_s3 import COUNTS
from benchmarks.processes import process_tree
from benchmarks.servers import ROOT, free_port
from registry.settings.store import StoreSettings
from tests.s3_servers import BUCKET, KEY_ID, REGION, SECRET, SeaweedFs, seaweedfs_program

COUNTED: Final = COUNTS
_READY_SECONDS: Final = 120
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": KEY_ID,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Stub(NamedTuple):
    """A running S3 server."""

    url: str
    pid: int

    @property
    def store(self) -> StoreSettings:
        """Return the settings of a store in its bucket."""
        return StoreSettings(
            store_s3_bucket=BUCKET, store_s3_endpoint=self.url, store_s3_region=REGION
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """Return those settings as variables, without ``ENTREPOT_``."""
        store = self.store
        names = ("store_s3_bucket", "store_s3_endpoint", "store_s3_region")
        return {name.upper(): str(getattr(store, name)) for name in names}

    @property
    def pids(self) -> list[int]:
        """Return the ids of its processes."""
        return process_tree(self.pid)

    def ask(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return what it tells."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.loads(answer.read())


@contextmanager
def signed() -> Iterator[None]:
    """Have credentials in the environment during the block, where boto3 looks for them."""
    before = {name: os.environ.get(name) for name in _CREDENTIALS}
    os.environ.update(_CREDENTIALS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def counting_s3(filled: int = 0) -> Iterator[Stub]:
    """Run a counting S3 server during the block, with some objects at first."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.counting_s3", "--port", str(port)]
    with (
        signed(),
        subprocess.Popen([*command, "--filled", str(filled)], cwd=ROOT) as process,
    ):
        stub = Stub(f"http://127.0.0.1:{port}", process.pid)
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while True:
                try:
                    stub.ask(COUNTED)
                    break
                except OSError:
                    if time.monotonic() > deadline or process.poll() is not None:
                        raise
                    time.sleep(0.05)
            yield stub
        finally:
            process.terminate()


@contextmanager
def seaweedfs(data: Path | None) -> Iterator[Stub]:
    """Run a SeaweedFS during the block, whose volumes are in a folder below `data`."""
    with tempfile.TemporaryDirectory(prefix="weed-", dir=data) as folder, signed():
        server = SeaweedFs(seaweedfs_program(), Path(folder))
        try:
            server.start()
            yield Stub(server.url, server.pid)
        finally:
            server.stop()
