"""end-2 with `Range`: RFC 9110 §14 as far as OCI asks for it."""

from __future__ import annotations

import pytest

from tests.conformance.client import Registry
from tests.conformance.content import Content, blob
from tests.conformance.expect import refused

SIZE = 2048


@pytest.fixture
def content(registry: Registry, repository: str) -> Content:
    """Return a pushed blob of SIZE bytes."""
    return registry.push_blob(repository, blob(SIZE))


@pytest.mark.parametrize(
    ("range_", "first", "last"),
    [
        ("bytes=500-1499", 500, 1499),
        ("bytes=0-0", 0, 0),
        ("bytes=2047-2047", 2047, 2047),
        ("bytes=0-", 0, 2047),
        ("bytes=500-", 500, 2047),
        ("bytes=-500", 1548, 2047),
        ("bytes=-5000", 0, 2047),
        ("bytes=2000-5000", 2000, 2047),
    ],
)
def test_range_is_served(
    registry: Registry, repository: str, content: Content, range_: str, first: int, last: int
) -> None:
    """§ Pulling blobs: `Range` SHOULD be supported: 206, `Content-Range`, these very bytes."""
    response = registry.get_blob(repository, content.digest, range=range_)
    assert response.status_code == 206
    assert response.content == content.body[first : last + 1]
    assert response.headers["content-range"] == f"bytes {first}-{last}/{SIZE}"
    assert response.headers["content-length"] == str(last - first + 1)


@pytest.mark.parametrize("range_", ["bytes=2048-", "bytes=5000-10000"])
def test_range_past_the_end_is_416(
    registry: Registry, repository: str, content: Content, range_: str
) -> None:
    """RFC 9110 §14.1.2, §15.5.17: a range past the end is unsatisfiable: 416, the length named."""
    response = registry.get_blob(repository, content.digest, range=range_)
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize(
    "range_", ["items=0-1", "bytes", "0-1", "bytes=a-b", "bytes=-", "bytes=1-2-3"]
)
def test_unusable_range_is_never_wrong_bytes(
    registry: Registry, repository: str, content: Content, range_: str
) -> None:
    """RFC 9110 §14.2: an unknown unit or an invalid range is ignored (416 is tolerated)."""
    response = registry.get_blob(repository, content.digest, range=range_)
    assert response.status_code in {200, 416}
    if response.status_code == 200:
        assert response.content == content.body


def test_several_ranges_are_answered_whole_or_in_parts(
    registry: Registry, repository: str, content: Content
) -> None:
    """RFC 9110 §14.2: several ranges are multipart/byteranges, or the range is ignored."""
    response = registry.get_blob(repository, content.digest, range="bytes=0-9,20-29")
    if response.status_code == 206:
        assert response.headers["content-type"].startswith("multipart/byteranges")
    else:
        assert response.status_code == 200
        assert response.content == content.body


@pytest.mark.newer
@pytest.mark.parametrize("range_", ["bytes=500-0"])
def test_backward_range_is_416(
    registry: Registry, repository: str, content: Content, range_: str
) -> None:
    """Newer conformance text: first > last is 416."""
    assert registry.get_blob(repository, content.digest, range=range_).status_code == 416


@pytest.mark.entrepot
@pytest.mark.parametrize("range_", ["bytes=500-0", "bytes=2048-", "bytes=-0", "bytes=99999999999-"])
def test_unsatisfiable_range_names_the_length(
    registry: Registry, repository: str, content: Content, range_: str
) -> None:
    """Ours: 416 with `Content-Range: bytes */len`."""
    response = registry.get_blob(repository, content.digest, range=range_)
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{SIZE}"


@pytest.mark.entrepot
@pytest.mark.parametrize("range_", ["items=0-1", "bytes=0-9,20-29", "bytes=0-1, 5-6", "bytes 0-1"])
def test_several_ranges_or_another_unit_give_the_whole(
    registry: Registry, repository: str, content: Content, range_: str
) -> None:
    """Ours: several ranges or another unit: 200, the whole blob."""
    response = registry.get_blob(repository, content.digest, range=range_)
    assert response.status_code == 200
    assert response.content == content.body


@pytest.mark.entrepot
def test_partial_answer_has_the_headers_of_the_whole(
    registry: Registry, repository: str, content: Content
) -> None:
    """Ours: 206 carries the digest and the ETag of the whole blob."""
    response = registry.get_blob(repository, content.digest, range="bytes=1-3")
    assert response.headers["docker-content-digest"] == content.digest
    assert response.headers["etag"] == f'"{content.digest}"'
    assert response.headers["accept-ranges"] == "bytes"


@pytest.mark.entrepot
@pytest.mark.parametrize(("condition", "status"), [("etag", 206), ('"other"', 200), ("junk", 200)])
def test_if_range(
    registry: Registry, repository: str, content: Content, condition: str, status: int
) -> None:
    """Ours after RFC 9110 §13.1.5: `If-Range` with another validator gives the whole."""
    validator = f'"{content.digest}"' if condition == "etag" else condition
    response = registry.get_blob(
        repository, content.digest, **{"range": "bytes=0-9", "if-range": validator}
    )
    assert response.status_code == status
    assert response.content == (content.body[:10] if status == 206 else content.body)


@pytest.mark.entrepot
def test_head_ignores_range(registry: Registry, repository: str, content: Content) -> None:
    """RFC 9110 §14.2: `Range` is defined for GET only."""
    response = registry.head_blob(repository, content.digest, range="bytes=0-9")
    assert response.status_code == 200
    assert response.headers["content-length"] == str(SIZE)


@pytest.mark.entrepot
def test_range_of_an_empty_blob_is_416(registry: Registry, repository: str) -> None:
    """Ours: no byte of an empty blob can be named: first ≥ length."""
    empty = registry.push_blob(repository, Content(b""))
    response = registry.get_blob(repository, empty.digest, range="bytes=0-0")
    assert response.status_code == 416
    assert response.headers["content-range"] == "bytes */0"


@pytest.mark.entrepot
def test_range_of_an_absent_blob_is_404(
    registry: Registry, repository: str, content: Content
) -> None:
    """Ours: `Range` is read once the blob is found."""
    response = registry.get_blob(repository, "sha256:" + "0" * 64, range="bytes=0-0")
    refused(response, 404, "BLOB_UNKNOWN")
