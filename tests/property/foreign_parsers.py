"""Parsers of what strangers send, each with the worst inputs we know of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import ip_network
from typing import Any, Final

import msgspec

from cloudcore.errors import PlatformError
from cloudcore.identity import names
from cloudcore.identity.oauth import forms
from cloudcore.identity.tokens import jws
from cloudcore.keyring import Keyring
from cloudcore.resource_names import Crn, check_name
from cloudcore.serving.bodies.framing import ChunkedBody, FramingError
from cloudcore.serving.clients import source_address
from cloudcore.serving.http.head import HeadError, HeadReader, check_partial
from cloudcore.serving.limits import ServerLimits
from cloudcore.web import idempotency, query, strict_json
from cloudcore.web.app import ControlPlane, Routes
from cloudcore.web.pagination import PageQuery, Pager
from registry.console import browser_request
from registry.console.admission import check_parameters
from registry.console.sessions import CookieJar
from registry.distribution import token
from registry.distribution.byteranges import parse_content_range, parse_range
from registry.distribution.request import (
    DataPlaneRequest,
    Query,
    is_not_modified,
    page_cursor,
    page_size,
    range_still_holds,
)
from registry.distribution.routing import match_path
from registry.oci.digest import Digest
from registry.oci.manifest import parse_manifest
from registry.oci.reference import parse_name, parse_reference, parse_tag
from registry.services.events import check_rule
from registry.services.tags.details import tag_precondition


def read_one(read: Callable[[], object]) -> None:
    """Read, whatever becomes of it: that is others' to test."""
    with suppress(PlatformError, HeadError, FramingError, ValueError):
        read()


def read_each(readers: Sequence[Callable[[Any], object]], text: object) -> None:
    """Read with one after the other."""
    for read in readers:
        read_one(partial(read, text))


def _scope(headers: list[tuple[bytes, bytes]], **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "type": "http",
        "method": "GET",
        "headers": headers,
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "scheme": "http",
        "state": {"request_id": "x"},
        **more,
    }


def _with(name: bytes, value: bytes) -> DataPlaneRequest:
    return DataPlaneRequest(_scope([(name, value)]), None, None, "", None)  # type: ignore[arg-type]


def _read_chunks(body: bytes) -> None:
    framing = ChunkedBody()
    for at in range(0, len(body), 1000):
        part = body[at : at + 1000]
        framing.feed(part, len(part), lambda _: None)


def _read_partial(head: bytes) -> None:
    """Read a head as it comes in, in packets of 16 kB."""
    for end in range(16_000, len(head) + 16_000, 16_000):
        check_partial(head[:end])


def _ask_control(path: bytes) -> None:
    app = ControlPlane(Routes([]))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: object) -> None:
        pass

    scope = _scope([], path=path.decode("latin-1"), raw_path=path)
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]


def _page(marker: str) -> None:
    Pager(Keyring(bytes(32)), PageQuery(marker=marker), ("/v1/x",))


def _check_parameters(text: str) -> None:
    for name in PARAMETERS:
        read_one(partial(check_parameters, {name: text}))


