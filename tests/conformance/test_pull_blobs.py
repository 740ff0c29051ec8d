"""end-2: pulling blobs and asking for them."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository
from tests.conformance.content import OCTET_STREAM, Content, blob, digest_of

ABSENT = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def content(shared: Repository) -> Content:
    """Return a pushed blob."""
    return shared.push_blob(blob())


@pytest.mark.parametrize("size", [0, 1, 2048, 70_000, 3 << 20])
def test_get_gives_the_blob_and_head_its_size(shared: Repository, size: int) -> None:
    """§ Pulling blobs: GET of an existing blob MUST provide it with 200.

    § Checking if content exists: HEAD MUST return 200; SHOULD carry `Content-Length`.
    """
    content = shared.push_blob(blob(size))
    got, asked = shared.get_blob(content.digest), shared.head_blob(content.digest)
    assert (got.status_code, asked.status_code) == (200, 200)
    assert (got.content, asked.content) == (content.body, b"")
    assert asked.headers["content-length"] == str(size)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_answer_carries_the_digest_of_the_body(
    shared: Repository, content: Content, method: str
) -> None:
    """§ Pulling blobs: `Docker-Content-Digest` SHOULD be there, MUST match the body."""
    response = shared.http.request(method, f"/v2/{shared}/blobs/{content.digest}")
    assert response.headers["docker-content-digest"] == digest_of(content.body)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_absent_blob_is_404(shared: Repository, content: Content, method: str) -> None:
    """§ Pulling blobs: a blob not found in the repository MUST be 404, for HEAD too.

    Whatever other repositories hold, and in one that does not exist.
    """
    other, none = shared.another(), shared.another()
    other.push_blob(blob())
    for repository, digest in ((shared, ABSENT), (other, content.digest), (none, ABSENT)):
        response = shared.http.request(method, f"/v2/{repository}/blobs/{digest}")
        assert response.status_code == 404


@pytest.mark.entrepot
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_headers_of_a_blob(shared: Repository, content: Content, method: str) -> None:
    """Ours: octet stream, ranges announced, cacheable for ever by its reader alone."""
    response = shared.http.request(method, f"/v2/{shared}/blobs/{content.digest}")
    expected = {
        "content-type": OCTET_STREAM,
        "accept-ranges": "bytes",
        "cache-control": "private, max-age=31536000, immutable",
        "content-length": str(len(content.body)),
        "etag": f'"{content.digest}"',
    }
    assert {name: response.headers[name] for name in expected} == expected


@pytest.mark.entrepot
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_etag_saves_a_second_pull(shared: Repository, content: Content, method: str) -> None:
    """Ours after RFC 9110 §13.1.2: `If-None-Match` with the digest gives 304."""
    path = f"/v2/{shared}/blobs/{content.digest}"
    same = shared.http.request(method, path, headers={"if-none-match": f'"{content.digest}"'})
    assert same.status_code == 304
    assert same.content == b""
    assert same.headers["docker-content-digest"] == content.digest
    other = shared.http.request(method, path, headers={"if-none-match": '"other"'})
    assert other.status_code == 200


@pytest.mark.entrepot
def test_bytes_are_served_in_place(shared: Repository, content: Content) -> None:
    """Ours: without a redirect."""
    path = f"/v2/{shared}/blobs/{content.digest}"
    assert shared.http.get(path, follow_redirects=False).status_code == 200


@pytest.mark.entrepot
def test_colon_may_be_percent_encoded(shared: Repository, content: Content) -> None:
    """Ours: the path is percent-decoded once (RFC 3986 §2.1)."""
    path = f"/v2/{shared}/blobs/{content.digest.replace(':', '%3A')}"
    assert shared.http.get(path).content == content.body
