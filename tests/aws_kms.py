"""AWS KMS for tests: moto's server, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.postgresql import free_port


class MotoServer(ThreadedMotoServer):
    """An AWS whose port is closed while it is stopped."""

    def stop(self) -> None:
        """Stop answering; `start` goes on with the same keys."""
        super().stop()
        assert self._server is not None
        self._server.server_close()


@pytest.fixture(scope="module")
def aws_server() -> Iterator[ThreadedMotoServer]:
    """Return an AWS of this process; started again, it has the same keys and port."""
    server = MotoServer("127.0.0.1", port=free_port(), verbose=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def aws_url(aws_server: ThreadedMotoServer) -> str:
    """Return the URL of that AWS."""
    host, port = aws_server.get_host_and_port()
    return f"http://{host}:{port}"


@pytest.fixture
def aws_client(aws_url: str, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - boto3
    """Return a client of AWS KMS, with credentials in the environment."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    return boto3.session.Session().client("kms", endpoint_url=aws_url)
