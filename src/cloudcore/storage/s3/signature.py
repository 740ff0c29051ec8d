"""Version 4 signatures: parse the signature of a request, and verify it.

Source: "Authenticating Requests (AWS Signature Version 4)" of the S3 API reference. As in S3, and
unlike other services of AWS, paths are not normalised. The signature must cover the host and every
``x-amz-…`` header; it always covers the whole query.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from cloudcore.storage.s3.errors import S3Error

ALGORITHM: Final = "AWS4-HMAC-SHA256"
UNSIGNED: Final = "UNSIGNED-PAYLOAD"
SIGNED_CHUNKS: Final = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_CHUNKS_TRAILER: Final = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
UNSIGNED_CHUNKS_TRAILER: Final = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
CHUNKED: Final = frozenset((SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER, UNSIGNED_CHUNKS_TRAILER))
MAX_SKEW: Final = timedelta(minutes=15)
MAX_PRESIGNED_SECONDS: Final = 604_800
EMPTY_SHA256: Final = sha256().hexdigest()

_AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256 +Credential=([^,\s]+), *SignedHeaders=([^,\s]+), *Signature=([^,\s]+)"
)
_CREDENTIAL: Final = re.compile(
    r"([A-Za-z0-9_-]{1,128})/([0-9]{8})/([^/]{1,64})/([^/]{1,64})/([^/]{1,64})"
)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
"""Matches a SHA-256 in hex, and a signature, which is an HMAC with SHA-256."""
_DATE: Final = "%Y%m%dT%H%M%SZ"
_DATE_FORM: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_BLANKS: Final = re.compile(rb" +")
_PLAIN: Final = re.compile(rb"[A-Za-z0-9._~-]+")
_UNRESERVED: Final = "-._~"
_QUERY_MARKS: Final = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature")
_FORM_NEEDS: Final = ("x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature")
_QUERY_NEEDS: Final = (*_QUERY_MARKS, "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders")

Headers = Sequence[tuple[bytes, bytes]]
"""Name and value of each header as received, with names in lower case."""


class SignedRequest(NamedTuple):
    """The signed parts of a request, as received."""

    method: str
    raw_path: bytes
    query: bytes
    headers: Headers


class SignatureClaim(NamedTuple):
    """The signature of a request or form and the values to verify it with, all unverified."""

    access_key_id: str
    scope: str
    """``date/region/s3/aws4_request``."""
    timestamp: str
    """``YYYYMMDD'T'HHMMSS'Z'``."""
    signed_headers: tuple[str, ...]
    signature: str
    payload: str
    """The SHA-256 of the body in hex, or `UNSIGNED`, or one of `CHUNKED`."""
    security_token: str | None
    expires: int | None
    """Seconds for which a presigned request is valid; None for other requests."""

    @property
    def signed_at(self) -> datetime:
        """Return the time at which the request was signed."""
        return _time_of(self.timestamp)


class RequestSigningKey(NamedTuple):
    """The signing key for one day and region, and the request's signature."""

    key: bytes
    scope: str
    timestamp: str
    seed: str
    """The signature of the request; the signature of its first chunk covers it."""

    def sign(self, text: str) -> str:
        """Return the signature of `text` in hex."""
        return hmac.digest(self.key, text.encode(), "sha256").hex()


def _time_of(timestamp: str) -> datetime:
    """Parse a timestamp; raise `ValueError` if there is no such time."""
    date, time = timestamp[:8], timestamp[9:15]
    return datetime.fromisoformat(f"{date}T{time}+00:00")


class Regions(NamedTuple):
    """The regions that a signature may name."""

    own: str
    others: frozenset[str] | None = frozenset()
    """Regions that are accepted besides `own`; None accepts every region."""

    def accepts(self, region: str) -> bool:
        """Return True if a signature for this region is accepted."""
        return region == self.own or self.others is None or region in self.others


