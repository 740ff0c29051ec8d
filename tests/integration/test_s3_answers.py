"""What a bucket makes of the answers of servers: of S3 as others know it, or of none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from botocore.exceptions import (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.parsers import ResponseParserError

from registry.blobstore.s3.bucket import Bucket, Part
from registry.blobstore.s3.responses import Circuit, KeyMissing, StoreRefused, answered
from registry.errors import StoreUnavailable
from registry.settings.store import StoreSettings
from tests.s3_servers import credentials

MIB = 1 << 20

PAGE = b"<html><body>Nothing is here</body></html>"
"""Of a load balancer."""


class Canned(BaseHTTPRequestHandler):
    """Answers `pages` in turn, each a status and a body."""

    protocol_version = "HTTP/1.1"  # in which a client is told to send its body
    pages: list[tuple[int, bytes]]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, body = self.pages.pop(0)
        self.send_response(status)
        self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(body)))
        if body != PAGE:
            self.send_header("ETag", '"etag"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 - as the base class has it

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def answering(
    *pages: bytes | tuple[int, bytes], status: int = 200
) -> Iterator[tuple[Bucket, list[str]]]:
    """Give a bucket whose server answers these, and the paths that it is asked for."""
    asked: list[str] = []
    answers = [(status, each) if isinstance(each, bytes) else each for each in pages]
    handler = type("Handler", (Canned,), {"pages": answers, "asked": asked})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            with credentials(), closing(Bucket(_settings(url))) as bucket:
                yield bucket, asked
        finally:
            server.shutdown()
            thread.join()


def _settings(url: str) -> StoreSettings:
    return StoreSettings(store_s3_bucket="blobs", store_s3_endpoint=url, store_s3_region="local")


@pytest.mark.parametrize("error", [ResponseParserError, ValueError, KeyError, AttributeError])
def test_an_answer_that_cannot_be_parsed_counts_as_none(error: type[Exception]) -> None:
    with pytest.raises(StoreUnavailable, match=error.__name__):  # noqa: SIM117
        with answered("ListObjectsV2", Circuit()):
            raise error("no element found")


@pytest.mark.parametrize(
    "error",
    [
        NoCredentialsError(),
        PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
        CredentialRetrievalError(provider="iam-role", error_msg="none"),
    ],
    ids=["none", "half", "not had"],
)
def test_missing_credentials_are_named(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Clients hear that there are none, and operators in the log what to set."""
    with pytest.raises(StoreUnavailable, match="has no credentials"):  # noqa: SIM117
        with answered("PutObject", Circuit()):
            raise error
    assert "set AWS_ACCESS_KEY_ID" in caplog.text


EVERY_CALL: Sequence[Callable[[Bucket], object]] = (
    lambda bucket: bucket.head("key"),
    lambda bucket: bucket.find("key"),
    lambda bucket: bucket.get("key", 0, 100),
    lambda bucket: bucket.read("key"),
    lambda bucket: bucket.put("key", b"bytes"),
    lambda bucket: bucket.begin("key", "token"),
    lambda bucket: bucket.send_part("key", "upload", 1, b"part"),
    lambda bucket: bucket.complete("key", "upload", [Part("etag", "checksum")]),
    lambda bucket: list(bucket.listed("objects/")),
    lambda bucket: list(bucket.begun("objects/")),
    lambda bucket: bucket.delete(["key"]),
)


@pytest.mark.parametrize(("status", "page"), [(200, PAGE), (200, b""), (404, PAGE), (404, b"")])
def test_what_is_no_s3_has_neither_lost_nor_stored_anything(status: int, page: bytes) -> None:
    """As a load balancer answers whose servers are away."""
    with answering(*[page] * 2 * len(EVERY_CALL), status=status) as (bucket, asked):
        for number, call in enumerate(EVERY_CALL):
            if (status, page, number) in CANNOT_TELL:
                continue
            before = len(asked)
            with pytest.raises(StoreUnavailable, match=r"no S3|refuses \((404|without a code)\)"):
                call(bucket)
            assert len(asked) > before


