"""Conditions on reads and deletes (RFC 9110 §13): entity tags are digests, always strong."""

from __future__ import annotations

import pytest

from tests.conformance.client import Registry, Repository
from tests.conformance.content import Content, blob, config, image_manifest
from tests.conformance.expect import refused

pytestmark = pytest.mark.entrepot

OTHER = '"sha256:' + "0" * 64 + '"'
FOUND = ["{etag}", "*", OTHER + ", {etag}", "{etag} ,W/{etag}"]
NOT_FOUND = [OTHER, "W/{etag}", "junk", "", '"*"', "{bare}", "*, *"]


@pytest.fixture(scope="module", params=["blob", "tag", "digest", "sha512"])
def read(request: pytest.FixtureRequest, shared: Repository) -> tuple[str, str]:
    """Return the path of some content, and the digest that its entity tag names."""
    if request.param == "blob":
        content = shared.push_blob(blob())
        return f"/v2/{shared}/blobs/{content.digest}", content.digest
    algorithm = "sha512" if request.param == "sha512" else "sha256"
    parts = shared.push_blob(config()), [shared.push_blob(blob())]
    image = shared.push_manifest(image_manifest(*parts, algorithm=algorithm))
    if request.param == "tag":
        shared.push_manifest(image, "v1")
    reference = "v1" if request.param == "tag" else image.digest
    return f"/v2/{shared}/manifests/{reference}", image.digest


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_if_match(registry: Registry, read: tuple[str, str], method: str) -> None:
    """§13.1.1: a list of strong entity tags or `*`; 412 when none is that of the content."""
    path, digest = read
    names = {"etag": f'"{digest}"', "bare": digest}
    for value in FOUND:
        headers = {"if-match": value.format(**names)}
        assert registry.http.request(method, path, headers=headers).status_code == 200, value
    for value in NOT_FOUND:
        headers = {"if-match": value.format(**names)}
        answer = registry.http.request(method, path, headers=headers)
        assert answer.status_code == 412, value
        if method == "GET":
            refused(answer, 412, "DENIED")


def test_if_match_comes_before_if_none_match(registry: Registry, read: tuple[str, str]) -> None:
    """§13.2.2: first `If-Match`, 412; then `If-None-Match`, 304; then `If-Range`."""
    path, digest = read
    same = f'"{digest}"'
    for match, none_match, status in (
        (same, same, 304),
        ("*", "*", 304),
        (same, OTHER, 200),
        (OTHER, same, 412),
        (OTHER, OTHER, 412),
    ):
        headers = {"if-match": match, "if-none-match": none_match}
        assert registry.http.get(path, headers=headers).status_code == status, headers


def test_several_lines_are_one_list(registry: Registry, read: tuple[str, str]) -> None:
    """§5.3: a list may come in several fields."""
    path, digest = read
    headers = [("if-match", OTHER), ("if-match", f'"{digest}"')]
    assert registry.http.get(path, headers=headers).status_code == 200


def test_a_part_of_what_was_seen(repository: Repository) -> None:
    """§13.1.1: `If-Match` keeps the parts of a download from being of several contents."""
    content = repository.push_blob(blob(100))
    part = {"range": "bytes=10-19"}
    answer = repository.get_blob(content.digest, **part, **{"if-match": OTHER})
    refused(answer, 412, "DENIED")
    same = {"if-match": f'"{content.digest}"'}
    answer = repository.get_blob(content.digest, **part, **same)
    assert (answer.status_code, answer.content) == (206, content.body[10:20])
    beyond = {"range": "bytes=100-"}
    assert repository.get_blob(content.digest, **beyond, **same).status_code == 416


def test_what_is_absent_is_absent_whatever_the_condition(repository: Repository) -> None:
    """§13.2.1: conditions are for answers that would be a success."""
    repository.push_image("v1")
    for path in (f"manifests/{blob().digest}", "manifests/none", f"blobs/{blob().digest}"):
        for value in ("*", OTHER):
            answer = repository.http.get(f"/v2/{repository}/{path}", headers={"if-match": value})
            assert answer.status_code == 404


def test_a_delete_by_digest(repository: Repository) -> None:
    """§13.1.1: what the client did not mean is not deleted."""
    image: Content = repository.push_image()
    layer = repository.push_blob(blob())
    for path, digest in (
        (f"/v2/{repository}/manifests/{image.digest}", image.digest),
        (f"/v2/{repository}/blobs/{layer.digest}", layer.digest),
    ):
        refused(repository.http.delete(path, headers={"if-match": OTHER}), 412, "DENIED")
        assert repository.http.get(path).status_code == 200
        assert repository.http.delete(path, headers={"if-match": f'"{digest}"'}).status_code == 202
