"""A served install with an S3 endpoint behind TLS, as real clients want it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
from botocore.config import Config

from tests.certificates import DAY, self_signed
from tests.entrepot import copied_install, told
from tests.live import LiveRegistry, start_registry
from tests.postgresql import free_port

REGION: Final = "local"
HOST: Final = "s3.localhost"
"""Name of the endpoint, which buckets are subdomains of."""
Boto = Any
"""boto3's clients have no types."""


@dataclass(frozen=True)
class S3Site:
    """The endpoint, and the access key of a program that may do everything."""

    registry: LiveRegistry
    folder: Path
    port: int
    certificate: Path
    key_id: str
    secret: str

    @property
    def url(self) -> str:
        """Return the URL of the endpoint."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that AWS's tools read."""
        return {
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CA_BUNDLE": str(self.certificate),
            "AWS_ENDPOINT_URL": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(self.folder),
        }

    def boto(self, url: str = "", **config: object) -> Boto:
        """Return boto3's client of the endpoint at `url`, with its defaults but for `config`."""
        return boto3.client(
            "s3",
            endpoint_url=url or self.url,
            aws_access_key_id=self.key_id,
            aws_secret_access_key=self.secret,
            region_name=REGION,
            verify=str(self.certificate),
            config=Config(retries={"total_max_attempts": 1}, **config),
        )


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Site]:
    """Serve an install with an S3 endpoint."""
    with tempfile.TemporaryDirectory(prefix="entrepot-s3-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL's user reads the certificate
        certificate, key = self_signed(folder, f"*.{HOST}", ends=30 * DAY)
        shown = copied_install(folder / "data")
        pair = told("access key id", shown), told("secret access key", shown)
        port = free_port()
        registry = start_registry(
            folder / "data",
            *("--s3-port", str(port), "--s3-host", HOST),
            *("--tls-certificate", str(certificate), "--tls-key", str(key)),
            command="serve",
        )
        try:
            yield S3Site(registry, folder, port, certificate, *pair)
        finally:
            status = registry.stop()
        assert status == 0, registry.log
        assert "unexpected failure" not in registry.log, registry.log


def noise(size: int) -> bytes:
    """Return bytes that nobody compresses."""
    return os.urandom(size)
