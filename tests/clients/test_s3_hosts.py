"""Buckets as subdomains of the endpoint's host name, at the port of the registry."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import run
from tests.clients.s3_site import HOST, REGION, S3Site, noise, s3

__all__ = ["s3"]


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Resolve the endpoint's names to this machine, as a wildcard of the DNS would; note them."""
    found = socket.getaddrinfo
    asked: set[str] = set()

    def resolve(host: str | None, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - socket's own
        if host is not None and host.endswith(HOST):
            asked.add(host)
            host = "127.0.0.1"
        return found(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


def test_boto3_calls_buckets_by_host_name(s3: S3Site, resolved: set[str]) -> None:
    # The certificate is that of the buckets alone; their maker comes by the port of the endpoint.
    s3.boto().create_bucket(Bucket="hosted")
    port = s3.registry.port
    boto = s3.boto(f"https://{HOST}:{port}", s3={"addressing_style": "virtual"})
    body = noise(6 << 20)
    boto.put_object(Bucket="hosted", Key="a b/c+d%2F.bin", Body=body)
    assert boto.get_object(Bucket="hosted", Key="a b/c+d%2F.bin")["Body"].read() == body
    listed = boto.list_objects_v2(Bucket="hosted", Delimiter="/")
    assert [each["Prefix"] for each in listed["CommonPrefixes"]] == ["a b/"]
    assert resolved == {f"hosted.{HOST}"}


def test_curl_signs_for_the_host_of_a_bucket(s3: S3Site, tmp_path: Path) -> None:
    s3.boto().create_bucket(Bucket="curled")
    port = s3.registry.port
    url = f"https://curled.{HOST}:{port}/greeting.txt"  # curl looks at this machine for .localhost
    file = tmp_path / "greeting.txt"
    file.write_text("hello")
    signs = ("--aws-sigv4", f"aws:amz:{REGION}:s3", "--user", f"{s3.key_id}:{s3.secret}")
    common = ("--silent", "--show-error", "--fail", "--cacert", s3.certificate, *signs)
    unsigned = ("--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD")
    run("curl", *common, *unsigned, "--upload-file", file, url)
    assert run("curl", *common, *unsigned, url) == "hello"
