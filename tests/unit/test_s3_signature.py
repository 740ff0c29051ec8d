"""Signatures of version 4: AWS's published vectors, and forgeries."""

from __future__ import annotations

import hmac
import random
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

import pytest

from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.signature import (
    Regions,
    SignedRequest,
    canonical_request,
    check_time,
    read_claim,
    signing_key,
    string_to_sign,
    verify,
)
from tests.s3_negatives import negatives
from tests.s3_signing import DATE, EMPTY, KEY_ID, REGION, SECRET, presigned, signed, with_header
from tests.soak import drawing, times

_NOW: Final = datetime(2013, 5, 24, tzinfo=UTC)

# The "aws-sig-v4-test-suite": key AKIDEXAMPLE, 2015-08-30T12:36:00Z, us-east-1, "service".
_HOST: Final = ("host", "example.amazonaws.com")
_AT: Final = ("x-amz-date", "20150830T123600Z")
_UNRESERVED: Final = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SUITE: Final = {
    "get-vanilla": (
        "GET", "/", [],
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "post-vanilla": (
        "POST", "/", [],
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "get-unreserved": (
        "GET", f"/{_UNRESERVED}", [],
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
    ),
    "get-utf8": (
        "GET", "/%E1%88%B4", [],
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
    ),
    "get-space-unnormalized": (
        "GET", "/example%20space/", [],
        "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
    ),
    "get-slashes-unnormalized": (
        "GET", "//example//", [],
        "87cca117541a147f6df867677d98a7d80dff226d2bfca9e4ffa899665623c7e5",
    ),
    "get-relative-unnormalized": (
        "GET", "/example/..", [],
        "eca7ead57bb5aa5c8e28007acd4ff04e1ff9a0ff3b237ec1554a184887ff9282",
    ),
    "get-vanilla-empty-query-key": (
        "GET", "/?Param1=value1", [],
        "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
    ),
    "get-vanilla-query-order-key-case": (
        "GET", "/?Param2=value2&Param1=value1", [],
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "get-vanilla-query-order-encoded": (
        "GET", "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1", [],
        "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
    ),
    "get-header-key-duplicate": (
        "GET", "/",
        [("my-header1", "value2"), ("my-header1", "value2"), ("my-header1", "value1")],
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
    ),
    "get-header-value-trim": (
        "GET", "/", [("my-header1", " value1"), ("my-header2", ' "a   b   c"')],
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    "post-header-value-case": (
        "POST", "/", [("my-header1", "VALUE1")],
        "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
    ),
    "get-vanilla-with-session-token": (
        "GET", "/",
        [(
            "x-amz-security-token",
            "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267",
        )],
        "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
    ),
}  # fmt: skip


def _refused(request: SignedRequest, now: datetime = _NOW, secret: str = SECRET) -> str:
    """Return the code with which a request is refused, or an empty text if it is accepted."""
    try:
        claim = read_claim(request, Regions(REGION))
        check_time(claim, now)
        if claim.access_key_id != KEY_ID:
            return "InvalidAccessKeyId"
        verify(request, claim, secret)
    except S3Error as error:
        return error.code
    return ""


@pytest.mark.parametrize("name", _SUITE)
def test_the_published_suite_of_vectors_is_met(name: str) -> None:
    method, target, more, expected = _SUITE[name]
    path, _, query = target.partition("?")
    headers = [(key.encode(), value.encode()) for key, value in (_HOST, _AT, *more)]
    request = SignedRequest(method, path.encode(), query.encode(), headers)
    names = sorted({key for key, _ in (_HOST, _AT, *more)})
    text = string_to_sign(
        _AT[1], "20150830/us-east-1/service/aws4_request", canonical_request(request, names, EMPTY)
    )
    key = signing_key(
        "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20150830", "us-east-1", "service"
    )
    assert hmac.digest(key, text.encode(), "sha256").hex() == expected


def _s3_example(
    method: str, target: str, payload: str, signature: str, *headers: tuple[str, str]
) -> SignedRequest:
    """Return an example of the S3 API reference, as it is sent."""
    path, _, query = target.partition("?")
    all_headers = [
        ("host", "examplebucket.s3.amazonaws.com"),
        *headers,
        ("x-amz-content-sha256", payload),
        ("x-amz-date", DATE),
    ]
    names = ";".join(sorted(name for name, _ in all_headers))
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20130524/us-east-1/s3/aws4_request,"
        f"SignedHeaders={names},Signature={signature}"
    )
    raw = [(n.encode(), v.encode()) for n, v in (*all_headers, ("authorization", authorization))]
    return SignedRequest(method, path.encode(), query.encode(), raw)


@pytest.mark.parametrize(
    "request_",
    [
        _s3_example(
            "GET",
            "/test.txt",
            EMPTY,
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ("range", "bytes=0-9"),
        ),
        _s3_example(
            "PUT",
            "/test%24file.text",
            sha256(b"Welcome to Amazon S3.").hexdigest(),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ),
        _s3_example(
            "GET",
            "/?lifecycle",
            EMPTY,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        _s3_example(
            "GET",
            "/?max-keys=2&prefix=J",
            EMPTY,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
        SignedRequest(
            "GET",
            b"/test.txt",
            b"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524"
            b"%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400"
            b"&X-Amz-SignedHeaders=host&X-Amz-Signature="
            b"aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
            [(b"host", b"examplebucket.s3.amazonaws.com")],
        ),
    ],
    ids=["get", "put", "lifecycle", "list", "presigned"],
)
def test_the_examples_of_the_s3_reference_are_accepted(request_: SignedRequest) -> None:
    assert _refused(request_) == ""


def test_does_not_normalise_paths() -> None:
    request = signed("GET", "/bucket/a//b/../c/./d")
    assert _refused(request) == ""
    assert _refused(request._replace(raw_path=b"/bucket/a/c/d")) == "SignatureDoesNotMatch"


def test_the_host_is_signed_as_received_with_its_port() -> None:
    request = signed("GET", "/bucket/key")
    assert _refused(with_header(request, "host", "s3.example:9000")) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    "date", ["Fri, 24 May 2013 00:00:00 GMT", "Fri, 24 May 2013 02:00:00 +0200", DATE]
)
def test_a_signed_date_stands_for_that_of_amazon(date: str) -> None:
    request = signed("GET", "/bucket", dated=("date", date))
    claim = read_claim(request, Regions(REGION))
    assert claim.signed_at == _NOW
    verify(request, claim, SECRET)


@pytest.mark.parametrize(
    ("date", "unsigned"),
    [
        ("Fri, 24 May 2013 00:00:00 GMT", ["date"]),
        ("nonsense", []),
        ("", []),
        ("Fri, 99 May 2013 00:00:00 GMT", []),
        ("Thu, 23 May 2013 23:59:59 GMT", []),
        ("20130524T990000Z", []),
    ],
)
def test_a_date_that_is_not_signed_or_none_is_refused(date: str, unsigned: list[str]) -> None:
    with pytest.raises(S3Error):
        read_claim(signed("GET", "/", dated=("date", date), unsigned=unsigned), Regions(REGION))


def test_a_skew_of_more_than_15_minutes_is_refused() -> None:
    request = signed("PUT", "/bucket/key")
    minutes = timedelta(minutes=15)
    assert _refused(request, _NOW + minutes) == ""
    assert _refused(request, _NOW - minutes) == ""
    assert _refused(request, _NOW + minutes + timedelta(seconds=1)) == "RequestTimeTooSkewed"
    assert _refused(request, _NOW - minutes - timedelta(seconds=1)) == "RequestTimeTooSkewed"


def test_a_presigned_request_is_valid_for_its_seconds() -> None:
    request = presigned("GET", "/bucket/key", expires="604800")
    assert _refused(request, _NOW + timedelta(seconds=604_799)) == ""
    assert _refused(request, _NOW + timedelta(seconds=604_800)) == "AccessDenied"
    assert _refused(request, _NOW - timedelta(minutes=16)) == "AccessDenied"
    for expires in ("0", "604801", "-1", "", "1.5", "1e3", "٣"):
        refused = _refused(presigned("GET", "/bucket/key", expires=expires))
        assert refused == "AuthorizationQueryParametersError", expires


def test_a_wrong_region_names_the_right_one() -> None:
    request = signed("GET", "/bucket", scope="20130524/eu-west-1/s3/aws4_request")
    with pytest.raises(S3Error) as caught:
        read_claim(request, Regions(REGION))
    assert caught.value.code == "AuthorizationHeaderMalformed"
    assert caught.value.details["Region"] == REGION


NEGATIVES: Final = negatives()


def test_at_least_50_forgeries_are_tried() -> None:
    assert len(NEGATIVES) >= 50
    assert _refused(signed("PUT", "/bucket/key", payload="UNSIGNED-PAYLOAD")) == ""
    assert _refused(presigned("PUT", "/bucket/key")) == ""


@pytest.mark.parametrize("name", NEGATIVES)
def test_a_forged_request_is_refused(name: str) -> None:
    assert _refused(NEGATIVES[name]) != ""


def test_of_many_mutated_signatures_none_is_accepted() -> None:
    """Mutate the signature, and each thing that it covers; what is equal after decoding is left."""
    chance = drawing(20130524)
    bases = [
        signed(
            "PUT",
            "/bucket/some/key%20x?partNumber=1&uploadId=abc",
            ("content-type", "text/plain"),
            ("x-amz-meta-a", "value"),
        ),
        presigned("GET", "/bucket/some/key?response-content-type=text/plain"),
    ]
    for base in bases:
        assert _refused(base) == ""
    for number in range(times(30_000)):
        mutated = _mutated(bases[number % 2], chance)
        assert _refused(mutated) != "", mutated


def _mutated(request: SignedRequest, chance: random.Random) -> SignedRequest:
    """Return the request with one byte of what is signed changed, put in or taken out."""
    what = chance.randrange(4)
    if what == 0:
        return request._replace(raw_path=b"/" + _changed(request.raw_path[1:], chance))
    if what == 1 and request.query:
        return request._replace(query=_changed(request.query, chance))
    at = chance.randrange(len(request.headers))
    name, value = request.headers[at]
    headers = list(request.headers)
    if name == b"authorization":
        # All but the blanks and commas between its parts, which say nothing.
        start = chance.choice((value.index(b"Credential="), value.index(b"SignedHeaders=")))
        end = value.find(b",", start) if chance.random() < 0.5 else len(value)
        headers[at] = (name, value[:start] + _changed(value[start:end], chance) + value[end:])
    else:
        headers[at] = (name, _changed(value, chance))
    return request._replace(headers=headers)


_LETTERS: Final = b"0123456789abcdefXYZ"


def _changed(text: bytes, chance: random.Random) -> bytes:
    """Return a text with a letter or digit changed; escapes keep their meaning, so leave them."""
    while True:
        at = chance.randrange(len(text))
        if text[at : at + 1].isalnum() and b"%" not in text[max(0, at - 2) : at]:
            break
    how = chance.randrange(3)
    if how == 0:
        return text[:at] + text[at + 1 :]
    letter = chance.choice(_LETTERS.replace(text[at : at + 1], b""))
    if how == 1:
        return text[:at] + bytes((letter,)) + text[at + 1 :]
    return text[:at] + bytes((letter,)) + text[at:]
