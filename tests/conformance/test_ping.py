"""end-1 and what holds on every answer."""

from __future__ import annotations

import uuid

import pytest

from tests.conformance.client import Registry, Repository
from tests.conformance.expect import refused


def test_ping_answers_200(registry: Registry) -> None:
    """§ Determining Support (end-1): 200 tells that the registry implements the specification."""
    assert registry.http.get("/v2/").status_code == 200


@pytest.mark.entrepot
def test_ping_without_trailing_slash_is_the_same(registry: Registry) -> None:
    """Ours: `/v2` is `/v2/`, an empty JSON object."""
    for path in ("/v2", "/v2/"):
        response = registry.http.get(path, follow_redirects=False)
        assert response.status_code == 200
        assert response.json() == {}
        assert response.headers["content-type"] == "application/json"


@pytest.mark.entrepot
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v2/", {"GET", "HEAD"}),
        ("PUT", "/v2/{name}/tags/list", {"GET", "HEAD"}),
        ("POST", "/v2/{name}/manifests/latest", {"GET", "HEAD", "PUT", "DELETE"}),
        ("PUT", "/v2/{name}/blobs/{digest}", {"GET", "HEAD", "DELETE"}),
        ("DELETE", "/v2/{name}/referrers/{digest}", {"GET", "HEAD"}),
        ("PUT", "/v2/{name}/blobs/uploads/", {"POST"}),
        ("GET", "/v2/{name}/blobs/uploads/", {"POST"}),
        ("POST", "/v2/{name}/blobs/uploads/{id}", {"GET", "HEAD", "PATCH", "PUT", "DELETE"}),
        ("DELETE", "/v2/_catalog", {"GET", "HEAD"}),
    ],
)
def test_unknown_method_is_405_with_allow(
    repository: Repository, method: str, path: str, allowed: set[str]
) -> None:
    """Ours after RFC 9110 §15.5.6: 405 `UNSUPPORTED` and the methods that would do."""
    url = path.format(name=repository, digest="sha256:" + "0" * 64, id="some-id")
    response = repository.http.request(method, url)
    refused(response, 405, "UNSUPPORTED")
    assert {method.strip() for method in response.headers["allow"].split(",")} == allowed


@pytest.mark.entrepot
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/", 200),
        ("POST", "/v2/{name}/blobs/uploads/", 202),
        ("PUT", "/v2/{name}/manifests/latest", 400),
        ("DELETE", "/v2/{name}/manifests/latest", 404),
        ("PATCH", "/v2/", 405),
    ],
)
def test_every_answer_names_the_api_and_the_request(
    repository: Repository, method: str, path: str, status: int
) -> None:
    """Ours: `Docker-Distribution-Api-Version` and an `X-Request-Id` on every answer."""
    answers = [repository.http.request(method, path.format(name=repository)) for _ in range(2)]
    for answer in answers:
        assert answer.status_code == status, answer.text
        assert answer.headers["docker-distribution-api-version"] == "registry/2.0"
    first, second = (uuid.UUID(answer.headers["x-request-id"]) for answer in answers)
    assert first != second


@pytest.mark.entrepot
@pytest.mark.parametrize("path", ["/v2/_oci/ext/discover", "/v2/_anything"])
def test_extensions_are_unsupported(registry: Registry, path: str) -> None:
    """Ours: there is no extension; `/v2/_…` is 404 `UNSUPPORTED`."""
    refused(registry.http.get(path), 404, "UNSUPPORTED")


@pytest.mark.entrepot
def test_client_may_not_choose_the_request_id(registry: Registry) -> None:
    """Ours: the id is made by the server, so that logs cannot be forged."""
    response = registry.http.get("/v2/", headers={"x-request-id": "mine"})
    assert response.headers["x-request-id"] != "mine"
