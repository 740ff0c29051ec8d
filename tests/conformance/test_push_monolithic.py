"""end-4a + end-6, end-4b: pushing a blob as one body."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository, location_of
from tests.conformance.content import OCTET_STREAM, blob
from tests.conformance.expect import UUID, empty, pullable, refused


def test_post_opens_a_session(repository: Repository) -> None:
    """§ POST then PUT (end-4a): MUST be 202 with a `Location` that contains a UUID."""
    response = repository.post()
    assert response.status_code == 202
    assert UUID.search(response.headers["location"])


def test_sessions_are_unique(repository: Repository) -> None:
    """§ POST then PUT: the UUID MUST represent a unique session."""
    found = [UUID.search(repository.start_upload()) for _ in range(5)]
    assert len({match.group() for match in found if match}) == 5


@pytest.mark.parametrize("size", [0, 1, 100, 5 << 20])
def test_put_closes_the_session(repository: Repository, size: int) -> None:
    """§ POST then PUT (end-6): MUST be 201, with a `Location` from which the blob is pullable."""
    content = blob(size)
    response = repository.finish(repository.start_upload(), content.digest, content.body)
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)
    pullable(repository.http, f"/v2/{repository}/blobs/{content.digest}", content.body)


@pytest.mark.parametrize("size", [0, 1, 100, 1 << 20])
def test_single_post(repository: Repository, size: int) -> None:
    """§ Single POST (end-4b): MUST be 201 with a pullable `Location`; MAY be 202 if unsupported."""
    content = blob(size)
    response = repository.http.post(
        f"/v2/{repository}/blobs/uploads/",
        params={"digest": content.digest},
        content=content.body,
        headers={"content-type": OCTET_STREAM},
    )
    repository.decline(response, 202, optional="single POST")
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)


def test_single_post_unsupported_goes_on_with_put(repository: Repository) -> None:
    """§ Single POST: without support SHOULD be 202 and a `Location` for a PUT."""
    content = blob()
    response = repository.post(content.body, digest=content.digest)
    assert response.status_code in {201, 202}
    if response.status_code == 202:
        response = repository.finish(location_of(response), content.digest, content.body)
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)


def test_wrong_digest_is_refused(repository: Repository) -> None:
    """§ Error Codes code-4, end-6: content that does not match its digest is 400, never stored."""
    promised, sent = blob(), blob()
    response = repository.finish(repository.start_upload(), promised.digest, sent.body)
    assert response.status_code == 400
    assert repository.get_blob(promised.digest).status_code == 404
    assert repository.get_blob(sent.digest).status_code == 404


@pytest.mark.parametrize(
    "digest", ["", "nonsense", "sha256:abc", "sha256:" + "Z" * 64, "foo:" + "0" * 64]
)
def test_unusable_digest_is_refused(repository: Repository, digest: str) -> None:
    """§ Pushing blobs (newer SHOULD; end-6): an invalid or unknown digest is 400."""
    response = repository.finish(repository.start_upload(), digest, blob().body)
    assert response.status_code == 400


def test_put_without_digest_is_refused(repository: Repository) -> None:
    """§ Pushing a blob in chunks: the closing PUT MUST include the digest; else 400."""
    response = repository.http.put(repository.start_upload(), content=blob().body)
    assert response.status_code == 400


def test_same_blob_twice(repository: Repository) -> None:
    """§ Layer Upload De-duplication: to push known bytes again succeeds."""
    content = repository.push_blob(blob())
    repository.push_blob(content)
    repository.another().push_blob(content)
    assert repository.get_blob(content.digest).content == content.body


def test_unknown_session_is_404(repository: Repository) -> None:
    """end-6: a session that does not exist is 404."""
    repository.push_blob(blob())
    url = f"/v2/{repository}/blobs/uploads/5f3e3d2c-97ab-4ea8-86aa-0a1a5e4d1f2b"
    content = blob()
    response = repository.http.put(url, params={"digest": content.digest}, content=content.body)
    assert response.status_code == 404


@pytest.mark.newer
def test_answers_carry_the_digest(repository: Repository) -> None:
    """§ Pulling blobs (newer MUST): `Docker-Content-Digest`, here on the push and both reads."""
    content = blob()
    for response in (
        repository.finish(repository.start_upload(), content.digest, content.body),
        repository.get_blob(content.digest),
        repository.head_blob(content.digest),
    ):
        assert response.headers["docker-content-digest"] == content.digest


@pytest.mark.entrepot
@pytest.mark.parametrize("slash", ["", "/"])
def test_headers_of_a_new_session(repository: Repository, slash: str) -> None:
    """Ours: `Range: 0-0`, the id, nothing else; a path-absolute `Location`; slash optional."""
    response = repository.http.post(
        f"/v2/{repository}/blobs/uploads{slash}", follow_redirects=False
    )
    empty(response, 202)
    assert response.headers["range"] == "0-0"
    assert response.headers["content-length"] == "0"
    upload = response.headers["docker-upload-uuid"]
    assert response.headers["location"] == f"/v2/{repository}/blobs/uploads/{upload}"


@pytest.mark.entrepot
def test_headers_of_a_pushed_blob(repository: Repository) -> None:
    """Ours: both ways to 201 name the blob's path and digest, without a body."""
    content = blob()
    for response in (
        repository.finish(repository.start_upload(), content.digest, content.body),
        repository.post(content.body, digest=content.digest),
    ):
        empty(response, 201)
        assert response.headers["location"] == f"/v2/{repository}/blobs/{content.digest}"
        assert response.headers["docker-content-digest"] == content.digest


@pytest.mark.entrepot
def test_first_use_creates_the_repository(repository: Repository) -> None:
    """Ours: `docker push` works at once: the POST makes the repository."""
    refused(repository.list_tags(), 404, "NAME_UNKNOWN")
    repository.start_upload()
    assert repository.list_tags().json() == {"name": repository, "tags": []}


@pytest.mark.entrepot
def test_wrong_digest_destroys_the_session(repository: Repository) -> None:
    """Ours: mismatched bytes can never become the blob; the session is gone."""
    promised, sent = blob(), blob()
    upload = repository.start_upload()
    refused(repository.finish(upload, promised.digest, sent.body), 400, "DIGEST_INVALID")
    refused(repository.finish(upload, sent.digest), 404, "BLOB_UPLOAD_UNKNOWN")
    refused(repository.get_blob(sent.digest), 404, "BLOB_UNKNOWN")
