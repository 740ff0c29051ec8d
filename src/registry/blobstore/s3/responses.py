"""Responses of an S3: errors as exceptions; a circuit breaker for a server that does not respond.

A load balancer in front of S3, or a wrong server, may respond: 404 for every key, or 200 with an
HTML page. Neither may be taken for an absent object, an empty bucket or a stored part.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from registry.errors import StoreUnavailable

_FAILURES: Final = 5
"""Consecutive calls without a response after which the circuit opens."""
_PAUSE_SECONDS: Final = 2.0


class Circuit:
    """A circuit breaker: it opens after five consecutive calls without a response.

    Then one call is let through every two seconds, and all others fail at once, until a call gets a
    response.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._next_at = 0.0

    def check(self) -> None:
        """Raise `StoreUnavailable` if the circuit is open and lets no call through now."""
        with self._lock:
            if self._failures < _FAILURES:
                return
            now = time.monotonic()
            if now < self._next_at:
                raise StoreUnavailable("the blob store does not answer; it is asked again soon")
            self._next_at = now + _PAUSE_SECONDS

    def answered(self) -> None:
        """Record that the server has responded, even with an error."""
        if self._failures:
            with self._lock:
                self._failures = 0

    def failed(self) -> None:
        """Record that the server did not respond."""
        with self._lock:
            self._failures += 1
            self._next_at = time.monotonic() + _PAUSE_SECONDS


MISSING: Final = frozenset({"NoSuchKey", "NoSuchUpload", "NotFound"})
"""S3's error codes for an absent key or upload; for an absent bucket the code is another."""
_UNNAMED: Final = "404"
"""The error code that botocore uses for a 404 without an S3 error document."""
_EXISTS: Final = frozenset({"412", "PreconditionFailed", "ConditionalRequestConflict"})
_OUTSIDE: Final = frozenset({"416", "InvalidRange"})
_DOCUMENTS: Final = {
    "ListObjectsV2": "ListBucketResult",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "CompleteMultipartUpload": "CompleteMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
}
"""The root element of the document in each call's response."""
_BEGINNING: Final = 1024
"""The document's root element begins within this many bytes."""
_NO_CREDENTIALS: Final = (
    "no credentials for the bucket of the blob store to %s (%s): set AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY for this process, or give it a profile or a role"
    " (docs/how-to/s3-store.md)"
)
"""For the operator's log; clients get less detail."""
_GOOD: Final = 300
"""From this status on, a response is not a success."""

_log = logging.getLogger(__name__)


class KeyMissing(Exception):
    """The bucket has no such key, or no such multipart upload."""


class KeyExists(Exception):
    """The bucket already has an object with this key, or the object has another ETag."""


class OutsideObject(Exception):
    """A range begins after the end of an object."""


class StoreRefused(StoreUnavailable):
    """The store refused the call; `code` is S3's error code."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the blob store refuses ({code})")
        self.code = code


class NoDocumentOfS3(ValueError):
    """A successful response lacks the XML document of its call, or has another one."""


class HeadNotFound(StoreRefused):
    """A 404 to ``HEAD``: it has no body, so it may mean a missing key or a missing bucket."""


@contextmanager
def answered(what: str, circuit: Circuit) -> Iterator[None]:
    """Translate errors of boto3 in the block to errors of this module, or `StoreUnavailable`.

    `what` is the name of the call. The block also reads the response; a missing field counts as an
    error too. `circuit` records whether the server responds.
    """
    from botocore.exceptions import (  # noqa: PLC0415 - optional
        BotoCoreError,
        ClientError,
        CredentialRetrievalError,
        NoCredentialsError,
        PartialCredentialsError,
    )
    from botocore.parsers import ResponseParserError  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    try:
        yield
    except ClientError as error:
        circuit.answered()
        code = str(error.response.get("Error", {}).get("Code") or "without a code")
        for words, found in (
            (MISSING, KeyMissing),
            (_EXISTS, KeyExists),
            (_OUTSIDE, OutsideObject),
        ):
            if code in words:
                raise found(what) from error
        if code == _UNNAMED and what == "HeadObject":
            raise HeadNotFound(code) from error
        _log.error("the blob store refuses %s: %s", what, code)
        raise StoreRefused(code) from error
    except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as error:
        circuit.failed()  # looking for credentials on the network takes seconds
        _log.error(_NO_CREDENTIALS, what, error)
        raise StoreUnavailable("the blob store has no credentials") from error
    except (BotoCoreError, HTTPError, OSError) as error:
        circuit.failed()
        why = type(error).__name__
        _log.error("the blob store does not answer to %s: %s", what, why)
        raise StoreUnavailable(f"the blob store does not answer ({why})") from error
    except (ResponseParserError, ValueError, LookupError, TypeError, AttributeError) as error:
        circuit.answered()  # botocore raises these for an answer that it does not expect
        why = type(error).__name__
        _log.error("what answers to %s is no S3: %s", what, why)
        raise StoreUnavailable(f"what answers is no S3 ({why})") from error
    else:
        circuit.answered()


def check_document(*, operation_model: Any, response_dict: Mapping[str, Any], **_: object) -> None:  # noqa: ANN401 - botocore's
    """Raise `NoDocumentOfS3` if a successful response is not the document of its call.

    botocore calls this before it parses a response. Without this check, botocore would take any
    other document, or none, for an empty list.
    """
    root = _DOCUMENTS.get(operation_model.name)
    if root is None or response_dict["status_code"] >= _GOOD:
        return
    beginning = bytes(response_dict["body"]).lstrip()[:_BEGINNING]  # S3 sends spaces while it works
    if re.search(rf"<(?:\w+:)?{root}[\s/>]".encode(), beginning) is None:
        raise NoDocumentOfS3(root)
