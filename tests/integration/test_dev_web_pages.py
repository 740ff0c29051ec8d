"""``entrepot dev`` has no sign-in: web pages that a browser of this machine shows stay outside."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.live import LiveRegistry, start_registry

FOREIGN = {
    "a name that was rebound to this machine": {"Host": "evil.example:5000"},
    "a name that begins like ours": {"Host": "localhost.evil.example"},
    "a name that ends like ours": {"Host": "evil-localhost"},
    "another address": {"Host": "192.168.1.5:5000"},
    "no address of a loopback": {"Host": "[::2]:5000"},
    "no name": {"Host": ""},
    "a page of another site": {"Origin": "https://evil.example"},
    "a page of a name like ours": {"Origin": "http://localhost.evil.example"},
    "a page that hides where it is from": {"Origin": "null"},
    "an extension": {"Origin": "chrome-extension://localhost"},
    "a form, an image or a link of another site": {"Sec-Fetch-Site": "cross-site"},
    "a rebound page": {"Host": "evil.example:5000", "Origin": "http://evil.example:5000"},
}
OURS = [
    {"Host": "localhost"},
    {"Host": "LOCALHOST:5000"},
    {"Host": "localhost.:5000"},
    {"Host": "registry.localhost:5000"},
    {"Host": "127.0.0.1:5000"},
    {"Host": "127.9.8.7"},
    {"Host": "[::1]:5000"},
    {"Host": "[::ffff:127.0.0.1]"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "https://127.0.0.1", "Sec-Fetch-Site": "same-site"},
    {"Origin": "http://[::1]:3000", "Sec-Fetch-Site": "same-origin"},
]
MANIFEST = (
    b'{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}'
)
OTHER = MANIFEST[:-1] + b',"annotations":{"by":"a web page"}}'
INDEX = {"Content-Type": "application/vnd.oci.image.index.v1+json"}


@pytest.fixture(scope="module")
def client(live_registry: LiveRegistry) -> Iterator[httpx.Client]:
    """Return a client of a registry that has the image ``dev/page:1``."""
    with httpx.Client(base_url=live_registry.url) as found:
        put = found.put("/v2/dev/page/manifests/1", content=MANIFEST, headers=INDEX)
        assert put.status_code == 201
        yield found


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_a_web_page_changes_and_reads_nothing(
    client: httpx.Client, headers: dict[str, str]
) -> None:
    tag = "/v2/dev/page/manifests/1"
    digest = f"sha256:{hashlib.sha256(b'page').hexdigest()}"
    upload = f"/v2/dev/page/blobs/uploads/?digest={digest}"
    answers = [
        client.put(tag, content=OTHER, headers=INDEX | headers),
        client.post(upload, content=b"page", headers=headers),
        client.delete(tag, headers=headers),
        client.get(tag, headers=headers),
        client.get("/v2/", headers=headers),
    ]
    for answer in answers:
        assert answer.status_code == 403
        assert answer.headers["docker-distribution-api-version"] == "registry/2.0"
        (error,) = answer.json()["errors"]
        assert error["code"] == "DENIED"
        assert "no sign-in" in error["message"]
    assert client.get(tag).content == MANIFEST
    assert client.head(f"/v2/dev/page/blobs/{digest}").status_code == 404


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("path", ["/healthz", "/v1/repositories", "/"])
def test_other_paths_refuse_in_the_envelope(
    client: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert error["code"] == "ACCESS_DENIED"
    assert error["request_id"] == answer.headers["x-request-id"]
    assert client.head(path, headers=headers).content == b""


@pytest.mark.parametrize("headers", OURS, ids=lambda each: " ".join(each.values()))
def test_programs_and_pages_of_this_machine_come_in(
    client: httpx.Client, headers: dict[str, str]
) -> None:
    assert client.get("/v2/dev/page/manifests/1", headers=headers).content == MANIFEST
    assert client.get("/healthz", headers=headers).status_code == 200


def test_two_origins_are_judged_by_the_worse(client: httpx.Client) -> None:
    both = [("Origin", "http://localhost"), ("Origin", "http://evil.example")]
    assert client.get("/v2/", headers=both).status_code == 403


def test_an_operator_may_name_further_hosts(tmp_path: Path) -> None:
    env = {"ENTREPOT_ALLOWED_HOSTS": "host.docker.internal,registry.test:5443"}
    registry = start_registry(tmp_path / "data", env=env)
    try:
        status = {
            host: httpx.get(f"{registry.url}/v2/", headers={"Host": host}).status_code
            for host in (
                "host.docker.internal",
                "HOST.docker.internal:5000",
                "registry.test:5443",
                "registry.test:5444",
                "registry.test",
                "x.host.docker.internal",
                "localhost",
            )
        }
    finally:
        assert registry.stop() == 0
    assert list(status.values()) == [200, 200, 200, 403, 403, 403, 200]
