"""end-5, end-6, end-13, end-14: pushing a blob in chunks, and cancelling that."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository, location_of, with_query
from tests.conformance.content import Content, blob
from tests.conformance.expect import empty, pullable, refused


@pytest.fixture
def size(repository: Repository) -> int:
    """Return a chunk length the registry takes (`OCI-Chunk-Min-Length`, end-4a)."""
    return max(int(repository.post().headers.get("oci-chunk-min-length", "0")), 1000)


@pytest.fixture
def content(size: int) -> Content:
    """Return a blob of two whole chunks and a shorter last one."""
    return blob(size * 3 - 5)


def test_chunks_make_the_blob(repository: Repository, content: Content, size: int) -> None:
    """§ Pushing a blob in chunks: each chunk MUST be 202 with `Location` and `Range`."""
    upload = repository.start_upload()
    for start in range(0, len(content.body), size):
        chunk = content.body[start : start + size]
        response = repository.append(upload, chunk, start)
        assert response.status_code == 202
        assert response.headers["range"] == f"0-{start + len(chunk) - 1}"
        upload = location_of(response)
    response = repository.finish(upload, content.digest)
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)


def test_last_chunk_may_come_with_put(repository: Repository, content: Content, size: int) -> None:
    """§ Pushing a blob in chunks: the final chunk MAY be uploaded in the closing PUT."""
    upload = repository.start_upload()
    for start in (0, size):
        upload = location_of(repository.append(upload, content.body[start : start + size], start))
    last = content.body[2 * size :]
    response = repository.finish(upload, content.digest, last, 2 * size)
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)


def test_first_chunk_must_begin_at_zero(
    repository: Repository, content: Content, size: int
) -> None:
    """§ Pushing a blob in chunks: a chunk out of order MUST be 416: here one that comes first."""
    upload = repository.start_upload()
    response = repository.append(upload, content.body[size : 2 * size], size)
    assert response.status_code == 416


@pytest.mark.parametrize("start", ["replay", "gap", "overlap"])
def test_out_of_order_chunk_is_416(
    repository: Repository, content: Content, size: int, start: str
) -> None:
    """§ Pushing a blob in chunks: out of order MUST be 416: a replay, a gap, an overlap."""
    upload = repository.start_upload()
    upload = location_of(repository.append(upload, content.body[:size], 0))
    first = {"replay": 0, "gap": size + 7, "overlap": size - 1}[start]
    response = repository.append(upload, content.body[first : first + size], first)
    assert response.status_code == 416


def test_status_of_an_active_upload(repository: Repository, content: Content, size: int) -> None:
    """§ Pushing a blob in chunks (end-13): MUST be 204 with `Location` and `Range`."""
    upload = repository.start_upload()
    upload = location_of(repository.append(upload, content.body[:size], 0))
    status = repository.http.get(upload)
    assert status.status_code == 204
    assert status.headers["range"] == f"0-{size - 1}"
    response = repository.append(location_of(status), content.body[size:], size)
    assert response.status_code == 202


def test_status_after_416_shows_the_way_on(
    repository: Repository, content: Content, size: int
) -> None:
    """§ Pushing a blob in chunks: after a 416, GET tells where the push goes on."""
    upload = repository.start_upload()
    upload = location_of(repository.append(upload, content.body[:size], 0))
    assert repository.append(upload, content.body[:size], 0).status_code == 416
    status = repository.http.get(upload)
    assert status.status_code == 204
    assert status.headers["range"] == f"0-{size - 1}"
    upload = location_of(status)
    response = repository.append(upload, content.body[size:], size)
    assert response.status_code == 202
    assert repository.finish(location_of(response), content.digest).status_code == 201
    pullable(repository.http, f"/v2/{repository}/blobs/{content.digest}", content.body)


def test_wrong_digest_is_refused(repository: Repository, content: Content, size: int) -> None:
    """§ Pushing a blob in chunks: the digest is of the whole blob, else 400."""
    upload = repository.start_upload()
    upload = location_of(repository.append(upload, content.body[:size], 0))
    last = Content(content.body[size:])
    response = repository.finish(upload, last.digest, last.body, size)
    assert response.status_code == 400
    assert repository.get_blob(last.digest).status_code == 404


@pytest.mark.newer
@pytest.mark.parametrize("start", ["replay", "gap"])
def test_out_of_order_final_chunk_is_416(
    repository: Repository, content: Content, size: int, start: str
) -> None:
    """§ Pushing a blob in chunks (newer MUST): 416 for the final chunk in the PUT, too."""
    upload = repository.start_upload()
    upload = location_of(repository.append(upload, content.body[:size], 0))
    first = {"replay": 0, "gap": size + 7}[start]
    response = repository.finish(upload, content.digest, content.body[first:], first)
    assert response.status_code == 416


@pytest.mark.entrepot
def test_one_location_for_life(repository: Repository, content: Content, size: int) -> None:
    """Ours: one upload keeps one `Location`, with its id, in every answer."""
    opened = repository.post()
    location, upload_id = opened.headers["location"], opened.headers["docker-upload-uuid"]
    upload = location_of(opened)
    for response in (
        repository.append(upload, content.body[:size], 0),
        repository.http.get(upload),
        repository.append(upload, content.body[size:], size),
        repository.http.head(upload),
    ):
        empty(response, response.status_code)
        assert response.headers["location"] == location
        assert response.headers["docker-upload-uuid"] == upload_id
    assert repository.finish(upload, content.digest).status_code == 201


@pytest.mark.entrepot
@pytest.mark.parametrize("first", [0, 999, 1001, 5000])
@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_416_consumes_nothing_and_shows_the_offset(
    repository: Repository, method: str, first: int
) -> None:
    """Ours: 416 `BLOB_UPLOAD_INVALID` with `Location` and the `Range` now; the session lives."""
    content = blob(1500)
    upload = repository.start_upload()
    assert repository.append(upload, content.body[:1000], 0).status_code == 202
    response = (
        repository.append(upload, b"x" * 10, first)
        if method == "PATCH"
        else repository.finish(upload, content.digest, b"x" * 10, first)
    )
    refused(response, 416, "BLOB_UPLOAD_INVALID")
    assert location_of(response) == upload
    assert response.headers["range"] == "0-999"
    assert repository.append(upload, content.body[1000:], 1000).status_code == 202
    assert repository.finish(upload, content.digest).status_code == 201


@pytest.mark.entrepot
def test_any_chunk_of_a_byte_or_none(repository: Repository) -> None:
    """Ours: no chunk minimum; an empty PATCH is 202 and changes nothing."""
    content = blob(5)
    opened = repository.post()
    assert "oci-chunk-min-length" not in opened.headers
    upload = location_of(opened)
    nothing = repository.append(upload, b"")
    assert nothing.status_code == 202
    assert nothing.headers["range"] == "0-0"
    for start in range(5):
        response = repository.append(upload, content.body[start : start + 1], start)
        assert response.status_code == 202
        assert response.headers["range"] == f"0-{start}"
        assert repository.append(upload, b"").headers["range"] == f"0-{start}"
    assert repository.finish(upload, content.digest).status_code == 201


@pytest.mark.entrepot
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_status_of_an_upload(repository: Repository, method: str) -> None:
    """Ours: 204; `Range` is `0-0` while empty; an extra query is ignored."""
    upload = repository.start_upload()
    for query in ({}, {"state": "x", "digest": "y"}):
        response = repository.http.request(method, upload, params=query)
        empty(response, 204)
        assert response.headers["range"] == "0-0"
        assert location_of(response) == upload


@pytest.mark.entrepot
def test_content_type_of_a_chunk_is_not_checked(repository: Repository) -> None:
    """Ours: clients send all sorts of `Content-Type` with their chunks."""
    content = blob(20)
    upload = repository.start_upload()
    response = repository.append(upload, content.body, 0, **{"content-type": "text/plain"})
    assert response.status_code == 202
    assert repository.finish(upload, content.digest).status_code == 201


@pytest.mark.newer
@pytest.mark.parametrize("chunk", [b"", b"begun"])
def test_cancel(repository: Repository, chunk: bytes) -> None:
    """§ Cancel a blob upload (newer): DELETE SHOULD be 204; the session is no more."""
    upload = repository.start_upload()
    if chunk:
        upload = location_of(repository.append(upload, chunk, 0))
    response = repository.http.delete(upload, headers={"content-length": "0"})
    empty(response, 204)
    assert repository.http.get(upload).status_code == 404
    assert repository.append(upload, b"more").status_code == 404


@pytest.mark.entrepot
@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT", "DELETE"])
@pytest.mark.parametrize("state", ["closed", "cancelled", "foreign", "foreign-begun"])
def test_session_that_is_none_of_the_repository_is_unknown(
    repository: Repository, state: str, method: str
) -> None:
    """Ours: 404 `BLOB_UPLOAD_UNKNOWN` after the end of a session, and in other repositories."""
    content, other = blob(), repository.another()
    upload, sent, is_foreign = repository.start_upload(), 0, state.startswith("foreign")
    if state == "foreign-begun":
        sent = len(content.body) // 2
        upload = location_of(repository.append(upload, content.body[:sent], 0))
    if state == "closed":
        assert repository.finish(upload, content.digest, content.body).status_code == 201
    elif state == "cancelled":
        empty(repository.http.delete(upload), 204)
    else:
        other.push_blob(blob())
    asked = upload.replace(repository, other) if is_foreign else upload
    url = with_query(asked, digest=content.digest) if method == "PUT" else asked
    body = content.body if method in {"PATCH", "PUT"} else b""
    refused(repository.http.request(method, url, content=body), 404, "BLOB_UPLOAD_UNKNOWN")
    if is_foreign:
        assert repository.finish(upload, content.digest, content.body[sent:]).status_code == 201
    elif state == "closed":
        assert repository.get_blob(content.digest).content == content.body
