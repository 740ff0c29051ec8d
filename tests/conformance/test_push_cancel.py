"""end-14: cancelling an upload."""

from __future__ import annotations

import uuid

import pytest

from tests.conformance.client import Repository, location_of
from tests.conformance.content import blob
from tests.conformance.expect import empty, refused


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
def test_cancelled_session_is_unknown(repository: Repository) -> None:
    """Ours: 404 `BLOB_UPLOAD_UNKNOWN` the second time, and for ids never given."""
    upload = repository.start_upload()
    assert repository.http.delete(upload).status_code == 204
    refused(repository.http.delete(upload), 404, "BLOB_UPLOAD_UNKNOWN")
    content = blob()
    refused(repository.finish(upload, content.digest, content.body), 404, "BLOB_UPLOAD_UNKNOWN")
    never = f"/v2/{repository}/blobs/uploads/{uuid.uuid4()}"
    refused(repository.http.delete(never), 404, "BLOB_UPLOAD_UNKNOWN")
