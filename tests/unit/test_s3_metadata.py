"""Metadata in headers: as UTF-8, or as RFC 2047 writes it."""

from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.storage.errors import MetadataTooLarge
from cloudcore.storage.object_rows import ObjectAttributes, StoredObject
from cloudcore.storage.s3.object_headers import object_fields, read_attributes

NAME = "x-amz-meta-a"


def read(value: bytes) -> str:
    """Return what a header says."""
    return read_attributes({NAME: value.decode("latin-1")}, "").metadata["a"]


def shown(value: str) -> str:
    """Return the header that shows a value."""
    attributes = ObjectAttributes(metadata={"a": value})
    return dict(object_fields(StoredObject("", "", "", "key", 0, "", attributes, None, 0)))[NAME]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("日本".encode(), "日本"),
        (b"caf\xe9", "café"),
        (b"=?UTF-8?B?5pel5pys?=", "日本"),
        (b"=?utf-8?q?caf=C3=A9_au_lait?=", "café au lait"),
        (b"=?iso-8859-1?Q?caf=E9?= au =?us-ascii?q?lait?=", "café au lait"),
        (b"=?utf-8?b?5pel?= \t =?utf-8?b?5pys?=", "日本"),
        (b"=?utf-8?b?5pel5p?= =?utf-8?b?ys?=", "=?utf-8?b?5pel5p?= =?utf-8?b?ys?="),
        (b"=?utf-8?q?=E6=97?= =?UTF-8?q?=A5?=", "日"),
        (b"=?utf-8?b??=", ""),
        (b"=?utf-8?b?!!!?=", "=?utf-8?b?!!!?="),
        (b"=?utf-8?b?5pel5p?=", "=?utf-8?b?5pel5p?="),
        (b"=?utf-8?q?=FF?=", "=?utf-8?q?=FF?="),
        (b"=?utf-7?q?+AGE-?=", "=?utf-7?q?+AGE-?="),
        (b"=?utf-8?x?a?= =? ?=", "=?utf-8?x?a?= =? ?="),
    ],
)
def test_a_value_is_read(header: bytes, value: str) -> None:
    assert read(header) == value


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("gzip", "gzip"),
        ("aws-chunked", None),
        ("aws-chunked,deflate, gzip", "deflate, gzip"),
        ("gzip,AWS-chunked", "gzip"),
    ],
)
def test_an_encoding_is_kept_without_that_of_the_transfer(sent: str, kept: str | None) -> None:
    assert read_attributes({"content-encoding": sent}, "").headers.get("content-encoding") == kept


@given(st.text(st.characters(blacklist_categories=["Cc", "Cs"]) | st.sampled_from("=? \xa0")))
def test_every_value_comes_back(value: str) -> None:
    assert read(shown(value).encode("latin-1")) == value


@pytest.mark.parametrize("repeated", [b"=?x?q?a", b"=?utf-8?b?", b"=?utf-8?q?a?= ", b"=?", b" "])
def test_a_long_value_costs_little(repeated: bytes) -> None:
    value = b"=?utf-8?q?a?=" + repeated * (90_000 // len(repeated)) + b"b"
    begun = thread_time()
    with pytest.raises(MetadataTooLarge):
        read_attributes({"x-amz-meta-long": "x" * 8192, NAME: value.decode("latin-1")}, "")
    assert thread_time() - begun < 1
