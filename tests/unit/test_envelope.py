"""The control plane's envelope around the same tree of errors."""

from __future__ import annotations

import pytest

from cloudcore import error_codes, errors
from cloudcore.web import envelope


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidInput("no"), 400, "INVALID_INPUT"),
        (errors.Unauthenticated("no"), 401, "UNAUTHORIZED"),
        (errors.AccessDenied("no"), 403, "ACCESS_DENIED"),
        (errors.QuotaExceeded("no"), 403, "QUOTA_EXCEEDED"),
        (errors.NotFound("no"), 404, "NOT_FOUND"),
        (errors.MethodNotAllowed("no", allow="GET"), 405, "METHOD_NOT_ALLOWED"),
        (errors.Conflict("no"), 409, "CONFLICT"),
        (errors.PayloadTooLarge("no"), 413, "PAYLOAD_TOO_LARGE"),
        (errors.UnsupportedMediaType("no"), 415, "UNSUPPORTED_MEDIA_TYPE"),
        (errors.IdempotencyKeyReused("no"), 422, "IDEMPOTENCY_KEY_REUSED"),
        (errors.RateLimited("no", retry_after=1), 429, "RATE_LIMITED"),
        (errors.KeyBeingMade("no", retry_after=1), 429, "KEY_BEING_MADE"),
        (errors.TooManyAttempts("no", retry_after=1), 429, "TOO_MANY_ATTEMPTS"),
        (errors.TooManyConfirmations("no", retry_after=1), 429, "TOO_MANY_CONFIRMATIONS"),
        (errors.Unavailable("no"), 503, "SERVICE_UNAVAILABLE"),
    ],
)
def test_each_kind_has_its_status_and_code(
    error: errors.PlatformError, status: int, code: str
) -> None:
    assert envelope.render(error, "an-id") == (
        status,
        {"error": {"code": code, "message": "no", "request_id": "an-id"}},
    )


def test_every_kind_is_in_the_table() -> None:
    kinds = {errors.PlatformError, *errors.PlatformError.__subclasses__()}
    ours = {kind for kind in kinds if kind.__module__ == errors.__name__}
    assert ours <= set(error_codes.TABLE)
    assert {kind.__module__ for kind in error_codes.TABLE} == {errors.__name__}


def test_the_nearest_kind_wins() -> None:
    class TooShort(errors.InvalidInput):
        """A leaf of some family."""

    assert error_codes.status_and_code(TooShort) == (400, "INVALID_INPUT")


def test_parameters_accompany_what_the_caller_can_mend() -> None:
    _, body = envelope.render(errors.InvalidInput("no", field="name", most=3), "an-id")
    assert body["error"]["params"] == {"field": "name", "most": 3}


def test_a_failure_of_ours_says_nothing_but_its_id() -> None:
    status, body = envelope.render(errors.PlatformError("secret", table="users"), "an-id")
    assert status == 500
    assert body["error"]["code"] == "INTERNAL_ERROR"
    assert "secret" not in str(body)
    assert "params" not in body["error"]
