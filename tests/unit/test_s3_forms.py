"""Forms that upload a file: their bodies in pieces of any size, and their policies."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.forms import (
    MAX_FORM_BYTES,
    FileDecoder,
    FormReader,
    PostForm,
    is_form,
    read_form,
)
from cloudcore.storage.s3.post_calls import PostPolicy, read_policy
from tests.s3_forms import BOUNDARY, CONTENT_TYPE, form_body

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = "2026-01-01T00:00:01.000Z"


def _in_pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    marks = sorted({0, len(body), *(cut % (len(body) + 1) for cut in cuts)})
    return [body[start:stop] for start, stop in pairwise(marks)]


def _fields(body: bytes, cuts: list[int]) -> PostForm | None:
    reader = FormReader(BOUNDARY)
    found = None
    for piece in _in_pieces(body, cuts):
        found = found or reader.feed(piece)
    return found


def _file(body: bytes, form: PostForm, cuts: list[int]) -> bytes:
    received = bytearray()
    decoder = FileDecoder(received.extend, form)
    for piece in _in_pieces(body, cuts):
        decoder.write(memoryview(piece))
    decoder.finish()
    return bytes(received)


_LIKE_A_DELIMITER = st.lists(
    st.sampled_from([b"\r", b"\n", b"\r\n", b"--", BOUNDARY[:9].encode(), b"x", b"\0"]), max_size=12
).map(b"".join)


@given(
    fields=st.dictionaries(
        st.sampled_from(["key", "acl", "policy", "x-amz-meta-a"]), st.text(max_size=20)
    ),
    file=st.one_of(st.binary(max_size=200), _LIKE_A_DELIMITER),
    after=st.sampled_from(["", "submit"]),
    cuts=st.lists(st.integers(0, 2000), max_size=8),
)
def test_a_form_comes_back_however_it_is_cut(
    fields: dict[str, str], file: bytes, after: str, cuts: list[int]
) -> None:
    body = form_body(fields, file, filename="C:\\\\a\\\\b.txt", after=after)
    form = _fields(body, cuts)
    assert form is not None
    assert (form.fields, form.filename) == (fields, "b.txt")
    assert _file(body, form, cuts) == file


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
def test_no_body_is_a_failure_of_the_server(body: bytes, cuts: list[int]) -> None:
    for prefix in (b"", f"--{BOUNDARY}\r\n".encode()):
        with suppress(S3Error):
            _fields(prefix + body, cuts)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"x" * 100, "MalformedPOSTRequest"),
        (f"--{BOUNDARY}x\r\nContent-Disposition: form-data; name=a\r\n\r\n".encode(), "Malformed"),
        (f"--{BOUNDARY}\r\nContent-Type: a/b\r\n\r\n".encode(), "MalformedPOSTRequest"),
        (form_body({"a": "1", "A": "2"}, b""), "InvalidArgument"),
        (form_body({"a": "x" * MAX_FORM_BYTES}, b""), "MaxPostPreDataLengthExceededError"),
        (form_body({str(n): "" for n in range(101)}, b""), "InvalidArgument"),
        (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff'.encode("latin-1")
         + f"\r\n--{BOUNDARY}--".encode(), "InvalidArgument"),
        (form_body({}, b"").replace(b'"file"', b'"files"'), "InvalidArgument"),
        (form_body({}, b"").replace(b'name="file"', b'named="file"'), "MalformedPOSTRequest"),
        (form_body({}, b"").replace(b'"a.txt"', b'"\xff"'), "MalformedPOSTRequest"),
    ],
)  # fmt: skip
def test_what_is_no_form_is_refused(body: bytes, code: str) -> None:
    with pytest.raises(S3Error) as caught:
        _fields(body, [])
    assert caught.value.code.startswith(code)


def test_a_file_must_end() -> None:
    body = form_body({"key": "a"}, b"bytes")
    form = _fields(body, [])
    assert form is not None
    for cut in (body[:-4], body[:-20], body.replace(b"--\r\n", b"xx\r\n")):
        with pytest.raises(S3Error, match="well-formed"):
            _file(cut, form, [])


@pytest.mark.parametrize("parameters", ["", "; charset=a", '; boundary=""', "; boundary=a b"])
async def test_a_form_without_a_boundary_is_refused_unread(parameters: str) -> None:
    receive = AsyncMock()
    with pytest.raises(S3Error) as caught:
        await read_form({}, receive, f"multipart/form-data{parameters}")
    assert caught.value.code == "MalformedPOSTRequest"
    receive.assert_not_awaited()


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"type": "http.disconnect"}, "IncompleteBody"),
        ({"type": "http.request", "more_body": False}, "InvalidArgument"),
    ],
)
async def test_a_form_that_ends_before_its_file_is_refused(
    end: dict[str, object], code: str
) -> None:
    begun = form_body({"key": "a"}, b"").partition(b"\r\n\r\na\r\n")[0]
    receive = AsyncMock(
        side_effect=[{"type": "http.request", "body": begun, "more_body": True}, end]
    )
    with pytest.raises(S3Error) as caught:
        await read_form({}, receive, CONTENT_TYPE)
    assert caught.value.code == code


def test_the_type_of_a_form_is_told() -> None:
    assert is_form("Multipart/Form-Data; boundary=x")
    assert not is_form("application/xml")


def _policy(*conditions: Any, **more: Any) -> PostPolicy:  # noqa: ANN401
    document = {"expiration": LATER, "conditions": list(conditions), **more}
    return read_policy(b64encode(json.dumps(document).encode()).decode())


@pytest.mark.parametrize(
    ("condition", "fields", "allowed"),
    [
        ({"key": "a"}, {"key": "a"}, True),
        ({"key": "a"}, {"key": "b"}, False),
        ({"key": "a"}, {}, False),
        ({"Key": "a"}, {"key": "a"}, True),
        (["eq", "$key", "a"], {"key": "a"}, True),
        (["eq", "$key", "a"], {"key": "ab"}, False),
        (["starts-with", "$key", "user/"], {"key": "user/1"}, True),
        (["starts-with", "$key", "user/"], {"key": "other/user/"}, False),
        (["Starts-With", "$key", ""], {"key": "any"}, True),
        (["starts-with", "$content-type", "image/"], {"content-type": "image/a, image/b"}, True),
        (["starts-with", "$content-type", "image/"], {"content-type": "image/a, text/b"}, False),
        ({"key": "a"}, {"key": "a", "acl": "private"}, False),
        ({"key": "a"}, {"key": "a", "x-ignore-me": "1", "policy": "", "x-amz-signature": ""}, True),
        (["content-length-range", 1, 2], {"key": "a"}, False),
    ],
)
def test_every_field_is_as_a_condition_says(
    condition: Any,  # noqa: ANN401
    fields: dict[str, str],
    allowed: bool,
) -> None:
    policy = _policy(condition)
    if allowed:
        policy.check(fields, NOW)
    else:
        with pytest.raises(S3Error, match="Invalid according to Policy") as caught:
            policy.check(fields, NOW)
        assert caught.value.code == "AccessDenied"


def test_a_policy_ends_when_it_says() -> None:
    policy = _policy({"key": "a"}, expiration="2026-01-01T00:00:00Z")
    policy.check({"key": "a"}, datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC))
    with pytest.raises(S3Error, match="expired"):
        policy.check({"key": "a"}, NOW)


def test_sizes_are_within_their_range() -> None:
    policy = _policy(["content-length-range", 2, "4"])
    for size, code in ((1, "EntityTooSmall"), (2, ""), (4, ""), (5, "EntityTooLarge")):
        if not code:
            policy.check_size(size, is_whole=True)
            continue
        with pytest.raises(S3Error) as caught:
            policy.check_size(size, is_whole=True)
        assert caught.value.code == code
    policy.check_size(1, is_whole=False)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{}",
        '{"conditions": [{"key": "a"}]}',
        f'{{"expiration": "{LATER}"}}',
        f'{{"expiration": "{LATER}", "conditions": []}}',
        f'{{"expiration": "{LATER}", "conditions": {{}}}}',
        f'{{"expiration": "{LATER}", "CONDITIONS": [{{"key": "a"}}]}}',
        f'{{"expiration": "{LATER}", "conditions": [{{"key": "a"}}], "more": 1}}',
        f'{{"expiration": "{LATER}", "conditions": [["like", "$key", "a"]]}}',
        f'{{"expiration": "{LATER}", "conditions": [["eq", "key", "a"]]}}',
        f'{{"expiration": "{LATER}", "conditions": [{{"key": "a", "acl": "b"}}]}}',
        f'{{"expiration": "{LATER}", "conditions": [{{"key": 1}}]}}',
        f'{{"expiration": "{LATER}", "conditions": [["content-length-range", 1]]}}',
        f'{{"expiration": "{LATER}", "conditions": [["content-length-range", -1, 2]]}}',
        f'{{"expiration": "{LATER}", "conditions": [["content-length-range", true, 2]]}}',
        '{"expiration": "2026-01-01", "conditions": [{"key": "a"}]}',
        '{"expiration": "soon", "conditions": [{"key": "a"}]}',
        '{"expiration": 1, "conditions": [{"key": "a"}]}',
        "[" * 20_000,
    ],
)
def test_a_malformed_policy_is_refused(document: str) -> None:
    with pytest.raises(S3Error) as caught:
        read_policy(b64encode(document.encode()).decode())
    assert caught.value.code == "InvalidPolicyDocument"


@given(st.text(max_size=50))
def test_no_text_is_taken_for_a_policy(text: str) -> None:
    with pytest.raises(S3Error):
        read_policy(text)
