"""What can go wrong in the platform, as one tree.

    PlatformError
    ├── InvalidInput            a value the caller sent cannot be accepted
    ├── Unauthenticated         who is asking is not known
    ├── AccessDenied            known, and not allowed (QuotaExceeded: no more than so much)
    ├── NotFound                no such thing, or none the caller may know of
    ├── Conflict                the state of things forbids it now
    ├── PreconditionFailed      the request's own condition does not hold
    ├── PayloadTooLarge         more bytes than the operation takes
    ├── UnsupportedMediaType    the body is of a type the operation does not read
    ├── MethodNotAllowed        the resource exists; this verb is not for it
    ├── IdempotencyKeyReused    the key was used for another request
    ├── RateLimited             too many requests in this window
    └── Unavailable             our side cannot do it now; trying again later may work

A class says *what happened*. It knows no status, no error code and no wire format: each plane
turns classes into answers by a table (`cloudcore.web.envelope` for ``/v1``).
"""

from __future__ import annotations

from typing import Any


class PlatformError(Exception):
    """Base of every error that is an answer, not a bug.

    `params` are non-sensitive details a client may show or act on.
    """

    def __init__(self, message: str, **params: Any) -> None:  # noqa: ANN401 - JSON values
        super().__init__(message)
        self.message = message
        self.params = params


class InvalidInput(PlatformError):
    """A value the caller sent cannot be accepted."""


class Unauthenticated(PlatformError):
    """Who is asking is not known."""


class AccessDenied(PlatformError):
    """The caller is known, and not allowed."""


class QuotaExceeded(AccessDenied):
    """The account may have no more of this."""


class NotFound(PlatformError):
    """There is no such thing, or none the caller may know of."""


class Conflict(PlatformError):
    """The present state of things forbids the operation."""


class PreconditionFailed(PlatformError):
    """What the request's ``If-Match`` or ``If-None-Match`` asks for does not hold."""


class PayloadTooLarge(PlatformError):
    """The body holds more bytes than the operation takes."""


class UnsupportedMediaType(PlatformError):
    """The body is of a type the operation does not read."""


class MethodNotAllowed(PlatformError):
    """The resource exists, but this verb is not for it."""

    def __init__(self, message: str, *, allow: str, **params: Any) -> None:  # noqa: ANN401
        super().__init__(message, **params)
        self.allow = allow


class IdempotencyKeyReused(PlatformError):
    """The `Idempotency-Key` came before, with another request."""


class RateLimited(PlatformError):
    """The window is exhausted; it opens again in `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(PlatformError):
    """Our side cannot do it now; trying again after `retry_after` seconds may work."""

    def __init__(self, message: str, *, retry_after: int = 30) -> None:
        super().__init__(message)
        self.retry_after = retry_after