CANNOT_TELL = {(200, b"", number) for number in (2, 3, 4, 6)}
"""An empty object, and one that is stored, are answered with an ETag alone, which this page has."""


@pytest.mark.parametrize(
    ("code", "error"), [("NoSuchKey", KeyMissing), ("NoSuchBucket", StoreRefused)]
)
def test_only_an_absent_key_is_absent(code: str, error: type[Exception]) -> None:
    page = f"<Error><Code>{code}</Code><Message>It is not there.</Message></Error>".encode()
    with answering(page, page, status=404) as (bucket, asked):
        with pytest.raises(error):
            bucket.head("key")
        assert len(asked) == 2  # HEAD, whose answer has no body, and GET


def test_a_server_that_knows_no_conditions_is_told_none_again() -> None:
    unknown = (501, b"<Error><Code>NotImplemented</Code></Error>")
    denied = (403, b"<Error><Code>AccessDenied</Code></Error>")
    conditions: list[bool] = []
    with answering(denied, unknown, b"", b"") as (bucket, _):
        bucket.client.meta.events.register(
            "before-parameter-build.s3.PutObject",
            lambda params, **_: conditions.append("IfNoneMatch" in params),
        )
        with pytest.raises(StoreRefused, match="AccessDenied"):
            bucket.put("key", b"bytes", is_new=True)
        for _ in range(2):
            bucket.put("key", b"bytes", is_new=True)
    assert conditions == [True, True, False, False]


def test_a_part_that_was_stored_with_other_bytes_is_no_part() -> None:
    with answering(b"") as (bucket, _):
        bucket.client.meta.events.register(
            "after-call.s3.UploadPart", lambda parsed, **_: parsed.update(ChecksumCRC32C="AAAAAA==")
        )
        with pytest.raises(StoreUnavailable, match="has kept other bytes than were sent"):
            bucket.send_part("key", "upload", 1, b"part")


def test_what_could_not_be_deleted_is_named_and_what_is_absent_is_deleted() -> None:
    failed = "".join(
        f"<Error><Key>{key}</Key><Code>{code}</Code></Error>"
        for key, code in (("first", "AccessDenied"), ("second", "NoSuchKey"))
    )
    page = f"<DeleteResult>{failed}</DeleteResult>".encode()
    keys = ["first", "second", "third"]
    with answering(page, page) as (bucket, _):
        assert bucket.delete(keys) == {"first": "AccessDenied"}
        with pytest.raises(StoreRefused, match="AccessDenied"):
            bucket.delete_all(keys)


def test_a_page_of_uploads_need_not_name_the_upload_that_it_ends_with() -> None:
    page = b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
    page += b"<NextKeyMarker>a-key</NextKeyMarker></ListMultipartUploadsResult>"
    last = b"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
    last += b"</ListMultipartUploadsResult>"
    with answering(page, last) as (bucket, asked):
        assert list(bucket.begun("objects/")) == []
        assert "key-marker=a-key" in asked[1]
        assert "upload-id-marker" not in asked[1]


@pytest.mark.parametrize(
    ("root", "call"),
    [
        ("ListBucketResult", lambda bucket: list(bucket.listed("objects/"))),
        ("ListMultipartUploadsResult", lambda bucket: list(bucket.begun("objects/"))),
    ],
)
def test_a_page_that_does_not_say_where_the_next_begins_is_no_answer(
    root: str, call: Callable[[Bucket], object]
) -> None:
    page = f"<{root}><IsTruncated>true</IsTruncated></{root}>".encode()
    with answering(page) as (bucket, _), pytest.raises(StoreUnavailable, match="no S3"):
        call(bucket)


def test_an_answer_without_ranges_is_closed() -> None:
    bodies: list[Any] = []
    with answering(bytes(MIB)) as (bucket, _):
        bucket.client.meta.events.register(
            "after-call.s3.GetObject", lambda parsed, **_: bodies.append(parsed["Body"])
        )
        with pytest.raises(StoreUnavailable, match="no ranges"):
            bucket.get("key", 5, 10)
    (body,) = bodies
    assert body._raw_stream.closed
