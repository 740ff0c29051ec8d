"""end-5 without `Content-Range`: the streamed upload of Docker and Podman, and its breaks."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conformance.client import Repository, location_of, with_query
from tests.conformance.content import blob, digest_of
from tests.conformance.expect import pullable, refused


def pieces(body: bytes, size: int = 8192) -> Iterator[bytes]:
    """Yield `body` piece by piece, so that httpx sends `Transfer-Encoding: chunked`."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


def test_streamed_upload(repository: Repository) -> None:
    """end-5: one PATCH without `Content-Range`, its length unknown, closed by an empty PUT."""
    content = blob(300_000)
    upload = repository.start_upload()
    response = repository.http.patch(upload, content=pieces(content.body))
    assert response.status_code == 202
    assert response.headers["range"] == f"0-{len(content.body) - 1}"
    response = repository.finish(location_of(response), content.digest)
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)


def test_patch_of_known_length_without_content_range(repository: Repository) -> None:
    """end-5: PATCH with `Content-Length` and no `Content-Range`."""
    content = blob(1000)
    response = repository.append(repository.start_upload(), content.body)
    assert response.status_code == 202
    assert repository.finish(location_of(response), content.digest).status_code == 201
    pullable(repository.http, f"/v2/{repository}/blobs/{content.digest}", content.body)


def test_wrong_digest_is_refused(repository: Repository) -> None:
    """code-4: what was streamed does not match: 400, and it is not stored."""
    content = blob(1000)
    upload = location_of(repository.append(repository.start_upload(), content.body))
    response = repository.finish(upload, digest_of(b"something else"))
    assert response.status_code == 400
    assert repository.get_blob(content.digest).status_code == 404


@pytest.mark.entrepot
def test_put_may_stream_too(repository: Repository) -> None:
    """Ours: the closing PUT takes a body of unknown length."""
    content = blob(100_000)
    upload = repository.start_upload()
    response = repository.http.put(
        with_query(upload, digest=content.digest), content=pieces(content.body)
    )
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)


@pytest.mark.entrepot
def test_patches_append_at_the_offset(repository: Repository) -> None:
    """Ours: without `Content-Range` each PATCH is appended; both kinds may take turns."""
    content = blob(3000)
    upload = repository.start_upload()
    assert repository.append(upload, content.body[:1000]).headers["range"] == "0-999"
    assert repository.append(upload, content.body[1000:2000], 1000).headers["range"] == "0-1999"
    assert repository.append(upload, content.body[2000:]).headers["range"] == "0-2999"
    assert repository.finish(upload, content.digest).status_code == 201


class HalfSentRequest:
    """A request whose `Content-Length` promises more than was sent so far."""

    def __init__(self, method: str, url: str, promised: int) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        self.connection.putrequest(method, f"{address.path}?{address.query}")
        self.connection.putheader("Content-Length", str(promised))
        self.connection.putheader("Expect", "100-continue")
        self.connection.endheaders()
        # The server asks for the body once it has taken up the request (RFC 9110 §10.1.1).
        self.sock: socket.socket = self.connection.sock
        interim = b""
        while not interim.endswith(b"\r\n\r\n"):
            interim += self.sock.recv(1)
        assert interim.startswith(b"HTTP/1.1 100 "), interim

    def send(self, body: bytes) -> None:
        """Send some of the body."""
        self.connection.send(body)

    def end(self) -> tuple[int, bytes]:
        """Say that no more will come; return the status and body of the answer."""
        with contextlib.closing(self.connection):
            self.sock.shutdown(socket.SHUT_WR)
            with self.connection.getresponse() as response:
                return response.status, response.read()


def received(http_client: httpx.Client, upload: str) -> int:
    """Return how many bytes of an upload the registry says it holds."""
    last = int(http_client.get(upload).headers["range"].partition("-")[2])
    return last + 1 if last else 0


@pytest.mark.entrepot
def test_broken_patch_keeps_what_came(repository: Repository) -> None:
    """Ours: bytes already received stay; the push goes on from the offset end-13 reports."""
    content = blob(200_000)
    upload = repository.start_upload()
    broken = HalfSentRequest("PATCH", upload, len(content.body))
    broken.send(content.body[:100_000])
    assert broken.end()[0] == 400
    offset = received(repository.http, upload)
    assert 0 < offset <= 100_000
    assert repository.append(upload, content.body[offset:], offset).status_code == 202
    assert repository.finish(upload, content.digest).status_code == 201
    pullable(repository.http, f"/v2/{repository}/blobs/{content.digest}", content.body)


@pytest.mark.entrepot
def test_single_post_that_ends_early(registry_url: str, repository: Repository) -> None:
    """Ours: a body shorter than its `Content-Length` is 400 `SIZE_INVALID`, and no blob."""
    content = blob(1000)
    url = f"{registry_url}/v2/{repository}/blobs/uploads/"
    broken = HalfSentRequest("POST", with_query(url, digest=content.digest), 2000)
    broken.send(content.body)
    status, body = broken.end()
    assert status == 400
    assert b'"SIZE_INVALID"' in body
    assert repository.get_blob(content.digest).status_code == 404


@pytest.mark.entrepot
@pytest.mark.parametrize("length", [9, 11])
def test_stream_must_fill_its_content_range(repository: Repository, length: int) -> None:
    """Ours: a chunk of unknown length that is not as long as its range: 400, nothing consumed."""
    upload = repository.start_upload()
    headers = {"content-range": "0-9"}
    response = repository.http.patch(upload, content=pieces(b"x" * length), headers=headers)
    refused(response, 400, "SIZE_INVALID")
    assert repository.http.get(upload).headers["range"] == "0-0"
    content = blob(10)
    assert repository.finish(upload, content.digest, content.body, 0).status_code == 201


@pytest.mark.entrepot
def test_second_writer_is_told_to_wait(repository: Repository) -> None:
    """Ours: while one PATCH is under way another is 409 `BLOB_UPLOAD_INVALID`, `Retry-After: 1`."""
    content = blob(200_000)
    upload = repository.start_upload()
    first = HalfSentRequest("PATCH", upload, len(content.body))
    first.send(content.body[:100_000])
    second = repository.append(upload, content.body, 0)
    refused(second, 409, "BLOB_UPLOAD_INVALID")
    assert second.headers["retry-after"] == "1"
    first.send(content.body[100_000:])
    assert first.end()[0] == 202
    assert repository.finish(upload, content.digest).status_code == 201
