"""Documents of the S3 endpoint, in and out, and how requests are read."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import thread_time
from typing import TypeVar
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.storage.cors import (
    CorsRule,
    find_rule,
    preflight_headers,
    requested_headers,
)
from cloudcore.storage.multipart import MAX_PARTS, GivenPart
from cloudcore.storage.s3 import answers, documents
from cloudcore.storage.s3.documents import (
    ELEMENTS_OF_ENTRY,
    MAX_DEPTH,
    MAX_NAMES,
    MAX_TOKEN_BYTES,
    Incoming,
)
from cloudcore.storage.s3.errors import S3Error
from cloudcore.storage.s3.operations import operation_of
from cloudcore.storage.s3.requests import S3Request, read_copy_source, read_request
from tests.s3_operations import operations

T = TypeVar("T")

NAMESPACE = f' xmlns="{answers.NAMESPACE}"'


def read_deletion(body: bytes) -> documents.DeleteObjects:
    """Read a document that comes at once."""
    return _read_whole(documents.expect_deletion(), body)


def read_completion(body: bytes) -> list[GivenPart]:
    """Read a document that comes at once."""
    return _read_whole(documents.expect_completion(), body)


def _read_whole(incoming: Incoming[T], body: bytes) -> T:
    incoming.reader.feed(body)
    return incoming.finish()


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff")))
def test_every_text_is_read_back(value: str) -> None:
    root = fromstring(answers.document("A", [answers.text("B", value)]))
    assert (root[0].text or "") == value


def test_control_characters_are_references() -> None:
    assert answers.escape("a\x01\r\n\x7f<&>") == "a&#x1;&#xd;\n&#x7f;&lt;&amp;&gt;"


@pytest.mark.parametrize("namespace", ["", NAMESPACE])
def test_documents_are_read_with_and_without_the_namespace(namespace: str) -> None:
    body = (
        f"<Delete{namespace}><Object><Key>a&amp;b</Key></Object><Object><Key> c </Key></Object>"
        "<Quiet>true</Quiet></Delete>"
    )
    assert read_deletion(body.encode()) == (["a&b", " c "], True, {})


def test_a_completion_names_parts_with_checksums() -> None:
    body = (
        b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;ab&quot;</ETag>"
        b"<ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part></CompleteMultipartUpload>"
    )
    assert read_completion(body) == [(1, "ab", {"CRC32": "AAAAAA=="})]


def test_rules_of_cors_are_read() -> None:
    body = (
        b"<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET"
        b"</AllowedMethod><MaxAgeSeconds>30</MaxAgeSeconds></CORSRule></CORSConfiguration>"
    )
    assert documents.read_cors(body) == [(["*"], ["GET"], [], [], 30, None)]


_BOMB = b'<!DOCTYPE a [<!ENTITY x "xxxx">]><Delete><Object><Key>&x;</Key></Object></Delete>'
_FILE = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><Delete>&x;</Delete>'


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<", b"<Delete></Delete>", b"<Other><Object><Key>a</Key></Object></Other>"),
        b"<Delete><Object></Object></Delete>",
        b"<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
        b"<Delete>" + b"<Object><Key>a</Key></Object>" * 1001 + b"</Delete>",
        b"\xff\xfe<Delete/>",
        b'<?xml version="1.0" encoding="none"?><Delete/>',
        _BOMB,
        _FILE,
    ],
    ids=range(11),
)
def test_a_malformed_document_is_refused(body: bytes) -> None:
    with pytest.raises(S3Error) as caught:
        read_deletion(body)
    assert caught.value.code == "MalformedXML"


_KEY = b"<Object><Key>a</Key></Object>"


@pytest.mark.parametrize(
    "inside",
    [
        b"<a>" * MAX_DEPTH,
        b"".join(b"<a%d/>" % number for number in range(MAX_NAMES + 1)),
        b"<Object>" + b"<b/>" * ELEMENTS_OF_ENTRY,
        b"<!--" + b"x" * 2 * MAX_TOKEN_BYTES,
        b"<a " + b"".join(b'b%d="" ' % number for number in range(MAX_TOKEN_BYTES // 4)),
        b"<" + b"a" * 2 * MAX_TOKEN_BYTES,
        _KEY * 1001,
    ],
    ids=["depth", "names", "elements", "comment", "attributes", "tag", "keys"],
)
def test_a_document_is_refused_at_its_first_excess(inside: bytes) -> None:
    """It need not be complete: so what would follow costs nothing."""
    with pytest.raises(S3Error) as caught:
        documents.expect_deletion().reader.feed(b"<Delete>" + inside)
    assert caught.value.code == "MalformedXML"


def test_a_document_has_at_most_so_many_entries_and_each_text_once() -> None:
    part = b"<Part><PartNumber>1</PartNumber><ETag>a</ETag></Part>"
    reader = documents.expect_completion().reader
    reader.feed(b"<CompleteMultipartUpload><Other/>" + part * MAX_PARTS)
    with pytest.raises(S3Error) as caught:
        reader.feed(part)
    assert caught.value.code == "MalformedXML"
    for rules in (b"", b"<CORSRule/>" * (documents.MAX_RULES + 1)):
        with pytest.raises(S3Error) as caught:
            documents.read_cors(b"<CORSConfiguration>" + rules + b"</CORSConfiguration>")
        assert caught.value.code == "MalformedXML"
    assert documents.read_texts(b"<A><B><C>1</C></B><C>2</C></A>", "A") == {"B/C": "1", "C": "2"}
    with pytest.raises(S3Error) as caught:
        documents.read_texts(b"<A><B>1</B><B>2</B></A>", "A")
    assert caught.value.code == "MalformedXML"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_document_is_read_in_pieces(size: int) -> None:
    body = f"<Delete{NAMESPACE}>{'<Object> <Key>ä&amp;ö</Key></Object>' * 50}</Delete>".encode()
    incoming = documents.expect_deletion()
    for start in range(0, len(body), size):
        incoming.reader.feed(body[start : start + size])
    assert incoming.finish() == (["ä&ö"] * 50, False, {})


_PART = (
    b"<Part><PartNumber>1</PartNumber><ETag>a</ETag><ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part>"
)


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (read_deletion, b"<Delete>" + b"<a/>" * 430_000 + b"</Delete>"),
        (read_deletion, b"<Delete><Object>" + b"<a/>" * 430_000 + b"</Object></Delete>"),
        (read_deletion, b"<Delete>" + b"<Object/>" * 190_000 + b"</Delete>"),
        (read_deletion, b"<Delete><Object><Key>" + b"\n" * 1_700_000 + b"</Key></Object></Delete>"),
        (
            read_completion,
            b"<CompleteMultipartUpload>" + _PART * 10_000 + b"</CompleteMultipartUpload>",
        ),
        (read_completion, b"<CompleteMultipartUpload><Part>" + b"<a>text</a>" * 150_000),
        (documents.read_tags, b"<Tagging>" + b"<a/>" * 15_000 + b"</Tagging>"),
        (documents.read_cors, b"<CORSConfiguration>" + b"<a/>" * 15_000 + b"</CORSConfiguration>"),
    ],
    ids=["children", "grandchildren", "objects", "text", "parts", "one part", "tags", "rules"],
)
def test_no_document_grows_in_memory(read: Callable[[bytes], object], body: bytes) -> None:
    """As trees, such documents took a hundred times their bytes."""
    tracemalloc.start()
    try:
        with suppress(S3Error):
            read(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(body) + (1 << 20)


@pytest.mark.parametrize("content", ["", "<Tag/>", "<TagSet/><TagSet/>", "<Other/>"])
def test_a_document_without_a_set_of_tags_takes_none_away(content: str) -> None:
    with pytest.raises(S3Error, match="XML"):
        documents.read_tags(f"<Tagging>{content}</Tagging>".encode())
    assert documents.read_tags(b"<Tagging><TagSet/></Tagging>") == {}


@pytest.mark.parametrize("number", ["", "-1", "1.5", "x", "9" * 40, "٣"])
def test_a_part_has_a_number(number: str) -> None:
    body = (
        f"<CompleteMultipartUpload><Part><PartNumber>{number}</PartNumber><ETag>a</ETag></Part>"
        "</CompleteMultipartUpload>"
    )
    with pytest.raises(S3Error, match="XML"):
        read_completion(body.encode())


def _read(method: str, target: str, host: str = "s3.example", **headers: str) -> S3Request:
    path, _, query = target.partition("?")
    raw = [(b"host", host.encode())]
    raw += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return read_request(method, path.encode(), query.encode(), raw, "s3.example")


def _handler(request: S3Request) -> str:
    return operation_of(request).handler.__name__


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/b/a%2Fb", "a/b"),
        ("/b//a//b/", "/a//b/"),
        ("/b/../x", "../x"),
        ("/b/a+b", "a+b"),
        ("/b/a%2525", "a%25"),
        ("/b/a%3Fb", "a?b"),
        ("/b/%E1%88%B4", "\u1234"),
    ],
)
def test_keys_are_taken_byte_for_byte(path: str, key: str) -> None:
    assert _read("GET", path).key == key
    assert _read("GET", path[2:], host="b.s3.example:9000") == _read("GET", path)._replace(
        headers={"host": "b.s3.example:9000"}
    )


@pytest.mark.parametrize(("request_line", "expected"), list(operations()))
def test_a_request_asks_for_an_operation(request_line: str, expected: str) -> None:
    method, target, *source = request_line.split()
    copy = {"x_amz_copy_source": "/a/b"} if source else {}
    found = operation_of(_read(method, target, content_type="multipart/form-data", **copy))
    words = {"own": not found.finds_bucket, "change": found.is_change, "global": found.is_global}
    told = [found.handler.__name__, found.action, *(each for each in words if words[each])]
    assert " ".join(told) == expected


def test_there_is_no_operation_that_the_table_has_not() -> None:
    known = {request for request, _ in operations()}
    asked = (request.split()[1].partition("?")[2] for request in known)
    selectors = {each for each in asked if each and "=" not in each}
    for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        for path in ("/", "/b", "/b/k"):
            for target in (path, *(f"{path}?{each}" for each in selectors)):
                if f"{method} {target}" not in known:
                    with pytest.raises(S3Error):
                        operation_of(_read(method, target, content_type="multipart/form-data"))


def test_a_copy_is_told_by_its_header() -> None:
    assert _handler(_read("PUT", "/b/k", x_amz_copy_source="/a/b")) == "copy_object"
    assert read_copy_source("/a/b%2Fc%20d") == ("a", "b/c d")
    assert read_copy_source("a/b?versionId=null") == ("a", "b")


@pytest.mark.parametrize(
    ("method", "target", "code"),
    [
        ("PATCH", "/b/k", "MethodNotAllowed"),
        ("DELETE", "/", "MethodNotAllowed"),
        ("GET", "/b/k?tagging&acl", "InvalidArgument"),
        ("PUT", "/b/k?renameObject", "NotImplemented"),
        ("GET", "/b?metadataTable", "NotImplemented"),
        ("GET", "/b/k?versionId=1", "NoSuchVersion"),
        ("PUT", "/b/k?versionId=1", "InvalidArgument"),
        ("POST", "/b", "PreconditionFailed"),
        ("GET", "/b/%FF", "InvalidURI"),
        ("GET", "/b/a%00", "InvalidURI"),
        ("GET", f"/b/{'a' * 1025}", "KeyTooLongError"),
        ("GET", "/b?prefix=a&prefix=b", "InvalidArgument"),
        ("GET", "/b?" + "&".join(f"x{n}" for n in range(101)), "InvalidArgument"),
    ],
)
def test_a_request_is_refused(method: str, target: str, code: str) -> None:
    with pytest.raises(S3Error) as caught:
        assert operation_of(_read(method, target))
    assert caught.value.code == code


@pytest.mark.parametrize("source", ["", "/", "bucket", "/bucket/", "b/k?versionId=1", "b/%FF"])
def test_a_copy_source_is_refused(source: str) -> None:
    with pytest.raises(S3Error):
        read_copy_source(source)


RULES = [
    CorsRule(
        ["https://*.example"],
        ["PUT"],
        ["x-*", "Content-Type", "A*b", "a-*-z", "*-End"],
        ["etag"],
        60,
    ),
    CorsRule(["*"], ["GET"]),
]


@pytest.mark.parametrize(
    ("origin", "method", "headers", "rule"),
    [
        ("https://a.example", "PUT", ["content-type", "x-amz-date"], 0),
        ("https://a.example", "PUT", ["authorization"], None),
        ("https://a.example", "PUT", ["a-1-z", "ab", "x-y-end"], 0),
        ("https://a.example", "PUT", ["a-z", "a"], None),
        ("https://a.example", "PUT", ["a-", "x-y-end"], None),
        ("http://a.example", "PUT", [], None),
        ("https://.example", "PUT", [], 0),
        ("https://a.example.net", "PUT", [], None),
        ("https://other", "GET", [], 1),
        ("https://other", "DELETE", [], None),
    ],
)
def test_the_first_rule_that_allows_all_is_applied(
    origin: str, method: str, headers: list[str], rule: int | None
) -> None:
    assert find_rule(RULES, origin, method, headers) == (None if rule is None else RULES[rule])


@pytest.mark.parametrize("wildcard", ["", "*"])
def test_a_preflight_of_many_headers_costs_little(wildcard: str) -> None:
    """Nobody has signed it, and the rules are any tenant's."""
    others = [f"q{number}{wildcard}" for number in range(99)]
    rules = [CorsRule(["*"], ["GET"], [*others, f"a{wildcard}"])] * 100
    begun = thread_time()
    for names in ("a," * 20_000, ",".join(f"a{number}" for number in range(20_000))):
        assert find_rule(rules, "https://a", "GET", requested_headers(f"{names},b")) is None
    assert thread_time() - begun < 1
    allowed = requested_headers(",".join(["A"] * 1000))
    assert (allowed, find_rule(rules, "https://a", "GET", allowed)) == (["a"], rules[0])


def test_a_preflight_is_told_what_it_may() -> None:
    found = dict(preflight_headers(RULES[0], "https://a.example", ["x-a"]))
    assert found["access-control-allow-origin"] == "https://a.example"
    assert found["access-control-allow-methods"] == "PUT"
    assert found["access-control-allow-headers"] == "x-a"
    assert found["access-control-max-age"] == "60"
    assert found["access-control-expose-headers"] == "etag"
    plain = dict(preflight_headers(RULES[1], "https://a.example", []))
    assert plain.keys() == {"access-control-allow-origin", "access-control-allow-methods", "vary"}


_DOCUMENTS: list[Callable[[bytes], object]] = [
    read_deletion,
    read_completion,
    documents.read_tags,
    documents.read_cors,
    documents.read_bucket,
    partial(documents.read_texts, name="A"),
]


@pytest.mark.parametrize(
    "read", _DOCUMENTS, ids=lambda read: getattr(read, "__name__", "read_texts")
)
@given(
    body=st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")),
    )
)
def test_no_body_ends_in_another_error(read: Callable[[bytes], object], body: bytes) -> None:
    with suppress(S3Error):
        read(body)