def read_claim(request: SignedRequest, regions: Regions) -> SignatureClaim:
    """Return the signature claim of a request.

    Raise `S3Error` if the request has no signature, or more than one, or if its signature is
    malformed, or is for another region or service.
    """
    fields = [(_decoded(name), _decoded(value)) for name, value in _fields(request.query)]
    in_query = [name for name, _ in fields if name in _QUERY_MARKS]
    authorizations = [value for name, value in request.headers if name == b"authorization"]
    if authorizations and in_query:
        raise S3Error("InvalidArgument", "Only one auth mechanism is allowed.")
    if len(authorizations) > 1:
        raise S3Error("InvalidArgument", "There is more than one Authorization header.")
    if in_query:
        return _query_claim(request, fields, regions)
    if authorizations:
        return _header_claim(request, authorizations[0], regions)
    raise S3Error("AccessDenied", "The request is not signed.")


def read_form_claim(fields: Mapping[str, str], regions: Regions) -> SignatureClaim:
    """Return the signature claim in a form's fields; the signed text is the form's policy.

    Raise `S3Error` if the form has no policy, or its signature is malformed, of another version, or
    for another region or service.
    """
    if "awsaccesskeyid" in fields or "signature" in fields:
        raise S3Error("InvalidRequest", f"Use {ALGORITHM} to sign forms.")
    if "policy" not in fields:
        raise S3Error("AccessDenied", "The form has no policy, so nobody has signed it.")
    code = "InvalidArgument"
    for name in _FORM_NEEDS:
        if name not in fields:
            raise S3Error(code, f"Bucket POST must contain a field named '{name}'.")
    if fields["x-amz-algorithm"] != ALGORITHM:
        raise S3Error(code, f'x-amz-algorithm only supports "{ALGORITHM}"')
    timestamp = fields["x-amz-date"]
    access_key_id, scope = _read_scope(fields["x-amz-credential"], timestamp, regions, code)
    return SignatureClaim(
        access_key_id,
        scope,
        timestamp,
        (),
        _read_signature(fields["x-amz-signature"], code),
        UNSIGNED,
        fields.get("x-amz-security-token"),
        MAX_PRESIGNED_SECONDS,
    )


def check_time(claim: SignatureClaim, now: datetime) -> None:
    """Check that a request was not signed too long ago, nor too far in the future.

    Raise `S3Error` (RequestTimeTooSkewed, or AccessDenied for a presigned request).
    """
    signed_at = claim.signed_at
    if claim.expires is None:
        if abs(now - signed_at) > MAX_SKEW:
            raise S3Error(
                "RequestTimeTooSkewed",
                "The difference between the request time and the server's time is too large.",
                details={
                    "RequestTime": claim.timestamp,
                    "ServerTime": now.strftime(_DATE),
                    "MaxAllowedSkewMilliseconds": str(int(MAX_SKEW.total_seconds() * 1000)),
                },
            )
        return
    if signed_at - now > MAX_SKEW:
        raise S3Error("AccessDenied", "Request is not yet valid.")
    if now >= signed_at + timedelta(seconds=claim.expires):
        raise S3Error("AccessDenied", "Request has expired.")


def verify(request: SignedRequest, claim: SignatureClaim, secret: str) -> RequestSigningKey:
    """Verify the signature of a request with the secret of its access key; return the signing key.

    Raise `S3Error` (SignatureDoesNotMatch).
    """
    canonical = canonical_request(request, claim.signed_headers, claim.payload)
    return verify_text(string_to_sign(claim.timestamp, claim.scope, canonical), claim, secret)


def verify_text(text: str, claim: SignatureClaim, secret: str) -> RequestSigningKey:
    """Verify the signature of a text, such as a form's policy as sent; return the signing key.

    Raise `S3Error` (SignatureDoesNotMatch).
    """
    date, region, service, _ = claim.scope.split("/")
    key = RequestSigningKey(
        signing_key(secret, date, region, service), claim.scope, claim.timestamp, claim.signature
    )
    expected = key.sign(text).encode()
    if not hmac.compare_digest(expected, claim.signature.encode("utf-8", "replace")):
        raise S3Error(
            "SignatureDoesNotMatch",
            "The request signature does not match the signature you provided. "
            "Check your key and signing method.",
            details={"AWSAccessKeyId": claim.access_key_id},
        )
    return key


def signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Derive the signing key for a day, a region and a service from a secret."""
    key = b"AWS4" + secret.encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def string_to_sign(timestamp: str, scope: str, canonical: bytes) -> str:
    """Return the text to sign for a canonical request."""
    return f"{ALGORITHM}\n{timestamp}\n{scope}\n{sha256(canonical).hexdigest()}"


def canonical_request(request: SignedRequest, signed_headers: Sequence[str], payload: str) -> bytes:
    """Return the canonical form of a request."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in request.headers:
        values.setdefault(name, []).append(_BLANKS.sub(b" ", value.strip(b" \t")))
    lines = [
        name.encode() + b":" + b",".join(values.get(name.encode(), ())) + b"\n"
        for name in signed_headers
    ]
    return b"\n".join(
        (
            request.method.encode(),
            _encoded(request.raw_path, safe="/") or b"/",
            _canonical_query(request.query),
            b"".join(lines),
            ";".join(signed_headers).encode(),
            payload.encode(),
        )
    )


def _canonical_query(query: bytes) -> bytes:
    """Return the query without the signature, with its fields sorted and encoded again.

    Pairs of (name, value) are sorted: ``=`` sorts after ``-``, so sorting the joined fields would
    put ``a-b=`` before ``a=``.
    """
    pairs = sorted((_encoded(name), _encoded(value)) for name, value in _fields(query))
    return b"&".join(b"%s=%s" % pair for pair in pairs if pair[0] != b"X-Amz-Signature")


def _fields(query: bytes) -> list[tuple[bytes, bytes]]:
    return [field.partition(b"=")[::2] for field in query.split(b"&") if field]


def _decoded(encoded: bytes) -> str:
    return (unquote_to_bytes(encoded) if b"%" in encoded else encoded).decode("utf-8", "replace")


def _encoded(received: bytes, *, safe: str = "") -> bytes:
    """Return percent-encoded text, encoded again as in the signed text."""
    if _PLAIN.fullmatch(received):
        return received
    return quote_from_bytes(unquote_to_bytes(received), safe + _UNRESERVED).encode("ascii")


def _header_claim(request: SignedRequest, authorization: bytes, regions: Regions) -> SignatureClaim:
    code = "AuthorizationHeaderMalformed"
    found = _AUTHORIZATION.fullmatch(authorization.decode("latin-1").strip())
    if found is None:
        if not authorization.startswith(ALGORITHM.encode()):
            raise S3Error("InvalidRequest", f"Use {ALGORITHM} to sign requests.")
        raise S3Error(code, "The authorization header is malformed.")
    credential, signed, signature = found.groups()
    timestamp = _only(request, b"x-amz-date") or _read_date(request, signed)
    payload = _only(request, b"x-amz-content-sha256")
    if payload is None:
        raise S3Error("InvalidRequest", "Missing required header: x-amz-content-sha256")
    access_key_id, scope = _read_scope(credential, timestamp, regions, code)
    return SignatureClaim(
        access_key_id,
        scope,
        timestamp,
        _read_signed_headers(request, signed, code),
        _read_signature(signature, code),
        _read_payload(payload),
        _only(request, b"x-amz-security-token"),
        None,
    )


def _read_date(request: SignedRequest, signed: str) -> str:
    """Return the time in a signed ``Date``, in the format of ``x-amz-date``; raise `S3Error`."""
    date = _only(request, b"date") or ""
    if _DATE_FORM.fullmatch(date):
        timestamp = date
    else:
        try:
            timestamp = parsedate_to_datetime(date).astimezone(UTC).strftime(_DATE)
        except (ValueError, OverflowError):
            timestamp = ""
    if not timestamp or "date" not in signed.split(";"):
        raise S3Error(
            "AccessDenied",
            "AWS authentication requires a valid Date or x-amz-date header, which is signed.",
        )
    return timestamp


def _query_claim(
    request: SignedRequest, fields: list[tuple[str, str]], regions: Regions
) -> SignatureClaim:
    code = "AuthorizationQueryParametersError"
    found = {name: value for name, value in fields if name.lower().startswith("x-amz-")}
    names = [name.lower() for name, _ in fields if name.lower().startswith("x-amz-")]
    if len(names) != len(set(names)):
        raise S3Error(code, "A query parameter of the signature is given more than once.")
    if any(name not in found for name in _QUERY_NEEDS):
        raise S3Error(
            code,
            "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, "
            "X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
        )
    if found["X-Amz-Algorithm"] != ALGORITHM:
        raise S3Error(code, f'X-Amz-Algorithm only supports "{ALGORITHM}"')
    timestamp = found["X-Amz-Date"]
    access_key_id, scope = _read_scope(found["X-Amz-Credential"], timestamp, regions, code)
    payload = _only(request, b"x-amz-content-sha256") or found.get("X-Amz-Content-Sha256", UNSIGNED)
    if payload in CHUNKED:
        raise S3Error(code, "The body of a presigned request cannot be signed in chunks.")
    if _only(request, b"x-amz-security-token") is not None:
        raise S3Error(code, "The security token of a presigned request belongs in its query.")
    return SignatureClaim(
        access_key_id,
        scope,
        timestamp,
        _read_signed_headers(request, found["X-Amz-SignedHeaders"], code),
        _read_signature(found["X-Amz-Signature"], code),
        _read_payload(payload),
        found.get("X-Amz-Security-Token"),
        _read_expires(found["X-Amz-Expires"], code),
    )


