"""curl: the API walked as a shell script would, one plain request after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.images import MIB, OCI, Store, noise, sha256
from tests.clients.programs import run
from tests.clients.remote import Remote

pytestmark = pytest.mark.client("curl")


OCTETS = ("--header", "Content-Type: application/octet-stream")


class Curl:
    """Requests to one registry, each by its own curl."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def __call__(
        self, path: str, *options: str | Path, stdin: bytes = b""
    ) -> tuple[int, dict[str, str]]:
        """Make a request and return status and headers; the body is in the file ``body``."""
        url = path if path.startswith("http") else f"{self.url}{path}"
        body = self.folder / "body"
        body.unlink(missing_ok=True)
        written = run(
            *("curl", "--silent", "--show-error", "--max-time", "100", "--output", body),
            *("--dump-header", self.folder / "head", "--write-out", "%{http_code}"),
            *(*options, url),
            stdin=stdin,
        )
        lines = (self.folder / "head").read_text().splitlines()
        pairs = (line.partition(":") for line in lines if ":" in line)
        return int(written), {name.lower(): value.strip() for name, _, value in pairs}

    @property
    def body(self) -> bytes:
        """Return the body of the last answer."""
        body = self.folder / "body"
        return body.read_bytes() if body.exists() else b""

    def file(self, content: bytes) -> Path:
        """Return a file of `content`."""
        path = self.folder / sha256(content).partition(":")[2]
        path.write_bytes(content)
        return path

    def start(self, remote: Remote) -> str:
        """Open an upload and return its location."""
        status, headers = self(f"{remote.base}/blobs/uploads/", "--request", "POST")
        assert status == 202
        return headers["location"]


@pytest.fixture
def curl(registry_url: str, workspace: Path) -> Curl:
    (workspace / "curl").mkdir()
    return Curl(registry_url, workspace / "curl")


def finish(curl: Curl, location: str, digest: str) -> tuple[int, dict[str, str]]:
    mark = "&" if "?" in location else "?"
    return curl(f"{location}{mark}digest={digest}", "--request", "PUT")


def test_an_upload_is_resumed_where_it_broke_off(curl: Curl, remote: Remote) -> None:
    content = noise(3 * MIB, "resumed")
    parts = [content[:MIB], content[MIB : MIB + 1], content[MIB + 1 :]]
    location = curl.start(remote)
    sent = 0
    for part in parts:
        status, headers = curl(
            location,
            *("--request", "PATCH", "--data-binary", f"@{curl.file(part)}"),
            *("--header", f"Content-Range: {sent}-{sent + len(part) - 1}"),
            *OCTETS,
        )
        sent += len(part)
        assert status == 202
        assert headers["range"] == f"0-{sent - 1}"
        status, headers = curl(headers["location"])
        assert status == 204
        assert headers["range"] == f"0-{sent - 1}"
        location = headers["location"]

    assert finish(curl, location, sha256(content))[0] == 201
    assert remote.blob(sha256(content)).content == content


def test_a_chunk_out_of_order_is_refused_and_the_upload_lives(curl: Curl, remote: Remote) -> None:
    content = b"0123456789"
    location = curl.start(remote)
    patch = ("--request", "PATCH", *OCTETS, "--data-binary")
    _, headers = curl(location, *patch, "01234", "--header", "Content-Range: 0-4")
    location = headers["location"]
    status, _ = curl(location, *patch, "89", "--header", "Content-Range: 8-9")
    assert status == 416
    status, headers = curl(location, *patch, "56789", "--header", "Content-Range: 5-9")
    assert status == 202
    assert finish(curl, headers["location"], sha256(content))[0] == 201
    assert remote.blob(sha256(content)).content == content


@pytest.mark.parametrize("size", [0, 1, 5 * MIB], ids=["0", "1", "5M"])
def test_a_pipe_is_uploaded_without_a_length(curl: Curl, remote: Remote, size: int) -> None:
    content = noise(size, "pipe")
    status, headers = curl(
        curl.start(remote),
        *("--request", "PATCH", *OCTETS, "--upload-file", "-"),
        stdin=content,
    )
    assert status == 202
    assert finish(curl, headers["location"], sha256(content))[0] == 201
    assert remote.blob(sha256(content)).content == content


