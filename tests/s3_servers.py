"""S3 servers for tests of the blob store: moto's in this process, and SeaweedFS beside it.

Each starts when it is first asked for, and ends with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
from botocore.config import Config
from moto import settings as moto_settings

from registry.store_settings import StoreSettings
from tests.aws_kms import MotoServer
from tests.postgresql import free_port

KEY_ID: Final = "test"
SECRET: Final = "testsecret"
BUCKET: Final = "blobs"
SERVERS: Final = ("moto", "seaweedfs")
_ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": KEY_ID,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}
_GRPC: Final = 1
"""The gRPC ports of SeaweedFS are given with the others."""


@contextmanager
def credentials() -> Iterator[None]:
    """Have the credentials of these servers in the environment, where boto3 looks."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


def settings_for(server: str, **changes: Any) -> StoreSettings:  # noqa: ANN401 - any setting
    """Return the settings of a new, empty store on one of `SERVERS`."""
    values: dict[str, Any] = {
        "store_s3_bucket": BUCKET,
        "store_s3_endpoint": url_of(server),
        "store_s3_region": "eu-central-1",
        "store_s3_prefix": str(uuid.uuid4()),
    }
    return StoreSettings(**(values | changes))


def url_of(server: str) -> str:
    """Return the URL of a server, which has an empty bucket at first."""
    return _moto() if server == "moto" else _seaweedfs()


def client_of(server: str) -> Any:  # noqa: ANN401 - boto3 makes the class
    """Return boto3's client of a server, to be closed."""
    return _client(url_of(server))


def _client(url: str) -> Any:  # noqa: ANN401 - boto3 makes the class
    return boto3.session.Session().client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        region_name="eu-central-1",
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


@cache
def _moto() -> str:
    """Start moto; it takes parts of any size."""
    moto_settings.S3_UPLOAD_PART_MIN_SIZE = 1
    server = MotoServer("127.0.0.1", port=free_port(), verbose=False)
    server.start()
    atexit.register(server.stop)
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = _client(url)
    client.create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    client.close()
    return url


@cache
def _seaweedfs() -> str:
    """Start SeaweedFS with its data in memory, if there is such a folder; skip without it."""
    program = shutil.which("weed", path=_beside_python()) or shutil.which("weed")
    if program is None:
        pytest.skip("SeaweedFS is not installed")
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="weed-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    started = SeaweedFs(program, folder)
    started.start()
    atexit.register(started.stop)
    return started.url


def _beside_python() -> str:
    import sys  # noqa: PLC0415 - for this alone

    return str(Path(sys.executable).parent)


class SeaweedFs:
    """A SeaweedFS of one process, which keeps its ports and data when it is started again."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._ports = {
            name: free_port()
            for name in (
                *("s3.port", "s3.port.grpc", "master.port", "master.port.grpc"),
                *("volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"),
            )
        }
        self._running: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._ports['s3.port']}"

    def start(self) -> None:
        """Start, wait until it takes requests, and make the bucket."""
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": KEY_ID, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        config = self._folder / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        (self._folder / "data").mkdir(exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._running = subprocess.Popen(
                [
                    *(self._program, "server", f"-dir={self._folder / 'data'}", "-s3"),
                    *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.config={config}"),
                    *("-master.volumeSizeLimitMB=64", "-volume.max=100"),
                    *("-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
                    *(f"-{name}={port}" for name, port in self._ports.items()),
                ],
                stdout=log,
                stderr=log,
                env=os.environ | {"HOME": str(self._folder)},
            )
        self._wait()
        client = _client(self.url)
        try:
            self._make_bucket(client)
        finally:
            client.close()

    def stop(self) -> None:
        """End it as a crash does; do nothing if it has ended."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            running.wait()

    def _wait(self) -> None:
        assert self._running is not None
        while True:
            assert self._running.poll() is None, (self._folder / "log").read_text()[-2000:]
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
            except urllib.error.HTTPError as error:
                error.close()
                return
            except OSError:
                time.sleep(0.1)
            else:
                return

    def _make_bucket(self, client: Any) -> None:  # noqa: ANN401 - boto3 makes the class
        """Make the bucket, and an object: its volumes take a moment to be there."""
        while True:
            try:
                client.create_bucket(Bucket=BUCKET)
            except client.exceptions.BucketAlreadyOwnedByYou:
                pass
            except client.exceptions.ClientError:
                time.sleep(0.1)
                continue
            try:
                client.put_object(Bucket=BUCKET, Key="first", Body=b"bytes")
            except client.exceptions.ClientError:
                time.sleep(0.1)
            else:
                return