class _Shape(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 0


URL: Final = "http://127.0.0.1:5000"
READER: Final = ServerLimits(header_count=1 << 20)
JAR: Final = CookieJar(Keyring(bytes(32)), URL)
PARAMETERS: Final = ("repository", "rule", "digest", "tag", "pin", "asset")
PROXIES: Final = [ip_network("0.0.0.0/0"), ip_network("::/0")]

Parser = tuple[Callable[[Any], object], list[Any]]

# Of each a list of inputs: a text that is repeated, or a lead, what is repeated, and an end.
PARSERS: Final[dict[str, Parser]] = {
    "head": (
        lambda head: HeadReader(READER).read(head),
        [
            (b"GET /", b"a", b" HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"GET /", b"%", b" HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"GET http://", b"a", b"/ HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"GET http://a", b"/?", b" HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"", b"A", b" / HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"", b" ", b"\r\n\r\n"),
            *(
                (b"GET / HTTP/1.1\r\n" + lead, unit, b"\r\n\r\n")
                for lead, unit in (
                    (b"Host: ", b"a"),
                    (b"Host: [", b":"),
                    (b"Host: a:", b"1"),
                    (b"Host: ", b":"),
                    (b"Host: a\r\nConnection: ", b"a,"),
                    (b"Host: a\r\nConnection: ", b" ,"),
                    (b"Host: a\r\nContent-Length: ", b"1"),
                    (b"Host: a\r\nTransfer-Encoding: ", b"chunked,"),
                    (b"Host: a\r\nX: ", b" \t"),
                    (b"Host: a", b"\r\na:b"),
                    (b"Host: a", b"\r\nConnection: a"),
                    (b"Host: a\r\n", b"a"),
                )
            ),
        ],
    ),
    "partial head": (_read_partial, [(b"GET / HTTP/1.1\r\n", b"a", b""), b"a", b" ", b"\r"]),
    "chunked body": (
        _read_chunks,
        [b"1\r\na\r\n", b"0", b"f" * 15 + b";", (b"1;", b"a", b""), (b"0\r\n", b"a:b\r\n", b"")],
    ),
    "path of /v2": (
        match_path,
        [(b"/v2/", unit, b"/manifests/x") for unit in (b"a", b"a/", b"%41", b"%", b"\xff", b"/")]
        + [(b"/v2/", b"/blobs/uploads", b""), (b"/v2/a/blobs/uploads", b"/", b"")],
    ),
    "path of /v1": (
        _ask_control,
        [
            (b"/v1/", unit, end)
            for unit in (b"a", b"a/", b"%2", b"%41", b".", b"/")
            for end in (b"", b"/")
        ],
    ),
    "path of the console": (
        _check_parameters,
        ["a", "0", "a:", "a-", "a.", ("a:", "0", "x"), ("0000-", "0", "")],
    ),
    "query of /v2": (
        lambda text: (query_ := Query(text), page_size(query_, 1), page_cursor(query_)),
        [
            (b"n=", b"1", b""),
            (b"last=", b"%41", b""),
            b"&",
            b"n=1&",
            b"%",
            b"=",
            (b"n=", b"+", b""),
        ],
    ),
    "form of /v2": (
        lambda text: Query(text, is_form=True),
        [(b"scope=", b"+", b""), (b"scope=", b"%41", b""), b"&", b"a=1&", b"%", b"="],
    ),
    "query of the console": (
        lambda text: browser_request.query_of(_scope([], query_string=text)),
        [(b"q=", b"%41", b""), (b"q=", b"\xff", b""), b"&", b"a=1&", b"%", b"=", b"+"],
    ),
    "query of /v1": (
        lambda text: query.parse_query(text, PageQuery),
        [(b"limit=", b"1", b""), (b"marker=", b"%41", b""), b"&", b"a=1&", b"%", b"=", b"+"],
    ),
    "marker": (_page, ["A", "=", "-_", "A="]),
    "ranges": (
        lambda text: (parse_range(text, 10), parse_content_range(text, None)),
        [("bytes=", "1", "-"), ("bytes=1-", "1", "!"), ("", "1", "-1"), ("1-", "1", "x"), " ", "-"],
    ),
    "content range": (
        lambda text: parse_content_range(text, 1),
        [("", "1", "-1"), ("1-", "1", "")],
    ),
    "conditions": (
        lambda text: (
            is_not_modified(_with(b"if-none-match", text), "sha256:a"),
            range_still_holds(_with(b"if-range", text), "sha256:a"),
            tag_precondition(text.decode("latin-1"), text.decode("latin-1")),
        ),
        [b'"', b'""', b'W/"', b'"a', b"W/", b'"a", ', b" ", b"*,", (b'"', b"W/", b"")],
    ),
    "scopes": (
        lambda text: token.parse_scopes([text]),
        [
            "repository:a/b:pull ",
            ":",
            "a:",
            ("repository:", "a/", ":pull"),
            " ",
            ("repository:a/b:", "pull,", ""),
            ("repository(", "a", "):a/b:pull"),
        ],
    ),
    "basic of /v2/token": (
        lambda text: token._basic_credential(_scope([(b"authorization", text)])),
        [
            (b"basic ", b"A", b""),
            (b"basic ", b"A", b"!"),
            (b"basic", b" ", b""),
            (b"basic A", b"=", b""),
            (b"basic A", b" ", b"!"),
        ],
    ),
    "form of OAuth": (
        lambda text: forms.parse_form([b"application/x-www-form-urlencoded"], text),
        [b"a=1&", b"&", b"%41", b"%", b"+", b"=", (b"a=", b"\xff", b"")],
    ),
    "type of a form": (
        lambda text: forms.parse_form([text], b""),
        [
            (b"application/x-www-form-urlencoded", b" ", b"!"),
            (b"application/x-www-form-urlencoded;", b"\t", b""),
        ],
    ),
    "client of OAuth": (
        lambda text: forms.parse_client([text], {}),
        [
            (b"basic ", b"A", b""),
            (b"basic ", b"A", b"!"),
            (b"basic", b" ", b""),
            (b"basic ", b"JTQx", b""),
        ],
    ),
    "token": (
        lambda text: jws.verify(text, lambda _: None),
        [
            "a",
            ".",
            "a.",
            ("a.", "a", ".a"),
            ("eyJhbGciOiJIUzI1NiJ9.", "A", ".AAAA"),
            ("a.", "A", ".A!"),
        ],
    ),
    "names": (
        partial(read_each, (parse_name, parse_reference, parse_tag, Digest.parse, Crn.parse)),
        [
            *("a", "a/", "a-", "a--", "a__", "a.", "-", ":", "a:"),
            ("sha256:", "a", ""),
            ("crn:", "a:", "/"),
            ("aa/", "a/", "!"),
            ("aa/a", "-", "a!"),
        ],
    ),
    "names of identity": (
        partial(read_each, (check_name, names.check_handle, names.email_address)),
        ["a", "a-", "a.", "a@", ("a@", "a.", "!"), ("a@", "a", ""), "-"],
    ),
    "JSON": (
        lambda text: strict_json.decode(text, _Shape),
        [
            *(b"[", b'{"a":', b"1", b" ", b'"', b"\\", b'"\\u0041'),
            (b'"', b"\\u0041", b'"'),
            (b'"', b"\\ud800", b'"'),
            (b'{"', b"a", b'":1}'),
            (b'{"', b" - at `$", b'":1}'),
            (b'{"', b"`", b'":1}'),
            (b"[", b"1,", b"1]"),
            (b"1.", b"1", b""),
            (b"1e", b"9", b""),
            (b"0.", b"0", b"1"),
            (b"-", b"1", b""),
            (b'{"a":"', b"`$", b'"}'),
            (b'{"a":{"', b" - at `$.", b'":1}}'),
            (b"[", b'{"a":1},', b"1]"),
        ],
    ),
    "manifest": (
        lambda text: parse_manifest(text, None),
        [
            b"[",
            b'{"a":',
            b" ",
            b"1",
            (b'{"schemaVersion":', b"1", b"}"),
            (b'{"schemaVersion":2,"x":', b"1", b"}"),
            (b'{"schemaVersion":2,"x":1.', b"1", b"}"),
            (b'{"schemaVersion":2,"x":1e', b"9", b"}"),
            (b'{"schemaVersion":2,"x":[', b"1,", b"1]}"),
            (b'{"schemaVersion":2,"x":"', b"\\u0041", b'"}'),
        ],
    ),
    "X-Forwarded-For": (
        lambda text: source_address("192.0.2.1", [text], PROXIES),
        [
            *(b"192.0.2.1,", b",", b"a", b":", b"1."),
            (b"1", b"%", b""),
            b"::1,",
            b" ",
            (b"::%", b"a", b""),
            b"f:",
        ],
    ),
    "idempotency key": (lambda text: idempotency.parse_key([text]), [b"a", b" ", b"\0"]),
    "cookies": (
        lambda text: JAR.open(
            "a", browser_request.cookies_of(_scope([(b"cookie", text)])).get("a"), _Shape
        ),
        [b"a=", b";", b"a;", b"=", b" ", (b"a=", b"A", b""), (b"a=", b"-", b"")],
    ),
    "prefix of an event rule": (lambda text: check_rule([], text), ["a", "a/", "-", "a-", "__"]),
}