def _only(request: SignedRequest, name: bytes) -> str | None:
    """Return the value of a header, or None if it is absent; raise `S3Error` if it is repeated."""
    values = [value for each, value in request.headers if each == name]
    if len(values) > 1:
        raise S3Error("InvalidArgument", f"The header {name.decode()} is given more than once.")
    return values[0].decode("latin-1").strip() if values else None


def _read_scope(credential: str, timestamp: str, regions: Regions, code: str) -> tuple[str, str]:
    """Return (access key id, scope) of a credential; raise `S3Error` with `code` if it is wrong."""
    found = _CREDENTIAL.fullmatch(credential)
    if found is None or not credential.isascii():
        raise S3Error(code, "The credential is malformed; expecting id/date/region/s3/aws4_request")
    access_key_id, date, of_region, service, end = found.groups()
    if end != "aws4_request" or service != "s3":
        raise S3Error(code, 'The credential is malformed; its service must be "s3".')
    if not regions.accepts(of_region):
        raise S3Error(
            code,
            f"The region '{of_region}' is wrong; expecting '{regions.own}'",
            details={"Region": regions.own},
            headers={"x-amz-bucket-region": regions.own},
        )
    if not _is_date(timestamp):
        raise S3Error("AccessDenied", "AWS authentication requires a valid x-amz-date.")
    if not timestamp.startswith(date):
        raise S3Error(code, "The date of the credential is not that of the request.")
    return access_key_id, f"{date}/{of_region}/{service}/{end}"


def _is_date(timestamp: str) -> bool:
    if _DATE_FORM.fullmatch(timestamp) is None:
        return False
    try:
        _time_of(timestamp)
    except ValueError:
        return False
    return True


def _read_signed_headers(request: SignedRequest, signed: str, code: str) -> tuple[str, ...]:
    names = tuple(signed.split(";"))
    if list(names) != sorted(set(names)) or signed != signed.lower() or not signed.isascii():
        raise S3Error(code, "The signed headers must be in lower case, sorted, and each once.")
    if "host" not in names:
        raise S3Error(code, "The host must be among the signed headers.")
    present = {name for name, _ in request.headers}
    if any(name.encode() not in present for name in names):
        raise S3Error(code, "A signed header is missing.")
    unsigned = {
        name.decode("latin-1")
        for name in present
        if name.startswith(b"x-amz-") and name.decode("latin-1") not in names
    }
    if unsigned:
        raise S3Error(
            "AccessDenied",
            "There were headers present in the request which were not signed",
            details={"HeadersNotSigned": ", ".join(sorted(unsigned))},
        )
    return names


def _read_signature(signature: str, code: str) -> str:
    if _SHA256.fullmatch(signature) is None:
        raise S3Error(code, "The signature must be 64 hexadecimal digits in lower case.")
    return signature


def _read_payload(payload: str) -> str:
    if payload != UNSIGNED and payload not in CHUNKED and _SHA256.fullmatch(payload) is None:
        raise S3Error(
            "InvalidArgument",
            "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, "
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a "
            "valid sha256 value.",
        )
    return payload


def _read_expires(expires: str, code: str) -> int:
    if not (expires.isascii() and expires.isdigit()) or len(expires) > 6:
        raise S3Error(code, "X-Amz-Expires must be a number of seconds up to 604800.")
    seconds = int(expires)
    if not 1 <= seconds <= MAX_PRESIGNED_SECONDS:
        raise S3Error(code, "X-Amz-Expires must be from 1 to 604800 seconds.")
    return seconds
