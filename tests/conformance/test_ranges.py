"""end-2 with `Range`: RFC 9110 §14 as far as OCI asks for it."""

from __future__ import annotations

import pytest

from tests.conformance.client import Repository
from tests.conformance.content import Content, blob
from tests.conformance.expect import refused

SIZE = 2048


@pytest.fixture(scope="module")
def content(shared: Repository) -> Content:
    """Return a pushed blob of SIZE bytes."""
    return shared.push_blob(blob(SIZE))


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
    shared: Repository, content: Content, range_: str, first: int, last: int
) -> None:
    """§ Pulling blobs: `Range` SHOULD be supported: 206, `Content-Range`, these very bytes."""
    response = shared.get_blob(content.digest, range=range_)
    assert response.status_code == 206
    assert response.content == content.body[first : last + 1]
    assert response.headers["content-range"] == f"bytes {first}-{last}/{SIZE}"
    assert response.headers["content-length"] == str(last - first + 1)


@pytest.mark.parametrize("range_", ["bytes=2048-", "bytes=5000-10000"])
def test_range_past_the_end_is_416(shared: Repository, content: Content, range_: str) -> None:
    """RFC 9110 §14.1.2, §15.5.17: a range past the end is unsatisfiable: 416, the length named."""
    response = shared.get_blob(content.digest, range=range_)
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{SIZE}"


@pytest.mark.parametrize(
    "range_", ["items=0-1", "bytes", "0-1", "bytes=a-b", "bytes=-", "bytes=1-2-3"]
)
def test_unusable_range_is_never_wrong_bytes(
    shared: Repository, content: Content, range_: str
) -> None:
    """RFC 9110 §14.2: an unknown unit or an invalid range is ignored (416 is tolerated)."""
    response = shared.get_blob(content.digest, range=range_)
    assert response.status_code in {200, 416}
    if response.status_code == 200:
        assert response.content == content.body


def test_several_ranges_are_answered_whole_or_in_parts(
    shared: Repository, content: Content
) -> None:
    """RFC 9110 §14.2: several ranges are multipart/byteranges, or the range is ignored."""
    response = shared.get_blob(content.digest, range="bytes=0-9,20-29")
    if response.status_code == 206:
        assert response.headers["content-type"].startswith("multipart/byteranges")
    else:
        assert response.status_code == 200
        assert response.content == content.body


@pytest.mark.newer
@pytest.mark.parametrize("range_", ["bytes=500-0"])
def test_backward_range_is_416(shared: Repository, content: Content, range_: str) -> None:
    """Newer conformance text: first > last is 416."""
    assert shared.get_blob(content.digest, range=range_).status_code == 416


@pytest.mark.entrepot
@pytest.mark.parametrize(
    "ranges", ["0-9,20-29", " 0-0 , 5-6,, 2040-", "100-199,200-299", "500-509,0-9,-5", "9-,5000-"]
)
def test_several_ranges_are_parts_of_one_answer(
    shared: Repository, content: Content, ranges: str
) -> None:
    """Ours: RFC 9110 §14.6: the parts that were asked for, in this order; 206 for one alone too."""
    response = shared.get_blob(content.digest, range=f"bytes={ranges}")
    assert response.status_code == 206
    wanted = []
    for each in filter(None, map(str.strip, ranges.split(","))):
        first, last = each.split("-")
        start = int(first) if first else SIZE - int(last)
        stop = min(int(last) + 1, SIZE) if first and last else SIZE
        if start < SIZE:
            wanted.append((f"bytes {start}-{stop - 1}/{SIZE}", content.body[start:stop]))
    if len(wanted) == 1:
        assert (response.headers["content-range"], response.content) == wanted[0]
        return
    assert "content-range" not in response.headers
    kind, _, boundary = response.headers["content-type"].partition("; boundary=")
    assert kind == "multipart/byteranges"
    assert len(response.content) == int(response.headers["content-length"])
    parts = response.content.split(b"--" + boundary.encode())
    assert (parts[0], parts[-1]) == (b"", b"--\r\n")
    found = []
    for part in parts[1:-1]:
        head, _, body = part.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        assert fields["Content-Type"] == "application/octet-stream"
        found.append((fields["Content-Range"], body.removesuffix(b"\r\n")))
    assert found == wanted


@pytest.mark.entrepot
@pytest.mark.parametrize("ranges", ["5000-,6000-7000", "2048-2049,-0"])
def test_several_ranges_past_the_end_are_416(
    shared: Repository, content: Content, ranges: str
) -> None:
    """Ours: RFC 9110 §15.5.17: none of the ranges is satisfiable."""
    response = shared.get_blob(content.digest, range=f"bytes={ranges}")
    assert response.status_code == 416
    assert response.headers["content-range"] == f"bytes */{SIZE}"


@pytest.mark.entrepot
@pytest.mark.parametrize(
    "range_",
    [
        *("items=0-1", "bytes 0-1", "items=0-1,5-6", "bytes=0-1,x", "bytes=0-1,9-5", "bytes=0-1,-"),
        "bytes=" + ",".join(["0-1"] * 9),  # each overlaps the one before
        "bytes=" + ",".join(f"{at}-{at}" for at in range(0, 2048, 2)),  # longer than the whole
        "bytes=0-2000,2001-2047",
    ],
)
def test_what_is_no_use_in_parts_gives_the_whole(
    shared: Repository, content: Content, range_: str
) -> None:
    """Ours: another unit, a malformed range, many overlaps, or no fewer bytes: 200."""
    response = shared.get_blob(content.digest, range=range_)
    assert response.status_code == 200
    assert response.content == content.body


@pytest.mark.entrepot
def test_partial_answer_has_the_headers_of_the_whole(shared: Repository, content: Content) -> None:
    """Ours: 206 carries the digest and the ETag of the whole blob."""
    response = shared.get_blob(content.digest, range="bytes=1-3")
    assert response.headers["docker-content-digest"] == content.digest
    assert response.headers["etag"] == f'"{content.digest}"'
    assert response.headers["accept-ranges"] == "bytes"


@pytest.mark.entrepot
@pytest.mark.parametrize(("condition", "status"), [("etag", 206), ('"other"', 200), ("junk", 200)])
def test_if_range(shared: Repository, content: Content, condition: str, status: int) -> None:
    """Ours after RFC 9110 §13.1.5: `If-Range` with another validator gives the whole."""
    validator = f'"{content.digest}"' if condition == "etag" else condition
    response = shared.get_blob(content.digest, **{"range": "bytes=0-9", "if-range": validator})
    assert response.status_code == status
    assert response.content == (content.body[:10] if status == 206 else content.body)


@pytest.mark.entrepot
def test_head_ignores_range(shared: Repository, content: Content) -> None:
    """RFC 9110 §14.2: `Range` is defined for GET only."""
    response = shared.head_blob(content.digest, range="bytes=0-9")
    assert response.status_code == 200
    assert response.headers["content-length"] == str(SIZE)


@pytest.mark.entrepot
def test_range_of_an_empty_blob_is_416(shared: Repository) -> None:
    """Ours: no byte of an empty blob can be named: first ≥ length."""
    empty = shared.push_blob(Content(b""))
    response = shared.get_blob(empty.digest, range="bytes=0-0")
    assert response.status_code == 416
    assert response.headers["content-range"] == "bytes */0"


@pytest.mark.entrepot
def test_range_of_an_absent_blob_is_404(shared: Repository, content: Content) -> None:
    """Ours: `Range` is read once the blob is found."""
    response = shared.get_blob("sha256:" + "0" * 64, range="bytes=0-0")
    refused(response, 404, "BLOB_UNKNOWN")
