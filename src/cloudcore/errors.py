"""The error classes of the platform, as one tree.

    PlatformError
    ├── InvalidInput            a value of the request is invalid (RangeNotSatisfiable: its range
    │                           has no byte of the content)
    ├── Unauthenticated         the caller is not authenticated
    ├── AccessDenied            the caller is not allowed (QuotaExceeded: a limit is reached)
    ├── NotFound                the resource does not exist or is not visible to the caller
    ├── Conflict                the current state does not permit the operation (PaymentDeclined: by
    │                           the processor; InvoicePaymentAttemptsExhausted: too often)
    ├── PreconditionFailed      a condition of the request does not hold
    ├── PayloadTooLarge         the body is larger than the operation accepts
    ├── UnsupportedMediaType    the operation does not accept the body's type
    ├── MethodNotAllowed        the resource does not support this method
    ├── IdempotencyKeyReused    the key was used with another request
    ├── EmailRateExceeded       an identity sends more messages per second than it may
    ├── RateLimited             too many requests in this window (KeyBeingMade: one slow key at a
    │                           time; TooManyAttempts: at passwords and codes;
    │                           TooManyConfirmations: too many requests to confirm were sent)
    └── Unavailable             the service cannot do it now; a later retry may work

A class means *what happened*. It has no status, error code or wire format: each plane maps classes
to responses in a table (`cloudcore.error_codes` for ``/v1``).
"""

from __future__ import annotations

from typing import Any


class PlatformError(Exception):
    """Base of the errors that are responses, not bugs.

    `params` are non-sensitive details for the client.
    """

    def __init__(self, message: str, **params: Any) -> None:  # noqa: ANN401 - JSON values
        super().__init__(message)
        self.message = message
        self.params = params


class InvalidInput(PlatformError):
    """A value of the request is invalid."""


def invalid_field(field: str, words: str, reason: str = "malformed") -> InvalidInput:
    """Return the error for an invalid field of a request, with the message ``<field>: <words>``."""
    return InvalidInput(f"{field}: {words}", field=field, reason=reason)


class Unauthenticated(PlatformError):
    """The caller is not authenticated."""


class AccessDenied(PlatformError):
    """The caller is authenticated but not allowed."""


class QuotaExceeded(AccessDenied):
    """A quota is reached."""


class NotFound(PlatformError):
    """The resource does not exist or is not visible to the caller."""


class Conflict(PlatformError):
    """The current state does not permit the operation."""


class PaymentDeclined(Conflict):
    """The payment processor declined a payment; no money was moved."""


class InvoicePaymentAttemptsExhausted(Conflict):
    """The payments of an invoice were declined too often; waiting does not help."""


class PreconditionFailed(PlatformError):
    """The condition of ``If-Match`` or ``If-None-Match`` does not hold."""


class PayloadTooLarge(PlatformError):
    """The body is larger than the operation accepts."""


class RangeNotSatisfiable(InvalidInput):
    """The ``Range`` has no byte of the content, which has `size` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the range lies outside the {size} bytes of the content", size=size)
        self.size = size


class UnsupportedMediaType(PlatformError):
    """The operation does not accept the body's type."""


class MethodNotAllowed(PlatformError):
    """The resource does not support this method; `allow` lists those that it supports."""

    def __init__(self, message: str, *, allow: str, **params: Any) -> None:  # noqa: ANN401
        super().__init__(message, **params)
        self.allow = allow


class IdempotencyKeyReused(PlatformError):
    """The ``Idempotency-Key`` was used with another request."""


class EmailRateExceeded(PlatformError):
    """An identity has reached its limit of messages per second; no header says when to retry."""


class RateLimited(PlatformError):
    """The rate limit is exhausted; the window ends in `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class KeyBeingMade(RateLimited):
    """The account is already generating a slow key, such as RSA; only one is made at a time."""


class TooManyAttempts(RateLimited):
    """Too many attempts at a password or a code, or to sign in."""


class TooManyConfirmations(RateLimited):
    """Too many confirmation requests were sent to an endpoint, or for an account."""


class Unavailable(PlatformError):
    """The service cannot do it now; a retry after `retry_after` seconds may work."""

    def __init__(self, message: str, *, retry_after: int = 30) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OutOfMemory(Unavailable):
    """The process has too little memory for a request now: too many large ones run at once."""

    def __init__(self) -> None:
        super().__init__("the server has too little memory for this now; try again")
