"""Sign requests as S3 clients do, for tests; written apart from what it checks."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from hashlib import sha256
from urllib.parse import quote, unquote_to_bytes

from cloudcore.storage.s3.signature import SignedRequest

KEY_ID = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
REGION = "us-east-1"
DATE = "20130524T000000Z"
SCOPE = f"20130524/{REGION}/s3/aws4_request"
EMPTY = sha256().hexdigest()


def day_key(secret: str = SECRET, scope: str = SCOPE) -> bytes:
    """Return the key of a secret for a scope."""
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), sha256).digest()
    return key


def sign(text: str, secret: str = SECRET, scope: str = SCOPE) -> str:
    """Return the signature of a text."""
    return hmac.new(day_key(secret, scope), text.encode(), sha256).hexdigest()


def signed(
    method: str,
    target: str,
    *headers: tuple[str, str],
    payload: str = EMPTY,
    date: str = DATE,
    scope: str = SCOPE,
    key_id: str = KEY_ID,
    secret: str = SECRET,
    unsigned: Sequence[str] = (),
    dated: tuple[str, str] | None = None,
) -> SignedRequest:
    """Return a request with an ``Authorization`` header; `headers` come after the usual ones.

    `dated` is the header that has the time, in place of ``x-amz-date``.
    """
    path, _, query = target.partition("?")
    all_headers = [
        ("host", "s3.example"),
        ("x-amz-content-sha256", payload),
        dated or ("x-amz-date", date),
        *headers,
    ]
    names = sorted({name for name, _ in all_headers if name not in unsigned})
    signature = sign(
        _text(method, path, query, all_headers, names, payload, date, scope), secret, scope
    )
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature}"
    )
    return _request(method, path, query, [*all_headers, ("authorization", authorization)])


def presigned(
    method: str,
    target: str,
    *headers: tuple[str, str],
    date: str = DATE,
    scope: str = SCOPE,
    key_id: str = KEY_ID,
    secret: str = SECRET,
    expires: str = "86400",
    more: str = "",
) -> SignedRequest:
    """Return a request with a signature in its query."""
    path, _, query = target.partition("?")
    all_headers = [("host", "s3.example"), *headers]
    names = sorted({name for name, _ in all_headers})
    fields = [
        *([query] if query else []),
        "X-Amz-Algorithm=AWS4-HMAC-SHA256",
        f"X-Amz-Credential={quote(f'{key_id}/{scope}', '')}",
        f"X-Amz-Date={date}",
        f"X-Amz-Expires={expires}",
        f"X-Amz-SignedHeaders={quote(';'.join(names), '')}",
        *([more] if more else []),
    ]
    query = "&".join(fields)
    text = _text(method, path, query, all_headers, names, "UNSIGNED-PAYLOAD", date, scope)
    query += f"&X-Amz-Signature={sign(text, secret, scope)}"
    return _request(method, path, query, all_headers)


def with_header(request: SignedRequest, name: str, value: str | None) -> SignedRequest:
    """Return the request with a header replaced or added, or without it."""
    rest = [each for each in request.headers if each[0] != name.encode()]
    if value is not None:
        rest.append((name.encode(), value.encode("latin-1")))
    return request._replace(headers=rest)


def _request(
    method: str, path: str, query: str, headers: Sequence[tuple[str, str]]
) -> SignedRequest:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return SignedRequest(method, path.encode(), query.encode(), raw)


def _text(
    method: str,
    path: str,
    query: str,
    headers: Sequence[tuple[str, str]],
    names: Sequence[str],
    payload: str,
    date: str,
    scope: str,
) -> str:
    pairs = sorted(
        tuple(quote(unquote_to_bytes(each), "") for each in field.partition("=")[::2])
        for field in query.split("&")
        if field
    )
    lines = "".join(
        f"{name}:{','.join(' '.join(v.split()) for n, v in headers if n == name)}\n"
        for name in names
    )
    canonical = "\n".join(
        (
            method,
            quote(unquote_to_bytes(path), "/"),
            "&".join(f"{name}={value}" for name, value in pairs),
            lines,
            ";".join(names),
            payload,
        )
    )
    return f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"


def framed(
    chunks: Sequence[bytes],
    seed: str | None,
    trailers: Mapping[str, str] | None = None,
    *,
    secret: str = SECRET,
    date: str = DATE,
    scope: str = SCOPE,
) -> bytes:
    """Return chunks in the framing of ``aws-chunked``; signed, with a seed."""
    body = b""
    for chunk in (*chunks, b""):
        signature = ""
        if seed is not None:
            hashed = sha256(chunk).hexdigest()
            text = f"AWS4-HMAC-SHA256-PAYLOAD\n{date}\n{scope}\n{seed}\n{EMPTY}\n{hashed}"
            seed = sign(text, secret, scope)
            signature = f";chunk-signature={seed}"
        body += f"{len(chunk):x}{signature}\r\n".encode() + chunk + (b"\r\n" if chunk else b"")
    lines = "".join(f"{name}:{value}\n" for name, value in (trailers or {}).items())
    body += lines.replace("\n", "\r\n").encode()
    if seed is not None and trailers:
        hashed = sha256(lines.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256-TRAILER\n{date}\n{scope}\n{seed}\n{hashed}"
        body += f"x-amz-trailer-signature:{sign(text, secret, scope)}\r\n".encode()
    return body + b"\r\n"
