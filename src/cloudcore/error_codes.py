"""The status and code of each error class on ``/v1``; a class without a row uses its base class's.

A failed item of a batch carries the code of its error too.
"""

from __future__ import annotations

from typing import Final

from cloudcore import errors

TABLE: Final[dict[type[errors.PlatformError], tuple[int, str]]] = {
    errors.PlatformError: (500, "INTERNAL_ERROR"),
    errors.InvalidInput: (400, "INVALID_INPUT"),
    errors.Unauthenticated: (401, "UNAUTHORIZED"),
    errors.AccessDenied: (403, "ACCESS_DENIED"),
    errors.QuotaExceeded: (403, "QUOTA_EXCEEDED"),
    errors.NotFound: (404, "NOT_FOUND"),
    errors.Conflict: (409, "CONFLICT"),
    errors.PreconditionFailed: (412, "PRECONDITION_FAILED"),
    errors.PayloadTooLarge: (413, "PAYLOAD_TOO_LARGE"),
    errors.RangeNotSatisfiable: (416, "RANGE_NOT_SATISFIABLE"),
    errors.UnsupportedMediaType: (415, "UNSUPPORTED_MEDIA_TYPE"),
    errors.MethodNotAllowed: (405, "METHOD_NOT_ALLOWED"),
    errors.IdempotencyKeyReused: (422, "IDEMPOTENCY_KEY_REUSED"),
    errors.PaymentDeclined: (402, "PAYMENT_DECLINED"),
    errors.InvoicePaymentAttemptsExhausted: (429, "INVOICE_PAYMENT_ATTEMPTS_EXHAUSTED"),
    errors.EmailRateExceeded: (429, "EMAIL_RATE_LIMIT"),
    errors.RateLimited: (429, "RATE_LIMITED"),
    errors.KeyBeingMade: (429, "KEY_BEING_MADE"),
    errors.TooManyAttempts: (429, "TOO_MANY_ATTEMPTS"),
    errors.TooManyConfirmations: (429, "TOO_MANY_CONFIRMATIONS"),
    errors.Unavailable: (503, "SERVICE_UNAVAILABLE"),
}


def status_and_code(error: type[errors.PlatformError]) -> tuple[int, str]:
    """Return the (status, code) of an error class, or of its nearest base class in the table."""
    return next(TABLE[base] for base in error.__mro__ if base in TABLE)
