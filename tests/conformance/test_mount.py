"""end-11: mounting a blob from another repository."""

from __future__ import annotations

import httpx
import pytest

from tests.conformance.client import Registry, Repository, location_of
from tests.conformance.content import Content, blob
from tests.conformance.expect import empty, pullable


def mount(repository: Repository, digest: str, **query: str) -> httpx.Response:
    """Ask to mount `digest` into `repository`; `source` is the `from` of the query."""
    if "source" in query:
        query["from"] = query.pop("source")
    return repository.post(mount=digest, **query)


def goes_on_as_upload(repository: Repository, response: httpx.Response) -> None:
    """Require that a declined mount has begun an upload that works."""
    assert response.status_code == 202, response.text
    content = blob()
    finished = repository.finish(location_of(response), content.digest, content.body)
    assert finished.status_code == 201
    assert repository.get_blob(content.digest).content == content.body


@pytest.fixture
def source(registry: Registry) -> Repository:
    """Return another repository."""
    return registry.new_repository()


@pytest.fixture
def content(source: Repository) -> Content:
    """Return a blob that the other repository has."""
    return source.push_blob(blob())


def test_mount(repository: Repository, source: Repository, content: Content) -> None:
    """§ Mounting a blob: MUST be 201 with the blob's `Location`; unsupported SHOULD be 202."""
    response = mount(repository, content.digest, source=source)
    repository.decline(response, 202, optional="cross-repository mount")
    assert response.status_code == 201
    pullable(repository.http, location_of(response), content.body)
    pullable(repository.http, f"/v2/{repository}/blobs/{content.digest}", content.body)


def test_absent_blob_begins_an_upload(repository: Repository, source: Repository) -> None:
    """§ Mounting a blob: unable to mount SHOULD be 202, and the client MAY upload."""
    source.push_blob(blob())
    response = mount(repository, blob().digest, source=source)
    goes_on_as_upload(repository, response)


def test_absent_source_begins_an_upload(repository: Repository) -> None:
    """§ Mounting a blob: unable to mount SHOULD be 202: here, no such repository."""
    response = mount(repository, blob().digest, source=repository.another())
    goes_on_as_upload(repository, response)


def test_without_from(repository: Repository, source: Repository, content: Content) -> None:
    """§ Mounting a blob: the registry MAY treat `from` as optional: 201 if found, else 202."""
    response = mount(repository, content.digest)
    assert response.status_code in {201, 202}
    if response.status_code == 201:
        pullable(repository.http, location_of(response), content.body)
    else:
        goes_on_as_upload(repository, response)


def test_mounted_blob_outlives_its_source(
    repository: Repository, source: Repository, content: Content
) -> None:
    """§ Mounting a blob: it exists in the repository it was mounted into."""
    response = mount(repository, content.digest, source=source)
    repository.decline(response, 202, optional="cross-repository mount")
    deleted = source.delete_blob(content.digest)
    repository.decline(deleted, 400, 405, optional="blob deletion")
    assert source.get_blob(content.digest).status_code == 404
    assert repository.get_blob(content.digest).content == content.body


@pytest.mark.newer
def test_mount_carries_the_digest(
    repository: Repository, source: Repository, content: Content
) -> None:
    """§ Mounting a blob: `Docker-Content-Digest` (newer MUST on answers about a blob)."""
    response = mount(repository, content.digest, source=source)
    assert response.headers["docker-content-digest"] == content.digest


@pytest.mark.newer
def test_anonymous_mount_begins_an_upload_if_absent(repository: Repository) -> None:
    """Newer conformance text: without `from` and without a match it is 202."""
    goes_on_as_upload(repository, mount(repository, blob().digest))


@pytest.mark.entrepot
@pytest.mark.parametrize("with_source", [True, False])
def test_headers_of_a_mount(
    repository: Repository, source: Repository, content: Content, *, with_source: bool
) -> None:
    """Ours: 201 with and without `from`, the blob's path and digest, no body."""
    query = {"source": source} if with_source else {}
    response = mount(repository, content.digest, **query)
    empty(response, 201)
    assert response.headers["location"] == f"/v2/{repository}/blobs/{content.digest}"
    assert response.headers["docker-content-digest"] == content.digest


@pytest.mark.entrepot
def test_mount_of_what_is_here(source: Repository, content: Content) -> None:
    """Ours: without `from` this repository is searched first; with itself as `from` likewise."""
    assert mount(source, content.digest).status_code == 201
    assert mount(source, content.digest, source=source).status_code == 201


@pytest.mark.entrepot
@pytest.mark.parametrize("algorithm", ["sha512", "blake3"])
def test_mount_by_another_digest(
    repository: Repository, source: Repository, algorithm: str
) -> None:
    """Ours: an alias names the same blob; the answer echoes the form asked for."""
    content = source.push_blob(blob(algorithm=algorithm))
    response = mount(repository, content.digest, source=source)
    assert response.status_code == 201
    assert response.headers["docker-content-digest"] == content.digest
    assert repository.get_blob(content.digest).content == content.body
    assert repository.get_blob(Content(content.body).digest).content == content.body
