"""§ Error Codes and § Warnings: the form of every refusal."""

from __future__ import annotations

import json
from typing import NamedTuple

import httpx
import pytest

from tests.conformance.client import Repository
from tests.conformance.content import OCI_MANIFEST, blob, config, digest_of, image_manifest
from tests.conformance.expect import STANDARD_CODES, empty, errors_of

ABSENT = "sha256:" + "0" * 64


class Refusal(NamedTuple):
    """A request that is refused, and the code that fits if the answer has one."""

    method: str
    path: str
    codes: set[str]
    body: bytes = b""

    def answer(self, repository: Repository) -> httpx.Response:
        """Send the request to a repository that has a blob."""
        repository.push_blob(blob())
        return repository.http.request(
            self.method,
            f"/v2/{repository}{self.path}",
            content=self.body,
            headers={"content-type": OCI_MANIFEST},
        )


REFUSALS = {
    "blob": Refusal("GET", f"/blobs/{ABSENT}", {"BLOB_UNKNOWN"}),
    "delete-blob": Refusal("DELETE", f"/blobs/{ABSENT}", {"BLOB_UNKNOWN", "UNSUPPORTED"}),
    "manifest": Refusal("GET", "/manifests/absent", {"MANIFEST_UNKNOWN"}),
    "manifest-digest": Refusal("GET", f"/manifests/{ABSENT}", {"MANIFEST_UNKNOWN"}),
    "upload": Refusal(
        "GET", "/blobs/uploads/7e9a1a1e-3c5d-4c4b-9b55-9e1f6d0f0a11", {"BLOB_UPLOAD_UNKNOWN"}
    ),
    "digest": Refusal(
        "POST",
        f"/blobs/uploads/?digest={digest_of(b'other')}",
        {"DIGEST_INVALID"},
        b"not this",
    ),
    "manifest-body": Refusal("PUT", "/manifests/v1", {"MANIFEST_INVALID"}, b"blablabla"),
    "manifest-wrong-digest": Refusal(
        "PUT",
        f"/manifests/{ABSENT}",
        {"DIGEST_INVALID", "MANIFEST_INVALID"},
        image_manifest(config()).body,
    ),
    "manifest-blob": Refusal(
        "PUT",
        "/manifests/v1",
        {"MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN"},
        image_manifest(config(), [blob()]).body,
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_json_refusal_has_the_standard_form(repository: Repository, name: str) -> None:
    """§ Error Codes: a JSON body MUST be `{errors: [{code, …}]}`, the code MUST be one of 14."""
    refusal = REFUSALS[name]
    response = refusal.answer(repository)
    repository.decline(response, 201, 202, optional=name)
    assert 400 <= response.status_code < 500
    if "json" in response.headers.get("content-type", ""):
        codes = {error["code"] for error in errors_of(response)}
        assert codes <= STANDARD_CODES
        assert codes & refusal.codes


def test_code_of_an_absent_repository(repository: Repository) -> None:
    """§ Error Codes code-9: `NAME_UNKNOWN` (or the manifest's own) when there is JSON."""
    response = repository.get_manifest("latest")
    assert response.status_code == 404
    if "json" in response.headers.get("content-type", ""):
        codes = {error["code"] for error in errors_of(response)}
        assert codes <= {"NAME_UNKNOWN", "MANIFEST_UNKNOWN"}


@pytest.mark.parametrize("path", ["/v2/", "/v2/{name}/tags/list", "/v2/{name}/manifests/absent"])
def test_warnings_have_the_standard_form(repository: Repository, path: str) -> None:
    """§ Warnings: warn-code MUST be 299, warn-agent `-`, no date; at most 4096 bytes in all."""
    repository.push_blob(blob())
    response = repository.http.get(path.format(name=repository))
    warnings = response.headers.get_list("warning")
    assert sum(map(len, warnings)) <= 4096
    for warning in warnings:
        code, agent, text = warning.split(" ", 2)
        assert (code, agent) == ("299", "-")
        assert isinstance(json.loads(text), str)


HEADED = {
    "unknown-blob": f"/blobs/{ABSENT}",
    "unknown-tag": "/manifests/latest",
    "malformed-digest": "/blobs/nonsense",
}


@pytest.mark.entrepot
@pytest.mark.parametrize("path", HEADED.values(), ids=HEADED)
@pytest.mark.parametrize("exists", [True, False])
def test_head_of_a_refusal_equals_get_without_body(
    repository: Repository, path: str, *, exists: bool
) -> None:
    """Ours after RFC 9110 §9.3.2: HEAD has GET's status and headers, and no body."""
    if exists:
        repository.push_blob(blob())
    get = repository.http.get(f"/v2/{repository}{path}")
    head = repository.http.head(f"/v2/{repository}{path}")
    assert get.status_code in {400, 404}
    empty(head, get.status_code)
    own = {"x-request-id", "date"}
    assert {name: value for name, value in head.headers.items() if name not in own} == {
        name: value for name, value in get.headers.items() if name not in own
    }
