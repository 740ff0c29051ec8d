"""Forged S3 requests, each of which some server accepted; none may be accepted here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cloudcore.storage.s3.signature import SignedRequest
from tests import s3_signing
from tests.s3_signing import DATE, EMPTY, KEY_ID, REGION, SECRET, with_header

_FORM: Final = "%Y%m%dT%H%M%SZ"


def negatives(
    *, key_id: str = KEY_ID, secret: str = SECRET, date: str = DATE, region: str = REGION
) -> dict[str, SignedRequest]:
    """Return the requests, signed with a key at a date in a region; they put an object."""
    day = date[:8]
    scope = f"{day}/{region}/s3/aws4_request"
    own: dict[str, Any] = {"key_id": key_id, "secret": secret, "date": date, "scope": scope}
    now = datetime.strptime(date, _FORM).replace(tzinfo=UTC)

    def signed(method: str, target: str, *headers: tuple[str, str], **more: Any) -> SignedRequest:  # noqa: ANN401
        return s3_signing.signed(method, target, *headers, **{**own, **more})

    def at(minutes: int) -> dict[str, str]:
        moved = (now + timedelta(minutes=minutes)).strftime(_FORM)
        return {"date": moved, "scope": f"{moved[:8]}/{region}/s3/aws4_request"}

    put = signed("PUT", "/bucket/key", ("content-type", "text/plain"), payload="UNSIGNED-PAYLOAD")
    sent = {name: value.decode() for name, value in put.headers}
    authorization = sent[b"authorization"]

    def presigned(method: str, target: str, *headers: tuple[str, str]) -> SignedRequest:
        return s3_signing.presigned(method, target, *headers, **own)

    url = presigned("PUT", "/bucket/key")
    query = url.query.decode()

    def with_authorization(value: str) -> SignedRequest:
        return with_header(put, "authorization", value)

    def with_query(value: str) -> SignedRequest:
        return url._replace(query=value.encode())

    without_signature = query.rpartition("&X-Amz-Signature=")[0]
    yesterday = (now - timedelta(days=1)).strftime(_FORM)
    return {
        "no signature at all": with_header(put, "authorization", None),
        "empty authorization": with_authorization(""),
        "version 2": with_authorization(f"AWS {key_id}:frJIUN8DYpKDtOLCwo//yllqDzg="),
        "bearer": with_authorization("Bearer abc"),
        "basic": with_authorization("Basic YTpi"),
        "version 4a": with_authorization(
            authorization.replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256")
        ),
        "no signature part": with_authorization(authorization.partition(", Signature")[0]),
        "empty signature": with_authorization(authorization[:-64]),
        "signature of zeros": with_authorization(authorization[:-64] + "0" * 64),
        "signature in capitals": with_authorization(
            authorization[:-64] + authorization[-64:].upper()
        ),
        "signature cut": with_authorization(authorization[:-1]),
        "signature longer": with_authorization(authorization + "0"),
        "two signatures": with_authorization(authorization + ", Signature=" + "0" * 64),
        "two authorizations": put._replace(
            headers=[*put.headers, (b"authorization", authorization.encode())]
        ),
        "no credential": with_authorization(
            authorization.replace(f"Credential={key_id}/{scope}, ", "")
        ),
        "no signed headers": with_authorization(
            authorization.replace(
                "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date, ", ""
            )
        ),
        "host unsigned": signed("PUT", "/bucket/key", unsigned=("host",)),
        "date unsigned": signed("PUT", "/bucket/key", unsigned=("x-amz-date",)),
        "payload hash unsigned": signed("PUT", "/bucket/key", unsigned=("x-amz-content-sha256",)),
        "signed header missing": with_header(put, "content-type", None),
        "signed header changed": with_header(put, "content-type", "text/html"),
        "signed header doubled": put._replace(
            headers=[*put.headers, (b"content-type", b"text/html")]
        ),
        "metadata added": with_header(put, "x-amz-meta-a", "b"),
        "acl added": with_header(put, "x-amz-acl", "public-read"),
        "encryption added": with_header(put, "x-amz-server-side-encryption", "aws:kms"),
        "copy source added": with_header(put, "x-amz-copy-source", "/other/key"),
        "token added": with_header(put, "x-amz-security-token", "t"),
        "trailer added": with_header(put, "x-amz-trailer", "x-amz-checksum-crc32"),
        "decoded length added": with_header(put, "x-amz-decoded-content-length", "1"),
        "payload hash changed": with_header(put, "x-amz-content-sha256", EMPTY),
        "payload hash made chunked": with_header(
            put, "x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        ),
        "payload hash missing": with_header(put, "x-amz-content-sha256", None),
        "payload hash unknown": signed("PUT", "/bucket/key", payload="STREAMING-WHATEVER"),
        "payload hash in capitals": signed("PUT", "/bucket/key", payload=EMPTY.upper()),
        "payload hash twice": put._replace(
            headers=[*put.headers, (b"x-amz-content-sha256", b"UNSIGNED-PAYLOAD")]
        ),
        "date twice": put._replace(headers=[*put.headers, (b"x-amz-date", date.encode())]),
        "date missing": with_header(put, "x-amz-date", None),
        "date malformed": signed("PUT", "/bucket/key", date=date[:-1]),
        "date impossible": signed("PUT", "/bucket/key", date=f"{day}T250000Z"),
        "date of another day than the scope": signed("PUT", "/bucket/key", date=yesterday),
        "clock 16 minutes behind": signed("PUT", "/bucket/key", **at(-16)),
        "clock 16 minutes ahead": signed("PUT", "/bucket/key", **at(16)),
        "region": signed("PUT", "/bucket/key", scope=f"{day}/eu-west-1/s3/aws4_request"),
        "service": signed("PUT", "/bucket/key", scope=f"{day}/{region}/iam/aws4_request"),
        "end of scope": signed("PUT", "/bucket/key", scope=f"{day}/{region}/s3/aws5_request"),
        "another secret": signed("PUT", "/bucket/key", secret="x"),
        "method": put._replace(method="DELETE"),
        "bucket": put._replace(raw_path=b"/bucket2/key"),
        "key": put._replace(raw_path=b"/bucket/key2"),
        "query added": put._replace(query=b"tagging"),
        "both mechanisms": put._replace(query=url.query),
        "query: credential without signature": with_query(without_signature),
        "query: credential alone": with_query(
            f"X-Amz-Credential={key_id}%2F{scope.replace('/', '%2F')}"
        ),
        "query: signature alone": with_query(f"X-Amz-Signature={'0' * 64}"),
        "query: algorithm alone": with_query("X-Amz-Algorithm=AWS4-HMAC-SHA256"),
        "query: empty signature": with_query(without_signature + "&X-Amz-Signature="),
        "query: signature twice": with_query(query + "&X-Amz-Signature=" + "0" * 64),
        "query: longer validity": with_query(query.replace("86400", "86401")),
        "query: field added": with_query(query + "&tagging="),
        "query: signature in small letters": with_query(query.replace("Signature=", "signature=")),
        "query: method": url._replace(method="GET"),
        "query: header added": with_header(url, "x-amz-meta-a", "b"),
        "query: chunked without a signature of its header": with_header(
            url, "x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        ),
        "query: chunked": presigned(
            "PUT", "/bucket/key", ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
        ),
        "query: token in a header": presigned(
            "PUT", "/bucket/key", ("x-amz-security-token", "t")
        ),
        "query: token added": with_query(query + "&X-Amz-Security-Token=t"),
    }  # fmt: skip
