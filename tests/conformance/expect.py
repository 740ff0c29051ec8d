"""What an answer must look like, said once."""

from __future__ import annotations

import re
from typing import Any

import httpx

STANDARD_CODES = frozenset(
    {
        "BLOB_UNKNOWN",
        "BLOB_UPLOAD_INVALID",
        "BLOB_UPLOAD_UNKNOWN",
        "DIGEST_INVALID",
        "MANIFEST_BLOB_UNKNOWN",
        "MANIFEST_INVALID",
        "MANIFEST_UNKNOWN",
        "NAME_INVALID",
        "NAME_UNKNOWN",
        "SIZE_INVALID",
        "UNAUTHORIZED",
        "DENIED",
        "UNSUPPORTED",
        "TOOMANYREQUESTS",
    }
)
"""code-1 … code-14 of the specification."""

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def errors_of(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the errors in the body of `response`, after a look at their form (§ Error Codes)."""
    document = response.json()
    assert isinstance(document["errors"], list), document
    assert document["errors"], document
    for error in document["errors"]:
        assert re.fullmatch("[A-Z_]+", error["code"]), error
        assert isinstance(error.get("message", ""), str), error
    return list(document["errors"])


def codes_of(response: httpx.Response) -> set[str]:
    """Return the error codes in the body of `response`."""
    return {error["code"] for error in errors_of(response)}


def refused(response: httpx.Response, status: int, code: str) -> None:
    """Require Entrepot's refusal: this status, this code, JSON, a message for a person."""
    assert response.status_code == status, (response.status_code, response.text)
    assert response.headers["content-type"].split(";")[0] == "application/json"
    errors = errors_of(response)
    assert {error["code"] for error in errors} == {code}, errors
    assert all(error["message"] for error in errors), errors


def empty(response: httpx.Response, status: int) -> None:
    """Require `status` and no body."""
    assert response.status_code == status, (response.status_code, response.text)
    assert response.content == b""


def pullable(client: httpx.Client, url: str, body: bytes) -> httpx.Response:
    """Require that GET of `url` gives exactly `body`; return the answer."""
    response = client.get(url, headers={"accept": "*/*"})
    assert response.status_code == 200, (url, response.status_code, response.text)
    assert response.content == body
    return response
