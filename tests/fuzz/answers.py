"""What every answer must be, whatever was asked: one the document describes, and no failure."""

from __future__ import annotations

import re
from typing import Any, Final, get_args
from uuid import UUID

import httpx
import requests
from schemathesis import Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from cloudcore.error_codes import TABLE
from cloudcore.identity.oauth import forms
from tests.fuzz.cases import AnyCase

_CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
_CODES: Final = set(TABLE.values())
_OAUTH_CODES: Final = {
    *forms.TABLE.values(),
    *((400, code) for code in get_args(forms.OAuthCode)),
}


def check(case: AnyCase, request: requests.PreparedRequest, answer: httpx.Response) -> None:
    """Check the answer to a generated request."""
    found = Response(
        answer.status_code,
        {name: [value] for name, value in answer.headers.items()},
        answer.content,
        request,
        elapsed=0,
        verify=True,
        message=answer.reason_phrase,
        encoding=answer.encoding,
    )
    case.validate_response(found, checks=_CHECKS)
    request_id = answer.headers["X-Request-Id"]
    assert str(UUID(request_id)) == request_id
    if answer.status_code >= 400 and "json" in answer.headers["Content-Type"]:
        _check_error(answer, request_id)


def _check_error(answer: httpx.Response, request_id: str) -> None:
    """Check the one shape of errors, or that of OAuth at its two endpoints (RFC 6749 §5.2)."""
    content: dict[str, Any] = answer.json()
    error = content["error"]
    if isinstance(error, str):
        assert answer.request.url.path.startswith("/v1/oauth/"), content
        assert content.keys() == {"error", "error_description"}
        assert (answer.status_code, error) in _OAUTH_CODES
        assert content["error_description"]
        return
    assert content.keys() == {"error"}
    assert error.keys() - {"params"} == {"code", "message", "request_id"}
    assert (answer.status_code, error["code"]) in _CODES
    assert error["message"]
    assert error["request_id"] == request_id
    if "reason" in error.get("params", {}):
        assert re.fullmatch("[a-z_]+", error["params"]["reason"]), content
