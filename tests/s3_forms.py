"""Forms that upload a file, signed as web sites sign them; written apart from what it checks."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.s3_signing import sign

BOUNDARY: Final = "----WebKitFormBoundaryAbC"
CONTENT_TYPE: Final = f"multipart/form-data; boundary={BOUNDARY}"


def signed_form(
    fields: Mapping[str, str],
    conditions: Sequence[Any],
    *,
    expiration: str,
    key_id: str,
    secret: str,
    date: str,
    scope: str,
    token: str = "",
) -> dict[str, str]:
    """Return the fields of a form with its policy, which has `conditions` and what is signed."""
    own = {
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": f"{key_id}/{scope}",
        "x-amz-date": date,
    }
    if token:
        own["x-amz-security-token"] = token
    document = {
        "expiration": expiration,
        "conditions": [*conditions, *({name: value} for name, value in own.items())],
    }
    policy = b64encode(json.dumps(document).encode()).decode()
    return {**fields, **own, "policy": policy, "x-amz-signature": sign(policy, secret, scope)}


def form_body(
    fields: Mapping[str, str], file: bytes, *, filename: str = "a.txt", after: str = ""
) -> bytes:
    """Return the body that a browser makes of a form; `after` is a field behind the file."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    parts.append(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
        "Content-Type: text/plain\r\n\r\n".encode()
    )
    parts.append(file + b"\r\n")
    if after:
        parts.append(
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{after}"\r\n\r\nx\r\n'.encode()
        )
    return b"".join([*parts, f"--{BOUNDARY}--\r\n".encode()])
