"""Requests of a client to a registry: one function per kind of exchange.

An exchange runs on one connection, checks every answer and returns the number of payload bytes.
A wrong answer raises ExchangeFailedError (or OSError) and makes the row invalid.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from urllib.parse import urlsplit

from benchmarks.bodies import BodyMaker
from benchmarks.polling import Request
from benchmarks.wire import Connection, ExchangeFailedError, Head

Exchange = Callable[[Connection], int]

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
BLOB_TYPE = "application/octet-stream"
ACCEPT_MANIFEST = f"Accept: {MANIFEST_TYPE}"  # Distribution answers 404 without it


def expect(head: Head, status: int, what: str) -> None:
    """Raise ExchangeFailedError unless `head` has this status."""
    if head.status != status:
        raise ExchangeFailedError(f"{what}: {head.status}, not {status}")


def read(connection: Connection, target: str, *headers: str) -> bytes:
    """GET `target` and return its body."""
    connection.send(connection.request("GET", target, *headers))
    head = connection.head()
    body = connection.body(head)
    expect(head, 200, f"GET {target}")
    return body


def pull(connection: Connection, request: Request) -> int:
    """Send a prepared request, and discard the body of the answer."""
    connection.send(request.data)
    head = connection.head()
    length = connection.discard(head)
    if (head.status, length) != (request.status, request.length):
        raise ExchangeFailedError(f"{head.status} of {length} bytes, not {request}")
    return length


def verify(connection: Connection, target: str, digest: str, *headers: str) -> None:
    """GET `target`, and check that the body hashes to `digest`."""
    connection.send(connection.request("GET", target, *headers))
    head = connection.head()
    found = connection.body_digest(head)
    expect(head, 200, f"GET {target}")
    if found != digest:
        raise ExchangeFailedError(f"GET {target} sent bytes of {found}")


def push_streamed(
    connection: Connection, repository: str, maker: BodyMaker, size_bytes: int
) -> str:
    """Push a new blob as Docker does (POST, one chunked PATCH, PUT) and return its digest."""
    body = maker.make(size_bytes)
    location = open_upload(connection, repository)
    request = connection.request(
        "PATCH", location, "Transfer-Encoding: chunked", f"Content-Type: {BLOB_TYPE}"
    )
    maker.send_chunked(connection, request, body)
    location = location_of(answer(connection, 202, "PATCH"))
    target = with_digest(location, body.digest)
    connection.send(connection.request("PUT", target, "Content-Length: 0"))
    _created(answer(connection, 201, "PUT"), body.digest)
    return body.digest


def push_post(connection: Connection, repository: str, maker: BodyMaker, size_bytes: int) -> str:
    """Push a new blob in one request (end-4b) and return its digest."""
    body = maker.make(size_bytes)
    target = f"/v2/{repository}/blobs/uploads/?digest={body.digest}"
    headers = (f"Content-Length: {size_bytes}", f"Content-Type: {BLOB_TYPE}")
    maker.send_plain(connection, connection.request("POST", target, *headers), body)
    _created(answer(connection, 201, "POST ?digest="), body.digest)
    return body.digest


def push_put(connection: Connection, repository: str, maker: BodyMaker, size_bytes: int) -> str:
    """Push a new blob with POST and one PUT (end-4a, end-6) and return its digest."""
    body = maker.make(size_bytes)
    target = with_digest(open_upload(connection, repository), body.digest)
    headers = (f"Content-Length: {size_bytes}", f"Content-Type: {BLOB_TYPE}")
    maker.send_plain(connection, connection.request("PUT", target, *headers), body)
    _created(answer(connection, 201, "PUT with the body"), body.digest)
    return body.digest


def takes_post(connection: Connection, repository: str, maker: BodyMaker) -> bool:
    """Push a blob in one POST; return False if the server answers 202 instead (end-4b)."""
    body = maker.make(4096)
    target = f"/v2/{repository}/blobs/uploads/?digest={body.digest}"
    request = connection.request("POST", target, f"Content-Length: {body.size_bytes}")
    maker.send_plain(connection, request, body)
    head = connection.head()
    connection.discard(head)
    return head.status == 201


def put_manifest(connection: Connection, repository: str, reference: str, manifest: bytes) -> int:
    """PUT `manifest` under `reference`."""
    target = f"/v2/{repository}/manifests/{reference}"
    headers = (f"Content-Length: {len(manifest)}", f"Content-Type: {MANIFEST_TYPE}")
    connection.send(connection.request("PUT", target, *headers) + manifest)
    _created(answer(connection, 201, "PUT manifest"), digest_of(manifest))
    return len(manifest)


def image_manifest(config: tuple[str, int], layer: tuple[str, int], note: str) -> bytes:
    """Return an image manifest over a (digest, size) config and layer; `note` makes it unique."""
    descriptors = [
        {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": size}
        for kind, (digest, size) in (("config.v1+json", config), ("layer.v1.tar", layer))
    ]
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptors[0],
        "layers": descriptors[1:],
        "annotations": {"org.opencontainers.image.description": note},
    }
    return json.dumps(document).encode()


def digest_of(data: bytes) -> str:
    """Return the sha256 digest of `data`."""
    return f"sha256:{sha256(data).hexdigest()}"


def open_upload(connection: Connection, repository: str, *headers: str) -> str:
    """POST a new upload session; return its location."""
    target = f"/v2/{repository}/blobs/uploads/"
    connection.send(connection.request("POST", target, "Content-Length: 0", *headers))
    return location_of(answer(connection, 202, "POST"))


def answer(connection: Connection, status: int, what: str) -> Head:
    """Receive an answer of this status; discard its body."""
    head = connection.head()
    connection.discard(head)
    expect(head, status, what)
    return head


def location_of(head: Head) -> str:
    """Return the path and query of a ``Location``."""
    parts = urlsplit(head.value("Location"))
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def with_digest(location: str, digest: str) -> str:
    """Return the target of the request that commits an upload."""
    return f"{location}{'&' if '?' in location else '?'}digest={digest}"


def _created(head: Head, digest: str) -> None:
    if head.value("Docker-Content-Digest") != digest:
        raise ExchangeFailedError(f"created {head.value('Docker-Content-Digest')}, not {digest}")