def test_a_large_body_is_sent_after_100_continue(curl: Curl, remote: Remote) -> None:
    content = noise(4 * MIB, "expect")
    location = curl.start(remote)
    mark = "&" if "?" in location else "?"
    status, headers = curl(
        f"{location}{mark}digest={sha256(content)}",
        *("--header", "Expect: 100-continue", "--expect100-timeout", "90"),
        *OCTETS,
        *("--upload-file", curl.file(content)),
    )
    assert (curl.folder / "head").read_text().startswith("HTTP/1.1 100 Continue")
    assert status == 201
    assert headers["docker-content-digest"] == sha256(content)


def test_a_wrong_digest_leaves_no_blob(curl: Curl, remote: Remote) -> None:
    location = curl.start(remote)
    _, headers = curl(location, "--request", "PATCH", *OCTETS, "--data-binary", "right")
    assert finish(curl, headers["location"], sha256(b"wrong"))[0] == 400
    assert json.loads(curl.body)["errors"][0]["code"] == "DIGEST_INVALID"
    assert {remote.blob(sha256(content)).status_code for content in (b"right", b"wrong")} == {404}


def test_an_upload_is_cancelled(curl: Curl, remote: Remote) -> None:
    location = curl.start(remote)
    assert curl(location, "--request", "DELETE")[0] == 204
    assert curl(location)[0] == 404


def test_a_broken_download_continues_where_it_stopped(
    curl: Curl, store: Store, remote: Remote, workspace: Path
) -> None:
    content = noise(2 * MIB, "download")
    artifact = store.artifact([content], artifact_type="application/x-noise")
    remote.push(artifact, "1")
    url = f"{curl.url}{remote.base}/blobs/{sha256(content)}"
    target = workspace / "download"
    target.write_bytes(content[:1_000_000])
    run("curl", "--silent", "--show-error", "--fail", "--continue-at", "-", "--output", target, url)
    assert target.read_bytes() == content


@pytest.mark.parametrize(
    ("wanted", "first", "end"), [("0-0", 0, 1), ("100-199", 100, 200), ("-7", 993, 1000)]
)
def test_a_range_is_downloaded(
    curl: Curl, store: Store, remote: Remote, wanted: str, first: int, end: int
) -> None:
    content = noise(1000, "range")
    remote.push(store.artifact([content], artifact_type="application/x-noise"), "1")
    status, headers = curl(f"{remote.base}/blobs/{sha256(content)}", "--range", wanted)
    assert status == 206
    assert headers["content-range"] == f"bytes {first}-{end - 1}/1000"
    assert curl.body == content[first:end]


def test_nothing_is_sent_to_who_has_it(
    curl: Curl, store: Store, remote: Remote, workspace: Path
) -> None:
    content = noise(1000, "etag")
    remote.push(store.artifact([content], artifact_type="application/x-noise"), "1")
    path = f"{remote.base}/blobs/{sha256(content)}"
    etag = workspace / "etag"
    assert curl(path, "--etag-save", etag)[0] == 200
    assert curl(path, "--etag-compare", etag)[0] == 304
    assert curl.body == b""


def test_a_script_pushes_moves_lists_and_deletes(curl: Curl, store: Store, remote: Remote) -> None:
    image = store.image([{"a": b"a"}])
    for blob in image.blobs:
        mark = f"{remote.base}/blobs/uploads/?digest={blob}"
        content = ("--data-binary", f"@{store.path(blob)}", *OCTETS)
        status, headers = curl(mark, *content)
        if status == 202:  # a single POST may be answered as the start of an upload
            location = headers["location"]
            mark = f"{location}{'&' if '?' in location else '?'}digest={blob}"
            status, headers = curl(mark, "--request", "PUT", *content)
        assert status == 201
    manifest = ("--request", "PUT", "--data-binary", f"@{store.path(image.digest)}")
    kind = ("--header", f"Content-Type: {OCI.manifest}")
    for tag in ("1", "2"):
        assert curl(f"{remote.base}/manifests/{tag}", *manifest, *kind)[0] == 201
    status, headers = curl(
        f"{remote.base}/manifests/1", "--head", "--header", f"Accept: {OCI.manifest}"
    )
    assert status == 200
    assert headers["docker-content-digest"] == image.digest
    assert curl(f"{remote.base}/tags/list")[0] == 200
    assert json.loads(curl.body) == {"name": remote.name, "tags": ["1", "2"]}

    mount = f"{remote.sibling('copy').base}/blobs/uploads/?mount={image.blobs[0]}"
    assert curl(f"{mount}&from={remote.name}", "--request", "POST")[0] == 201
    assert curl(f"{remote.base}/manifests/{image.digest}", "--request", "DELETE")[0] == 202
    assert curl(f"{remote.base}/manifests/1")[0] == 404
