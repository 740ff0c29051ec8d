"""end-2: pulling blobs and asking for them."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository
from tests.conformance.content import OCTET_STREAM, Content, blob, digest_of

ABSENT = "sha256:" + "0" * 64


@pytest.mark.parametrize("size", [0, 1, 2048, 3 << 20])
def test_get_gives_the_blob(repository: Repository, size: int) -> None:
    """§ Pulling blobs: GET of an existing blob MUST provide it with 200."""
    content = repository.push_blob(blob(size))
    response = repository.get_blob(content.digest)
    assert response.status_code == 200
    assert response.content == content.body


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_answer_carries_the_digest_of_the_body(repository: Repository, method: str) -> None:
    """§ Pulling blobs: `Docker-Content-Digest` SHOULD be there, MUST match the body."""
    content = repository.push_blob(blob())
    response = repository.http.request(method, f"/v2/{repository}/blobs/{content.digest}")
    assert response.headers["docker-content-digest"] == digest_of(content.body)


@pytest.mark.parametrize("size", [0, 1, 70_000])
def test_head_answers_200_with_the_size(repository: Repository, size: int) -> None:
    """§ Checking if content exists: HEAD MUST return 200; SHOULD carry `Content-Length`."""
    content = repository.push_blob(blob(size))
    response = repository.head_blob(content.digest)
    assert response.status_code == 200
    assert response.content == b""
    assert response.headers["content-length"] == str(size)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_absent_blob_is_404(repository: Repository, method: str) -> None:
    """§ Pulling blobs: a blob not found in the repository MUST be 404, for HEAD too."""
    repository.push_blob(blob())
    response = repository.http.request(method, f"/v2/{repository}/blobs/{ABSENT}")
    assert response.status_code == 404


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_nonexistent_repository_is_404(repository: Repository, method: str) -> None:
    """§ Pulling blobs: nothing is found in a repository that does not exist: 404."""
    response = repository.http.request(method, f"/v2/{repository}/blobs/{ABSENT}")
    assert response.status_code == 404


def test_blob_of_another_repository_is_404(repository: Repository) -> None:
    """§ Pulling blobs: "not found in the repository" is 404, whatever others hold."""
    content = repository.push_blob(blob())
    other = repository.another()
    other.push_blob(blob())
    assert other.get_blob(content.digest).status_code == 404
    assert other.head_blob(content.digest).status_code == 404


@pytest.mark.entrepot
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_headers_of_a_blob(repository: Repository, method: str) -> None:
    """Ours: octet stream, ranges announced, cacheable for ever by its reader alone."""
    content = repository.push_blob(blob())
    response = repository.http.request(method, f"/v2/{repository}/blobs/{content.digest}")
    assert response.headers["content-type"] == OCTET_STREAM
    assert response.headers["accept-ranges"] == "bytes"
    assert response.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert response.headers["content-length"] == str(len(content.body))
    assert response.headers["etag"] == f'"{content.digest}"'


@pytest.mark.entrepot
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_etag_saves_a_second_pull(repository: Repository, method: str) -> None:
    """Ours after RFC 9110 §13.1.2: `If-None-Match` with the digest gives 304."""
    content = repository.push_blob(blob())
    path = f"/v2/{repository}/blobs/{content.digest}"
    same = repository.http.request(method, path, headers={"if-none-match": f'"{content.digest}"'})
    assert same.status_code == 304
    assert same.content == b""
    assert same.headers["docker-content-digest"] == content.digest
    other = repository.http.request(method, path, headers={"if-none-match": '"other"'})
    assert other.status_code == 200


@pytest.mark.entrepot
def test_no_redirect(repository: Repository) -> None:
    """Ours: bytes are served in place."""
    content = repository.push_blob(blob())
    response = repository.http.get(
        f"/v2/{repository}/blobs/{content.digest}", follow_redirects=False
    )
    assert response.status_code == 200


@pytest.mark.entrepot
def test_colon_may_be_percent_encoded(repository: Repository) -> None:
    """Ours: the path is percent-decoded once (RFC 3986 §2.1)."""
    content = repository.push_blob(Content(b"percent"))
    path = f"/v2/{repository}/blobs/{content.digest.replace(':', '%3A')}"
    assert repository.http.get(path).content == content.body
